"""The state that doors keep in a session."""

from typing import ClassVar

from orchestrator.delegation.session_state import SessionState


class DoorState(SessionState, frozen=True):
    """How a session goes on after its request, and after a crash."""

    NAME: ClassVar[str] = "door"
    language_model: str = ""
    """The name of the model that its agent has in place of its own."""
    pushed: bool = False
    """Its replies go to the webhook that there was when it began."""
