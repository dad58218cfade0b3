"""Telegram as a chat platform."""

import hmac
import re
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import attrs
import httpx2
import msgspec
import trio

from orchestrator.agents import DefinitionError
from orchestrator.products.chat import platform
from orchestrator.products.chat.chat_address import ChatAddress
from orchestrator.products.chat.errors import ChatError, GoneError, RefusedError, RevokedError
from orchestrator.products.chat.telegram.api import ADDRESS, NAME, TelegramApi
from orchestrator.products.chat.telegram.long_poll import find_bot, parse_update, poll_forever
from orchestrator.products.chat.telegram.markup import marked, split_markdown
from orchestrator.products.chat.telegram.updates import KINDS, User, event_of
from orchestrator.products.chat.troubles import Troubles

LARGEST_DOWNLOAD: Final = 20_000_000
LARGEST_UPLOAD: Final = 50_000_000
GROUP_MESSAGES: Final = 20
"""The messages per minute that a group accepts from one bot."""
MINUTE: Final = 60.0
LONGEST_NOTE: Final = 200
"""The most characters of the answer to a press."""
PATH: Final = "/telegram"
WEBHOOK_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")
SECRET_HEADER: Final = "x-telegram-bot-api-secret-token"  # noqa: S105 (the name of a header)


@attrs.frozen
class TelegramWebhook:
    """The webhook that Telegram calls, instead of polling."""

    url: str
    """The https URL that Telegram calls; it ends with `PATH`."""
    secret: str = attrs.field(repr=False)
    """The secret in each call of Telegram: 1 to 256 letters, digits, - and _."""

    def __attrs_post_init__(self) -> None:
        # Any person could call a webhook whose secret is empty.
        if WEBHOOK_SECRET.fullmatch(self.secret) is None:
            raise DefinitionError(
                "the secret of a Telegram webhook has 1 to 256 letters, digits, - and _"
            )


class Telegram:
    """One bot. `open_telegram` opens it."""

    name = NAME
    command_prefix = "/"
    largest_download = LARGEST_DOWNLOAD
    largest_upload = LARGEST_UPLOAD

    def __init__(self, api: TelegramApi, token: str, webhook: TelegramWebhook | None) -> None:
        self._api = api
        self._token = token
        self._webhook = webhook
        self._bot: User | None = None
        self._sent: dict[str, deque[float]] = {}
        """The times of the last messages to each group."""

    @property
    def secrets(self) -> Sequence[str]:
        """The token, and the secret of the webhook."""
        webhook = self._webhook
        return (self._token,) if webhook is None else (self._token, webhook.secret)

    async def run(self, inbox: platform.Inbox) -> None:
        """Hear updates until this is cancelled, or register the webhook."""
        troubles = Troubles(inbox, NAME)
        bot = self._bot = await find_bot(self._api, troubles)
        if self._webhook is None:
            await poll_forever(self._api, bot, inbox, troubles)
        while True:
            try:
                await self._api.call(
                    "setWebhook",
                    {
                        "url": self._webhook.url,
                        "secret_token": self._webhook.secret,
                        "allowed_updates": KINDS,
                    },
                )
                break
            except RevokedError:
                raise
            except ChatError as exc:
                await troubles.pause(exc)
        troubles.over()

    def webhooks(self, inbox: platform.Inbox) -> Mapping[str, platform.Webhook]:
        """Return the handler of Telegram's calls, if there is a webhook."""
        if self._webhook is None:
            return {}
        secret = self._webhook.secret.encode()

        async def take(call: platform.WebhookCall) -> platform.WebhookAnswer:
            await trio.lowlevel.checkpoint()
            shown = call.headers.get(SECRET_HEADER, "").encode(errors="replace")
            if not hmac.compare_digest(shown, secret):
                return platform.WebhookAnswer(401)
            try:
                found = msgspec.json.decode(call.body)
            except (msgspec.DecodeError, RecursionError):
                return platform.WebhookAnswer(400)
            if self._bot is None:
                # The bot does not know its own name yet; Telegram calls again.
                return platform.WebhookAnswer(503)
            update = parse_update(found, inbox)
            event = None if update is None else event_of(update, self._bot)
            if event is not None:
                await inbox.receive(event)
            return platform.WebhookAnswer()

        return {PATH: take}

    def split(self, text: str) -> Sequence[platform.TextPart]:
        """Return a Markdown text as messages with entities."""
        return split_markdown(text)

    async def send(
        self,
        address: ChatAddress,
        part: platform.TextPart,
        *,
        key: str,
        anchor: str = "",
        mark: str = "",
    ) -> platform.Sent:
        """Send one message; leave out the topic, anchor or formatting if Telegram refuses it."""
        del key  # Telegram has no such key.
        shown = marked(part, mark)
        fields = {"text": shown.text, "entities": shown.formatting or None}
        return await self._post("sendMessage", address, fields, anchor=anchor)

    def address_of_answers(self, address: ChatAddress, message: str) -> ChatAddress:
        """Return the same address: people answer where they read."""
        del message
        return address

    async def send_buttons(
        self,
        address: ChatAddress,
        text: str,
        buttons: Sequence[platform.Button],
        *,
        key: str,
        anchor: str = "",
    ) -> platform.Sent:
        """Send a message with buttons, two in a row."""
        del key
        keys = [{"text": it.text, "callback_data": it.data} for it in buttons]
        rows = [keys[at : at + 2] for at in range(0, len(keys), 2)]
        fields = {"text": text, "reply_markup": {"inline_keyboard": rows}}
        return await self._post("sendMessage", address, fields, anchor=anchor)

    async def close_buttons(self, address: ChatAddress, message: str, text: str) -> None:
        """Replace the text of a message, and remove its buttons."""
        await trio.lowlevel.checkpoint()
        fields = {"chat_id": _chat(address), "message_id": int(message), "text": text}
        # The message has this text already, or it was deleted.
        with suppress(RefusedError):
            await self._api.call("editMessageText", fields)

    async def answer_press(self, press: platform.ButtonPress, text: str) -> None:
        """Show a line to the person who has pressed a button."""
        await trio.lowlevel.checkpoint()
        fields = {"callback_query_id": press.answer, "text": text[:LONGEST_NOTE]}
        # A press can be answered only for a short time.
        with suppress(RefusedError):
            await self._api.call("answerCallbackQuery", fields)

    async def show_typing(self, address: ChatAddress) -> None:
        """Show for five seconds that an answer is being written."""
        await self._api.call(
            "sendChatAction",
            {"chat_id": _chat(address), "message_thread_id": _thread(address), "action": "typing"},
        )

    async def download(self, attachment: platform.Attachment) -> bytes:
        """Fetch a file."""
        try:
            found = await self._api.call("getFile", {"file_id": attachment.reference})
        except RefusedError as exc:
            raise GoneError(str(exc)) from exc
        path = found.get("file_path")
        if not path:
            raise GoneError("Telegram does not let us fetch it")
        return await self._api.fetch(path, self.largest_download)

    async def send_file(
        self, address: ChatAddress, name: str, content: bytes, *, key: str, anchor: str = ""
    ) -> platform.Sent:
        """Send a file."""
        del key
        return await self._post(
            "sendDocument", address, {}, anchor=anchor, files={"document": (name, content)}
        )

    async def _post(
        self,
        method: str,
        address: ChatAddress,
        fields: Mapping[str, Any],
        *,
        anchor: str,
        files: Mapping[str, tuple[str, bytes]] | None = None,
    ) -> platform.Sent:
        """Send a message, and leave out each field that Telegram refuses."""
        given: dict[str, Any] = {
            **fields,
            "chat_id": _chat(address),
            "message_thread_id": _thread(address),
            # Telegram itself leaves out a deleted anchor.
            "reply_parameters": {"message_id": int(anchor), "allow_sending_without_reply": True}
            if anchor
            else None,
        }
        left_out: list[str] = []
        while True:
            await self._wait_group(address.chat)
            try:
                sent = await self._api.call(method, given, files=files)
            except RefusedError as exc:
                refused = _refused_field(str(exc), given)
                if not refused:
                    raise
                given[refused] = None
                left_out.append(f"without {refused}")
                continue
            return platform.Sent(str(sent["message_id"]), ", ".join(left_out))

    async def _wait_group(self, chat: str) -> None:
        """Wait until a group accepts another message."""
        await trio.lowlevel.checkpoint()
        if not chat.startswith(("-", "@")):
            return
        times = self._sent.setdefault(chat, deque(maxlen=GROUP_MESSAGES))
        if len(times) == GROUP_MESSAGES:
            await trio.sleep_until(times[0] + MINUTE)
        times.append(trio.current_time())


def _chat(address: ChatAddress) -> int | str:
    return address.chat if address.chat.startswith("@") else int(address.chat)


def _thread(address: ChatAddress) -> int | None:
    return int(address.thread) if address.thread else None


def _refused_field(said: str, given: Mapping[str, Any]) -> str:
    """Return the optional field that a refusal is about, or ""."""
    words = said.lower()
    of_words = {
        "message_thread_id": ("thread not found", "topic_closed", "topic_deleted"),
        "reply_parameters": ("repl", "quote"),
        "entities": ("parse", "entit"),
    }
    for field, signs in of_words.items():
        if given.get(field) is not None and any(it in words for it in signs):
            return field
    return ""


@asynccontextmanager
async def open_telegram(
    token: str, *, webhook: TelegramWebhook | None = None, address: str = ADDRESS
) -> AsyncGenerator[Telegram]:
    """Connect to Telegram as a bot for the duration of the block.

    Args:
        token: the token of the bot.
        webhook: the webhook that Telegram calls; by default the bot polls.
        address: the URL of another Bot API server.
    """
    async with httpx2.AsyncClient() as client:
        yield Telegram(TelegramApi(client, token, address=address), token, webhook)
