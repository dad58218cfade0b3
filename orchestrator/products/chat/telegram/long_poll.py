"""Long polling: hears updates, and moves the offset when all earlier updates are durable.

A temporary fault never ends it: each trouble is reported once, and retried with pauses.
"""

from collections.abc import Sequence
from typing import Final, NoReturn

import msgspec
import trio

from orchestrator.agents import raising_one_error
from orchestrator.products.chat.errors import ChatError, RevokedError
from orchestrator.products.chat.platform import Inbox
from orchestrator.products.chat.telegram.api import NAME, ConflictError, TelegramApi
from orchestrator.products.chat.telegram.updates import KINDS, Update, User, event_of
from orchestrator.products.chat.troubles import Troubles

WAIT_SECONDS: Final = 50
"""The seconds that Telegram waits for the next update before it returns an empty answer."""


async def find_bot(api: TelegramApi, troubles: Troubles) -> User:
    """Return the bot's account when Telegram answers; raise `RevokedError` for a wrong token."""
    while True:
        try:
            found = await api.call("getMe", {})
        except RevokedError:
            raise
        except ChatError as exc:
            await troubles.pause(exc)
        else:
            troubles.over()
            return msgspec.convert(found, User)


async def poll_forever(api: TelegramApi, bot: User, inbox: Inbox, troubles: Troubles) -> NoReturn:
    """Hear updates: in order within a chat, concurrently across chats."""
    offset: int | None = None
    while True:
        try:
            if offset is None:
                # A registered webhook would receive all updates. Waiting updates are kept.
                await api.call("deleteWebhook", {})
            found = await api.call(
                "getUpdates",
                {"offset": offset, "timeout": WAIT_SECONDS, "allowed_updates": KINDS},
                wait=WAIT_SECONDS,
            )
        except RevokedError:
            raise
        except ConflictError as exc:
            await troubles.pause(ConflictError(f"{exc}. Does another process poll?"))
        except ChatError as exc:
            await troubles.pause(exc)
        else:
            troubles.over()
            offset = offset or 0
            if found:
                await _take(found, bot, inbox)
                offset = max(it["update_id"] for it in found) + 1


async def _take(found: Sequence[object], bot: User, inbox: Inbox) -> None:
    by_chat: dict[int, list[Update]] = {}
    for it in found:
        update = parse_update(it, inbox)
        if update is not None:
            by_chat.setdefault(update.chat, []).append(update)
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            for updates in by_chat.values():
                nursery.start_soon(_take_in_order, updates, bot, inbox)


async def _take_in_order(updates: Sequence[Update], bot: User, inbox: Inbox) -> None:
    for update in updates:
        event = event_of(update, bot)
        if event is not None:
            await inbox.receive(event)
    await trio.lowlevel.checkpoint()


def parse_update(found: object, inbox: Inbox) -> Update | None:
    """Return an update; None, with a report, if its form is unknown."""
    try:
        return msgspec.convert(found, Update)
    except msgspec.ValidationError as exc:
        inbox.report(f"{NAME}: an update was passed over: {exc}")
        return None
