"""Connections to servers of the Model Context Protocol. `connections.py` owns them.

An agent names servers, and a turn gets their tools through the port `ToolServers`. Replay and
simulation have an implementation that connects to nothing. One nursery owns all connections, and
a supervisor reconnects each of them. If a server is out of reach, the model reads a sentence
about it. `checked_messages.py` checks every message before the SDK reads it. Each server command
carries a tag whose file stays locked while this process lives, so the next process finds commands
that a kill left behind. The client repeats a call only if it did not run, or if the server
declares it idempotent. A task of a server is the fact `CallPlaced`, so a resumed turn asks for
its result.

The official SDK takes a second to import, so only `connection.py` imports it, when an agent that
names a server first runs.
"""
