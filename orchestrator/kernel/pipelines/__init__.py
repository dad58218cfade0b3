"""Pipelines: agents that are Python functions, and combinators that make agents from agents."""
