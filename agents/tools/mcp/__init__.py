"""Servers of the Model Context Protocol: the values that an agent names, and their tools and
answers.

Everything here is a value or a function of values. The connections belong to the orchestrator.
"""
