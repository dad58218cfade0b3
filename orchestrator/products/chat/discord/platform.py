"""Discord as a chat platform.

A channel of a server, its threads and a private chat each have an address. A sent text pings no
person. It is sent once, since for some minutes Discord makes no second message with the same key.
"""

import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import trio

from orchestrator.products.chat.chat_address import ChatAddress
from orchestrator.products.chat.discord.api import (
    API,
    FILE_HOSTS,
    DiscordApi,
    DiscordRefusedError,
    OutgoingFile,
    UnreachableError,
)
from orchestrator.products.chat.discord.channels import NAME, channel_of
from orchestrator.products.chat.discord.events import COMMAND_PREFIX, Events
from orchestrator.products.chat.discord.gateway import Gateway
from orchestrator.products.chat.discord.markup import plain, split
from orchestrator.products.chat.discord.presses import Presses
from orchestrator.products.chat.discord.session_file import SessionFile
from orchestrator.products.chat.errors import ChatError, GoneError
from orchestrator.products.chat.platform import (
    Attachment,
    Button,
    ButtonPress,
    Inbox,
    Sent,
    TextPart,
    Webhook,
)
from orchestrator.products.chat.troubles import Troubles

LARGEST_DOWNLOAD: Final = 20_000_000
LARGEST_UPLOAD: Final = 10 * 1024 * 1024
"""The largest file that Discord accepts from a bot, unless people pay for more."""
TYPING_SECONDS: Final = 5
RETRY_PAUSES: Final = (1.0, 4.0)
"""The pauses before a message is sent again whose answer was lost."""
BUTTONS_IN_ROW: Final = 5
LONGEST_LABEL: Final = 80
NO_CHANNEL: Final = 10_003
BAD_FORM: Final = 50_035
NO_HISTORY: Final = 160_002
"""The bot may not read the message that it replies to."""
LOCKED: Final = frozenset({50_083, 160_005})
"""The thread is archived or locked, and the bot may not open it."""


class DiscordPlatform:
    """One bot on Discord. `open_discord` opens it."""

    name = NAME
    command_prefix = COMMAND_PREFIX
    largest_download = LARGEST_DOWNLOAD
    largest_upload = LARGEST_UPLOAD

    def __init__(
        self,
        api: DiscordApi,
        token: str,
        *,
        session_file: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Set up without a connection; by its file, the next process hears missed messages."""
        self._session_file = session_file
        self._api = api
        self._token = token
        self._clock = clock
        self._presses = Presses(api)

    @property
    def secrets(self) -> Sequence[str]:
        return (self._token,)

    async def run(self, inbox: Inbox) -> None:
        """Hear events until this is cancelled."""
        troubles = Troubles(inbox, NAME)
        file = SessionFile(self._session_file, inbox.report)
        gateway = Gateway(
            self._token, self._api.get_gateway, troubles, file, is_encrypted=self._api.is_encrypted
        )
        me = gateway.session.bot if gateway.session else ""
        events = Events(self._api, self._presses, inbox, me, clock=self._clock)
        await gateway.run(events)

    def webhooks(self, inbox: Inbox) -> Mapping[str, Webhook]:
        del inbox
        return {}

    def split(self, text: str) -> Sequence[TextPart]:
        return [TextPart(it) for it in split(text)]

    async def send(
        self, address: ChatAddress, part: TextPart, *, key: str, anchor: str = "", mark: str = ""
    ) -> Sent:
        text = f"{mark}\n{part.text}" if mark else part.text
        return await self._send(address, text, key=key, anchor=anchor)

    def address_of_answers(self, address: ChatAddress, message: str) -> ChatAddress:
        """Return the same address: people answer where they read."""
        del message
        return address

    async def send_buttons(
        self,
        address: ChatAddress,
        text: str,
        buttons: Sequence[Button],
        *,
        key: str,
        anchor: str = "",
    ) -> Sent:
        rows = _rows(buttons)
        return await self._send(address, plain(text), key=key, anchor=anchor, components=rows)

    async def close_buttons(self, address: ChatAddress, message: str, text: str) -> None:
        with _gone_chats():
            await self._api.close_message(channel_of(address), message, plain(text))

    async def answer_press(self, press: ButtonPress, text: str) -> None:
        await self._presses.answer(press, text)

    async def show_typing(self, address: ChatAddress) -> None:
        await trio.lowlevel.checkpoint()
        with suppress(ChatError), trio.move_on_after(TYPING_SECONDS):
            await self._api.show_typing(channel_of(address))

    async def download(self, attachment: Attachment) -> bytes:
        return await self._api.download(attachment.reference, most=LARGEST_DOWNLOAD)

    async def send_file(
        self, address: ChatAddress, name: str, content: bytes, *, key: str, anchor: str = ""
    ) -> Sent:
        file = OutgoingFile(name, content)
        return await self._send(address, "", key=key, anchor=anchor, file=file)

    async def _send(
        self, address: ChatAddress, text: str, *, key: str, anchor: str, **more: Any
    ) -> Sent:
        async def send(channel: str, reply_to: str = "") -> str:
            create = partial(
                self._api.create_message,
                channel,
                content=text,
                nonce=_nonce(key),
                reply_to=reply_to,
                **more,
            )
            for pause in RETRY_PAUSES:
                with suppress(UnreachableError):
                    return await create()
                # Discord recognizes the message by its nonce, and makes no second one.
                await trio.sleep(pause)
            return await create()

        with _gone_chats():
            try:
                return Sent(await send(channel_of(address), anchor))
            except DiscordRefusedError as exc:
                refused = exc
            if address.thread and refused.code == NO_CHANNEL:
                # The thread's channel may still exist.
                return Sent(await send(address.chat), changed="the thread")
            if anchor and refused.code in {BAD_FORM, NO_HISTORY}:
                return Sent(await send(channel_of(address)), changed="the anchor")
            raise refused


@asynccontextmanager
async def open_discord(
    token: str,
    *,
    session_file: Path | None = None,
    url: str = API,
    clock: Callable[[], float] = time.time,
) -> AsyncGenerator[DiscordPlatform]:
    """Connect to Discord as a bot for the duration of the block.

    Args:
        token: the bot's token.
        session_file: lets the next process hear the messages in between, if it starts within
            minutes; its only secret is the name of the session.
        url: the URL of Discord's API. If its host is not Discord's, files of messages may be there
            too.
        clock: returns the time of day.
    """
    hosts = FILE_HOSTS if url == API else FILE_HOSTS | {urlsplit(url).hostname or ""}
    async with httpx2.AsyncClient(timeout=None) as client:
        api = DiscordApi(client, token, url=url, file_hosts=hosts)
        yield DiscordPlatform(api, token, session_file=session_file, clock=clock)


@contextmanager
def _gone_chats() -> Generator[None]:
    """Raise `GoneError` if Discord says that the bot cannot reach the chat."""
    try:
        yield
    except DiscordRefusedError as exc:
        # An answer without a code comes from a proxy, not from Discord.
        if exc.code and (exc.status in {403, 404} or exc.code in LOCKED):
            raise GoneError(str(exc)) from exc
        raise


def _nonce(key: str) -> str:
    """Return the nonce that identifies a message for Discord: at most 25 characters."""
    return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


def _rows(buttons: Sequence[Button]) -> list[Mapping[str, Any]]:
    shown = [
        {"type": 2, "style": 2, "label": it.text[:LONGEST_LABEL], "custom_id": it.data}
        for it in buttons
    ]
    return [
        {"type": 1, "components": shown[start : start + BUTTONS_IN_ROW]}
        for start in range(0, len(shown), BUTTONS_IN_ROW)
    ]
