"""Telegram: its Bot API over HTTP, heard by long polling or by a webhook."""

from orchestrator.products.chat.telegram.platform import Telegram, TelegramWebhook, open_telegram

__all__ = ["Telegram", "TelegramWebhook", "open_telegram"]
