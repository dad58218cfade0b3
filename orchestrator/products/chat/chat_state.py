"""The state that a gateway keeps in the session of a chat address."""

from typing import ClassVar

import msgspec

from orchestrator.agents import MessageId
from orchestrator.delegation import SessionId
from orchestrator.delegation.session_state import Entries, SessionState


class ButtonsMessage(msgspec.Struct, frozen=True):
    """The message that asks a question with buttons."""

    address: str
    id: str


class ChatState(SessionState, frozen=True):
    """The conversation of an address, as its people and its gateway left it."""

    NAME: ClassVar[str] = "chat"
    address: str = ""
    """The address at which it began."""
    opened_by: MessageId = MessageId("")
    """The message with the command that opened it; empty if no command did."""
    linked_to: SessionId = SessionId("")
    """The session in which the conversation of the address goes on, if this is the record of a
    link."""
    told: str = ""
    """The texts that others told its people, since its agent last read of them."""
    personality: str = ""
    """The personality that its people have chosen."""
    answered: Entries[str] = msgspec.field(default_factory=dict)
    """The question that each of the last commands has answered, by the message of the command. A
    command that is heard again after a crash must not answer the next question."""
    asked: Entries[ButtonsMessage] = msgspec.field(default_factory=dict)
    """The messages with buttons, by the question."""
    sending: str = ""
    """The turn and the part of a reply that is sent next."""
