"""Slack: a bot that hears by Socket Mode or the Events API, and speaks by the Web API."""

from orchestrator.products.chat.slack.platform import SlackPlatform, open_slack

__all__ = ["SlackPlatform", "open_slack"]
