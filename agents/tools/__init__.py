"""Tools: the value `Tool`, and one package for each kind that ships.

A tool source (an MCP server, for example) is a package here, beside `files` and `terminal`. It
produces `Tool` values, whose `run` does the call and reads the task from `context.ToolContext`.
Connections belong to the orchestrator, which opens them around a session.
"""
