"""The state that the server keeps in a session: the request that opened it."""

from typing import ClassVar

from orchestrator.delegation.session_state import SessionState


class RequestState(SessionState, frozen=True):
    """The request that opened a session."""

    NAME: ClassVar[str] = "request"
    key_name: str = ""
    """The name of its key; empty for the default one."""
    fingerprint: str = ""
    """The digest of the request, which a repeated request with the same Idempotency-Key shares."""
    opening: str = ""
    """The characters that may begin its answer, if the answer is JSON."""
