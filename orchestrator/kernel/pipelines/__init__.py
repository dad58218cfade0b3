"""Composing agents in Python: what a function delegates, and agents that are made of agents."""
