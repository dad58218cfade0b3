"""Anthropic's protocol: messages."""
