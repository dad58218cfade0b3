"""Tools: the value `Tool`, and one package for each kind that ships.

A tool source (an MCP server, for example) is a package here, beside `files` and `terminal`: it
produces `Tool` values, whose `run` does the call. What it needs of the task it finds in
`context.ToolContext`; connections belong to the orchestrator, which opens them around a session.
"""
