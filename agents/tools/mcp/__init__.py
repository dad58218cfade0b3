"""Servers of the Model Context Protocol: what an agent names, and what becomes of what they say.

Everything here is a value or a function of values. The connections belong to the orchestrator.
"""
