"""Agents made of agents: sequence, fan-out, choice, retry."""
