"""Conversations of OpenAI's protocol: items that responses read and add to."""
