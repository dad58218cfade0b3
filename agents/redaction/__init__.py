"""Secrets, removed from texts before they are logged, journaled or sent."""
