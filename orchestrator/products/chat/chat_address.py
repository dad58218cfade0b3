"""The address of a chat or thread on a platform, and the ids of its sessions.

The id of a session consists of its address and a number, so there is no table to lose: `/new` ends
the current session, and the next message goes to the session with the next number.
"""

import hashlib
from typing import Final

import attrs

from orchestrator.agents import DefinitionError
from orchestrator.delegation import SessionId

PREFIX: Final = "c_"
"""The prefix of the ids of all chat sessions."""


@attrs.frozen
class ChatAddress:
    """A chat, or a thread in it, on one platform."""

    platform: str
    """The name of the platform: `telegram`."""
    chat: str
    """The platform's id of the chat, channel or user."""
    thread: str = ""
    """The platform's id of the topic or thread; "" for the chat itself."""

    def __str__(self) -> str:
        thread = f":{self.thread}" if self.thread else ""
        return f"{self.platform}:{self.chat}{thread}"

    def session(self, number: int) -> SessionId:
        """Return the id of this address's session with a number."""
        names = "\0".join((self.platform, self.chat, self.thread, str(number)))
        return SessionId(f"{PREFIX}{hashlib.sha256(names.encode()).hexdigest()[:20]}")


def parse_chat_address(text: str) -> ChatAddress:
    """Parse an address: `PLATFORM:CHAT` or `PLATFORM:CHAT:THREAD`.

    Raises:
        DefinitionError: the text is not an address.
    """
    platform, _, rest = text.partition(":")
    chat, _, thread = rest.partition(":")
    if not platform or not chat:
        raise DefinitionError(f"{text!r} is no address: write PLATFORM:CHAT[:THREAD]")
    return ChatAddress(platform, chat, thread)
