"""The channels that the bot has met: which are threads, and of which channel.

Discord says that of a channel, not of its messages. It never changes, so each is asked for once.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from orchestrator.products.chat.chat_address import ChatAddress
from orchestrator.products.chat.discord.objects import Channel

MOST: Final = 10_000
"""Above it the one that was met first is forgotten: asking again is cheap."""
NAME: Final = "discord"


class Channels:
    """What is known of channels."""

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
    """Return the address of a channel; a thread is one of its channel."""
    if channel.is_thread and channel.parent_id:
        return ChatAddress(NAME, channel.parent_id, channel.id)
    return ChatAddress(NAME, channel.id)


def channel_of(address: ChatAddress) -> str:
    """Return the channel in which an address is: a thread is a channel itself."""
    return address.thread or address.chat
