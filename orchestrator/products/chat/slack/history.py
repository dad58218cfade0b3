"""Reads missed messages at the addresses with sessions.

Slack repeats a message only for some minutes. So after a start, and after a lost connection, the
history of these addresses is read from the last message that was heard; a message that Slack also
repeats is heard once.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import msgspec
import trio

from orchestrator.products.chat.chat_address import ChatAddress
from orchestrator.products.chat.errors import ChatError, RetryAfterError
from orchestrator.products.chat.platform import Inbox
from orchestrator.products.chat.slack.api import SlackApi, SlackRefusedError
from orchestrator.products.chat.slack.events import PLATFORM, SlackMessage

MOST_MESSAGES: Final = 200
"""The most messages that are read of an address."""
OLDEST_DAYS: Final = 7
"""The days of silence after which the history of an address is not read."""
DAY: Final = 86_400
GONE: Final = frozenset({"channel_not_found", "is_archived", "not_in_channel", "thread_not_found"})
"""The errors of a channel where the bot cannot have missed a message."""

Hear: TypeAlias = Callable[[SlackMessage], Awaitable[None]]


class MessageList(msgspec.Struct, frozen=True):
    """The answer of `conversations.history` and `conversations.replies`."""

    messages: list[SlackMessage] = []
    has_more: bool = False


async def read_missed(api: SlackApi, inbox: Inbox, hear: Hear, *, now: float) -> None:
    """Hear the messages after the last one that was heard at each address."""
    for address, anchor in (await inbox.last_anchors()).items():
        if address.platform != PLATFORM or _is_old(anchor, now):
            continue
        try:
            found = await _messages_after(api, address, anchor)
        except ChatError as exc:
            inbox.report(f"{address}: what was said meanwhile is not known: {exc}")
            continue
        if found.has_more:
            inbox.report(f"{address}: only {MOST_MESSAGES} messages were read again")
        for told in sorted(found.messages, key=lambda it: it.ts):
            if told.ts > anchor:
                await hear(msgspec.structs.replace(told, channel=address.chat))
    await trio.lowlevel.checkpoint()


async def _messages_after(api: SlackApi, address: ChatAddress, anchor: str) -> MessageList:
    method = "conversations.replies" if address.thread else "conversations.history"
    arguments: dict[str, Any] = {
        "channel": address.chat,
        "ts": address.thread or None,
        "oldest": anchor,
        "limit": MOST_MESSAGES,
    }
    while True:
        await trio.lowlevel.checkpoint()
        try:
            return await api.call(method, MessageList, **arguments)
        except RetryAfterError as exc:
            await trio.sleep(exc.seconds)
        except SlackRefusedError as exc:
            if exc.code not in GONE:
                raise
            return MessageList()


def _is_old(anchor: str, now: float) -> bool:
    try:
        return float(anchor) < now - OLDEST_DAYS * DAY
    except ValueError:
        return True
