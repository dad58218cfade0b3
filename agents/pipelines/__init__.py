"""Agents that are programs: `Pipeline`, and the `@agent` decorator that makes one of a function."""
