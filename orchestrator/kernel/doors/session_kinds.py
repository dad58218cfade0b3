"""What kind of session it is: a label says it, and of a job's own session its id."""

from typing import Final

from orchestrator.delegation import SessionId

KIND: Final = "kind"
"""The label of every session of a request: `run`, `response`, `chat`, `mcp` or `session`."""
CONVERSATION: Final = "session"
"""The kind that stays open until the client closes it; any other ends with its request."""
CHAT_PLATFORM: Final = "chat_platform"
"""The kind of conversations on chat platforms: only a gateway can deliver their replies."""
RECORD: Final = "conversation"
"""The kind in which no agent works: it keeps what its client stores in labels. It is no run."""
JOB_PREFIX: Final = "j_"
"""How the id of the session begins that a job of a program has for its own."""


def is_run(session: SessionId) -> bool:
    """Return whether a session is more than that of a job of a program, in which none works."""
    return not session.startswith(JOB_PREFIX)
