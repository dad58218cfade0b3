"""The address of a chat or thread on a platform, and the ids of the sessions held there.

The id of a session is made of its address and a number, so there is no table to lose: `/new` ends
the session of one number, and the next message goes to the next.
"""

import hashlib
from typing import Final

import attrs

from orchestrator.agents import DefinitionError
from orchestrator.delegation import SessionId

PREFIX: Final = "c_"
"""How the ids of all sessions of chats begin."""


@attrs.frozen
class ChatAddress:
    """A chat, or a thread in it, on one platform."""

    platform: str
    """The name of the platform: `telegram`."""
    chat: str
    """What the platform calls the chat, channel or user."""
    thread: str = ""
    """What it calls the topic or thread in it; "" is the chat itself."""

    def __str__(self) -> str:
        thread = f":{self.thread}" if self.thread else ""
        return f"{self.platform}:{self.chat}{thread}"

    def session(self, number: int) -> SessionId:
        """Return the id of the session of a number that is held here."""
        names = "\0".join((self.platform, self.chat, self.thread, str(number)))
        return SessionId(f"{PREFIX}{hashlib.sha256(names.encode()).hexdigest()[:20]}")


def parse_chat_address(text: str) -> ChatAddress:
    """Return the address that a text names: `PLATFORM:CHAT` or `PLATFORM:CHAT:THREAD`.

    Raises:
        DefinitionError: it names none.
    """
    platform, _, rest = text.partition(":")
    chat, _, thread = rest.partition(":")
    if not platform or not chat:
        raise DefinitionError(f"{text!r} is no address: write PLATFORM:CHAT[:THREAD]")
    return ChatAddress(platform, chat, thread)
