"""The channels that the bot has met: which are threads, and their parent channels.

Discord describes a channel separately from its messages. The description never changes, so each
channel is requested once.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from orchestrator.products.chat.chat_address import ChatAddress
from orchestrator.products.chat.discord.objects import Channel

MOST: Final = 10_000
"""The most known channels; beyond, the oldest is forgotten, since another request is cheap."""
NAME: Final = "discord"


class Channels:
    """The known channels."""

    def __init__(self, get_channel: Callable[[str], Awaitable[Channel]]) -> None:
        self._get_channel = get_channel
        self._known: dict[str, Channel] = {}

    async def find(self, id_: str) -> Channel:
        await trio.lowlevel.checkpoint()
        found = self._known.get(id_)
        if found is None:
            found = await self._get_channel(id_)
            if len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            self._known[id_] = found
        return found


def address_of(channel: Channel) -> ChatAddress:
    """Return the address of a channel; a thread is part of its parent's address."""
    if channel.is_thread and channel.parent_id:
        return ChatAddress(NAME, channel.parent_id, channel.id)
    return ChatAddress(NAME, channel.id)


def channel_of(address: ChatAddress) -> str:
    """Return the channel of an address; a thread is itself a channel."""
    return address.thread or address.chat
