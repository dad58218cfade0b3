"""Connections to servers of the Model Context Protocol. `connections.py` owns them.

The official SDK speaks the protocol. It takes a second to import, so only `connection.py` and what
that imports do, and they are imported when an agent that names a server first runs.
"""
