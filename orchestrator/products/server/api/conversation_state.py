"""The state that the server keeps in a conversation: its choices for every turn."""

from collections.abc import Mapping
from typing import ClassVar

from orchestrator.delegation.session_state import SessionState


class ConversationState(SessionState, frozen=True):
    """The choices of a person for one conversation."""

    NAME: ClassVar[str] = "conversation"
    instructions: str = ""
    """Added to the instructions of its agent in every turn: a style, or a role."""
    workspace: str = ""
    """The folder below the server's workspace that its tools work in."""

    def context(self, sent: Mapping[str, str]) -> Mapping[str, str]:
        """Return the context of a message: its own workspace, or the conversation's."""
        return {**sent, "cwd": sent["cwd"] or self.workspace} if self.workspace else sent
