"""Agents as tools of MCP clients: each call is a run, joined by its request or kept as a task.

`tools` says what is offered, `calls` runs it, `protocol` speaks it with the official SDK, which is
an extra and imported late. Who asks, and for which journal, comes in as a `Caller`: over HTTP it is
a key (`server/mcp_route.py`), over stdio the user of this process (`stdio.py`).
"""
