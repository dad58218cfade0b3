"""Slack: its Web API, Events API and Socket Mode."""
