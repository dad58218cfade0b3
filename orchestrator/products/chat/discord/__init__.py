"""Discord: a bot that hears over the gateway's websocket, and speaks over HTTP (API version 10)."""

from orchestrator.products.chat.discord.platform import DiscordPlatform, open_discord

__all__ = ["DiscordPlatform", "open_discord"]
