"""Agents as tools of MCP clients: each call is a run, joined by its request or kept as a task.

`tools` lists the agents, `calls` runs them, and `protocol` speaks the protocol with the official
SDK, which is an extra and imported late. The request itself declares whether its call is joined
or becomes a task; an earlier request never decides that (law 4). A task is a run that the client
polls, with the id of the run, and the client hears of it when it is durable. A fault of the
program and a lost task are errors of the protocol. Every other ending is a result, and the cause
of the outcome decides which. A `Caller` makes the request: a key over HTTP
(`server/mcp_route.py`), the user of this process over stdio (`stdio.py`).
"""
