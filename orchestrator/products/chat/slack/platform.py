"""Slack as a chat platform: it hears by the Events API or Socket Mode, and sends by the Web API.

A conversation in a channel has a thread; a direct message is itself the conversation. An event is
acknowledged when it was heard. Slack allows message keys only to its own clients, so a message
whose answer was lost is sent again, and marked.
"""

import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeVar

import trio

from orchestrator.agents import raising_one_error
from orchestrator.products.chat import errors
from orchestrator.products.chat.chat_address import ChatAddress
from orchestrator.products.chat.markdown import Piece, Run
from orchestrator.products.chat.platform import (
    Attachment,
    Button,
    ButtonPress,
    Inbox,
    Sent,
    TextPart,
    Webhook,
    WebhookAnswer,
    WebhookCall,
)
from orchestrator.products.chat.slack.answers import Answer, File, FileInfo, Posted
from orchestrator.products.chat.slack.api import (
    API_URL,
    FileTooLargeError,
    SlackApi,
    SlackRefusedError,
    SlackUnreachableError,
    open_slack_api,
)
from orchestrator.products.chat.slack.events import PLATFORM, escaped
from orchestrator.products.chat.slack.inbound import Inbound
from orchestrator.products.chat.slack.rich_text import RichText, rich_texts
from orchestrator.products.chat.slack.socket_mode import SocketMode
from orchestrator.products.chat.troubles import Troubles

T = TypeVar("T")

LARGEST_FILE: Final = 50_000_000
"""The largest file: Slack accepts a gigabyte, but the file must fit into memory."""
STATUS_SECONDS: Final = 2
LONGEST_SECTION: Final = 3_000
LONGEST_LABEL: Final = 75
STATUS: Final = "is working…"
PATH: Final = "/slack"

REVOKED: Final = frozenset(
    {"account_inactive", "invalid_auth", "not_authed", "token_expired", "token_revoked"}
)
GONE: Final = frozenset(
    {
        "cannot_dm_bot",
        "channel_not_found",
        "channel_type_not_supported",
        "is_archived",
        "messages_tab_disabled",
        "not_in_channel",
        "restricted_action",
        "restricted_action_read_only_channel",
        "user_disabled",
        "user_not_found",
        "user_not_in_channel",
    }
)
NO_THREAD: Final = frozenset(
    {
        "cannot_reply_to_message",
        "invalid_thread_ts",
        "restricted_action_non_threadable_channel",
        "restricted_action_thread_locked",
        "thread_not_found",
    }
)
NO_BLOCKS: Final = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long"})
MENDABLE: Final = frozenset(
    {"accesslimited", "missing_scope", "no_permission", "team_access_not_granted"}
)
"""The problems that people can fix: the message is sent after they have."""
NO_MESSAGE: Final = frozenset({"cant_update_message", "message_not_found"})


class SlackPlatform:
    """One Slack workspace."""

    name = PLATFORM
    command_prefix = "!"
    """The sign before a command; Slack reserves the slash for its own commands."""
    largest_download = LARGEST_FILE
    largest_upload = LARGEST_FILE

    def __init__(
        self,
        api: SlackApi,
        inbound: Inbound,
        *,
        secrets: Sequence[str],
        has_requests: bool,
        has_socket: bool,
    ) -> None:
        """Set up without a connection; events come by the Events API, by Socket Mode, or both."""
        self._api = api
        self.secrets = secrets
        self._inbound = inbound
        self._has_requests = has_requests
        self._has_socket = has_socket
        self._has_status = True
        self._directs: dict[str, str] = {}
        """The direct-message channels of users who were addressed by their ids."""

    async def run(self, inbox: Inbox) -> None:
        """Look up the bot's identity, then hear events until Slack revokes the token."""
        await self._inbound.identify(inbox)
        with raising_one_error():
            # Owns the connections of Socket Mode, and the task that reads the history.
            async with trio.open_nursery() as nursery:

                def read_missed() -> None:
                    nursery.start_soon(self._inbound.read_missed, inbox)

                if self._has_socket:
                    nursery.start_soon(self._run_sockets, inbox, read_missed)
                else:
                    read_missed()
                await self._inbound.wait_removed()

    async def _run_sockets(self, inbox: Inbox, note_gap: Callable[[], None]) -> None:
        async def hear(kind: str, payload: bytes) -> None:
            await self._inbound.hear(kind, payload, inbox)

        troubles = Troubles(inbox, PLATFORM)
        try:
            await SocketMode(self._api, hear, troubles, note_gap).run()
        except SlackRefusedError as exc:
            raise errors.RevokedError(str(exc)) from exc

    def webhooks(self, inbox: Inbox) -> Mapping[str, Webhook]:
        """Return the handlers of requests from the Events API and from buttons."""
        if not self._has_requests:
            return {}

        async def answer(call: WebhookCall) -> WebhookAnswer:
            return await self._inbound.answer(call, inbox)

        return {PATH: answer}

    def split(self, text: str) -> Sequence[TextPart]:
        """Return a Markdown text as messages of rich text."""
        return [TextPart(it.plain, it) for it in rich_texts(text)]

    async def send(
        self, address: ChatAddress, part: TextPart, *, key: str, anchor: str = "", mark: str = ""
    ) -> Sent:
        """Send one message to a chat or a thread; the thread shows which message it answers."""
        del key, anchor
        rich = part.formatting
        if not isinstance(rich, RichText):
            rich = RichText((Piece("section", (Run(part.text),)),))
        if mark:
            first = Piece("section", (Run(mark, frozenset({"italic"})),))
            rich = RichText((first, *rich.pieces))
        with _translating():
            return await self._post(address, rich.plain, [rich.block()])

    def address_of_answers(self, address: ChatAddress, message: str) -> ChatAddress:
        """Return the thread below a message of a channel; in a direct message, the same address."""
        chat = self._directs.get(address.chat, address.chat)
        is_direct = chat.startswith("D")
        return ChatAddress(PLATFORM, chat, address.thread or ("" if is_direct else message))

    async def send_buttons(
        self,
        address: ChatAddress,
        text: str,
        buttons: Sequence[Button],
        *,
        key: str,
        anchor: str = "",
    ) -> Sent:
        """Send a message with buttons."""
        del key, anchor
        elements = [
            {
                "type": "button",
                "action_id": f"button-{at}",
                "text": _plain_text(button.text[:LONGEST_LABEL]),
                "value": button.data,
            }
            for at, button in enumerate(buttons)
        ]
        actions = {"type": "actions", "elements": elements}
        with _translating():
            return await self._post(address, text, [*_sections(text), actions])

    async def close_buttons(self, address: ChatAddress, message: str, text: str) -> None:
        """Replace the text of a message, and remove its buttons."""
        await trio.lowlevel.checkpoint()
        with _translating():
            try:
                await self._api.call(
                    "chat.update",
                    Answer,
                    channel=address.chat,
                    ts=message,
                    text=escaped(text),
                    blocks=_sections(text),
                )
            except SlackRefusedError as exc:
                if exc.code not in NO_MESSAGE:
                    raise

    async def answer_press(self, press: ButtonPress, text: str) -> None:
        """Tell the result of a press to the person who pressed."""
        with _translating():
            await self._api.call(
                "chat.postEphemeral",
                Answer,
                channel=press.address.chat,
                user=press.user.id,
                text=escaped(text),
                thread_ts=press.address.thread or None,
            )

    async def show_typing(self, address: ChatAddress) -> None:
        """Show a status in a thread, until the next message; Slack has no status elsewhere."""
        await trio.lowlevel.checkpoint()
        if not (address.thread and self._has_status):
            return
        with trio.move_on_after(STATUS_SECONDS), suppress(errors.ChatError):
            await trio.lowlevel.checkpoint()
            try:
                await self._api.call(
                    "assistant.threads.setStatus",
                    Answer,
                    channel_id=address.chat,
                    thread_ts=address.thread,
                    status=STATUS,
                )
            except SlackRefusedError as exc:
                # If the app may not show a status, do not try again.
                self._has_status = exc.code in GONE | NO_THREAD

    async def download(self, attachment: Attachment) -> bytes:
        """Fetch a file, with a fresh URL from Slack."""
        with _translating():
            try:
                file = await self._find_file(attachment)
                url = file.url_private_download or file.url_private
                return await self._api.download(url, most=LARGEST_FILE)
            except SlackRefusedError as exc:
                if exc.code in REVOKED:
                    raise
                raise errors.GoneError(str(exc)) from exc

    async def _find_file(self, attachment: Attachment) -> File:
        found = await self._api.call("files.info", FileInfo, file=attachment.reference)
        if found.file.is_external:
            raise errors.GoneError(f"{attachment.name!r} is not kept at Slack")
        return found.file

    async def send_file(
        self, address: ChatAddress, name: str, content: bytes, *, key: str, anchor: str = ""
    ) -> Sent:
        """Send a file to a chat or a thread. People see it when its upload is completed."""
        del key, anchor
        with _translating(is_sent=False):
            file = await self._api.upload(name, content)
        with _translating():
            _, changed = await self._call_with_less(
                "files.completeUploadExternal",
                Answer,
                files=[{"id": file, "title": name}],
                channel_id=address.chat,
                thread_ts=address.thread or None,
            )
        return Sent(file, changed)

    async def _post(self, address: ChatAddress, text: str, blocks: list[dict[str, Any]]) -> Sent:
        answer, changed = await self._call_with_less(
            "chat.postMessage",
            Posted,
            channel=address.chat,
            text=escaped(text),
            blocks=blocks,
            thread_ts=address.thread or None,
            # Slack fetches previewed pages: a model could leak secrets in a URL.
            unfurl_links=False,
            unfurl_media=False,
        )
        if answer.channel != address.chat:
            self._directs[address.chat] = answer.channel
        return Sent(answer.ts, changed)

    async def _call_with_less(self, method: str, into: type[T], **arguments: Any) -> tuple[T, str]:
        """Call a method without the arguments that Slack refuses; also return the omitted parts."""
        left_out: list[str] = []
        while True:
            await trio.lowlevel.checkpoint()
            try:
                answer = await self._api.call(method, into, **arguments)
            except SlackRefusedError as exc:
                if exc.code in NO_BLOCKS and arguments.pop("blocks", None):
                    left_out.append("the formatting")
                elif exc.code in NO_THREAD and arguments.pop("thread_ts", None):
                    left_out.append("the thread")
                else:
                    raise
            else:
                return answer, " and ".join(left_out)


@asynccontextmanager
async def open_slack(
    token: str,
    *,
    app_token: str = "",
    signing_secret: str = "",
    url: str = API_URL,
    now: Callable[[], float] = time.time,
) -> AsyncGenerator[SlackPlatform]:
    """Connect to a Slack workspace for the duration of the block.

    Args:
        token: the token of the bot (`xoxb-…`).
        app_token: the token of the app (`xapp-…`): events come by Socket Mode.
        signing_secret: the secret of the app that signs requests: events come by the Events API.
        url: the URL of Slack's methods.
        now: returns the time of day.
    """
    async with open_slack_api(token, app_token=app_token, url=url) as api:
        yield SlackPlatform(
            api,
            Inbound(api, signing_secret=signing_secret, now=now),
            secrets=[it for it in (token, app_token, signing_secret) if it],
            has_requests=bool(signing_secret),
            has_socket=bool(app_token),
        )


@contextmanager
def _translating(*, is_sent: bool = True) -> Generator[None]:
    """Translate Slack's errors. With `is_sent=False`, no message was shown so far."""
    try:
        yield
    except SlackRefusedError as exc:
        if exc.code in REVOKED:
            raise errors.RevokedError(str(exc)) from exc
        if exc.code in GONE:
            raise errors.GoneError(str(exc)) from exc
        if exc.code in MENDABLE:
            raise errors.NotSentError(str(exc)) from exc
        raise errors.RefusedError(str(exc)) from exc
    except FileTooLargeError as exc:
        raise errors.GoneError(str(exc)) from exc
    except SlackUnreachableError as exc:
        if is_sent and exc.is_sent:
            raise
        raise errors.NotSentError(str(exc)) from exc


def _sections(text: str) -> list[dict[str, Any]]:
    """Return a plain text as blocks."""
    pieces = [text[at : at + LONGEST_SECTION] for at in range(0, len(text), LONGEST_SECTION)]
    return [{"type": "section", "text": _plain_text(piece)} for piece in pieces]


def _plain_text(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}
