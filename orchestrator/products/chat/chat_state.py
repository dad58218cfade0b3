"""The state that a gateway keeps in the session of a chat address."""

from typing import ClassVar

import msgspec

from orchestrator.agents import MessageId
from orchestrator.delegation import SessionId
from orchestrator.delegation.session_state import NO_ENTRIES, Entries, SessionState


class ButtonsMessage(msgspec.Struct, frozen=True):
    """The message that asks a question with buttons."""

    address: str
    id: str
    is_whole: bool = False
    """Whether people see the whole question there: else they can only deny it."""


class ChatState(SessionState, frozen=True):
    """The conversation of an address."""

    NAME: ClassVar[str] = "chat"
    address: str = ""
    """The address at which the conversation began."""
    opened_by: MessageId = MessageId("")
    """The message whose command opened the session; empty if no command did."""
    linked_to: SessionId = SessionId("")
    """The session that continues the conversation, if this session is only a link."""
    told: str = ""
    """The texts that others sent to its people since its agent last read them."""
    personality: str = ""
    """The personality that its people have chosen."""
    answered: Entries[str] = NO_ENTRIES
    """The question that each of the last commands has answered, by the message of the command, so
    that a command that is repeated after a crash does not answer the next question."""
    asked: Entries[ButtonsMessage] = NO_ENTRIES
    """The messages with buttons, by the question."""
    sending: str = ""
    """The turn and the part of a reply that is sent next."""
    gone: str = ""
    """Why no message reaches the chat; nothing is sent until a person writes there again."""
