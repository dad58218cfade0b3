"""Agents behind HTTP: what OpenAI's clients speak, and the tree that is only ours.

A route says in one value what it takes and gives (`operations.py`), so what is served and what
`/openapi.json` says of it are the same.
"""
