"""A workspace of Slack on loopback: the Web API, files, the Events API and Socket Mode.

It refuses what Slack refuses, signs what Slack signs, and sends again what is not acknowledged
within three seconds. Faults come on demand. What a bot does that Slack would let pass, and that is
wrong all the same, is in `violations`.
"""

import json
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal
from urllib.parse import parse_qs, urlencode, urlsplit

import attrs
import httpx2
import trio
import trio_websocket

from orchestrator.agents import raising_one_error
from orchestrator.products.chat.slack.signature import sign
from tests.chat.fakes.http import HangUpError, Request, Response, json_response, serve_http
from tests.chat.fakes.slack_blocks import BlockError, check_blocks
from tests.chat.fakes.slack_methods import METHODS, ArgumentError, read_arguments
from tests.server.kit import NO_CERTIFICATES

BOT_TOKEN = "xoxb-1-a-token-of-the-tests"
APP_TOKEN = "xapp-1-a-token-of-the-tests"
SIGNING_SECRET = "a-signing-secret-of-the-tests"
TEAM, APP, BOT_USER, BOT_ID, BOT_NAME = "T01", "A01", "U0BOT", "B01", "helper"
ADA, BOB = "U0ADA", "U0BOB"
GENERAL, DIRECT = "C0GENERAL", "D0ADA"
ACK_SECONDS = 3
RETRY_PAUSES = (0, 60, 300)
"""How long Slack waits before it sends an event for the second, third and fourth time."""
LONGEST_TEXT = 40_000


class RefusedError(Exception):
    """Slack says no."""

    def __init__(self, code: str, *messages: str) -> None:
        super().__init__(code)
        self.code = code
        self.messages = messages


@attrs.define(kw_only=True)
class Channel:
    """A channel, or a direct message."""

    id: str
    name: str
    members: set[str]
    is_archived: bool = False

    @property
    def kind(self) -> str:
        return "im" if self.id.startswith("D") else "channel"


@attrs.define(kw_only=True)
class Message:
    """A message of a channel."""

    channel: str
    ts: str
    user: str
    text: str = ""
    blocks: list[dict[str, Any]] = attrs.field(factory=list)
    thread_ts: str = ""
    is_bot: bool = False
    only_for: str = ""
    """The user who alone sees it."""
    files: list[str] = attrs.field(factory=list)

    @property
    def shown(self) -> str:
        """The text that people read."""
        return "".join(map(_shown, self.blocks)) or self.text

    @property
    def buttons(self) -> dict[str, dict[str, Any]]:
        """The buttons, by what is on them."""
        return {
            element["text"]["text"]: element
            for block in self.blocks
            if block["type"] == "actions"
            for element in block["elements"]
        }


@attrs.define(kw_only=True)
class File:
    """A file: uploaded, or about to be."""

    id: str
    name: str
    length: int
    media_type: str = "text/plain"
    content: bytes | None = None
    is_external: bool = False
    is_shared: bool = False


@attrs.define(kw_only=True)
class Fault:
    """The fault of calls of a method."""

    times: int
    status: int = 200
    error: str = ""
    retry_after: str = ""
    lost: Literal["", "before", "after"] = ""
    """Whether the connection is lost, before or after the call was done."""


@attrs.frozen
class Call:
    """A call that a bot has made."""

    method: str
    arguments: dict[str, Any]


@attrs.define
class _Socket:
    """A connection of Socket Mode."""

    socket: trio_websocket.WebSocketConnection
    is_open: bool = True


class FakeSlack:
    """The workspace: Ada and Bob, a channel, and the direct messages of Ada."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.origin = ""
        self.socket_url = ""
        self._nursery = nursery
        self.request_url = ""
        """Where events go; without one, to the sockets."""
        self.users = {ADA: "Ada", BOB: "Bob", BOT_USER: BOT_NAME}
        self.channels = {
            GENERAL: Channel(id=GENERAL, name="general", members={*self.users}),
            DIRECT: Channel(id=DIRECT, name="", members={ADA, BOT_USER}),
        }
        self.messages: list[Message] = []
        self.files: dict[str, File] = {}
        self.statuses: list[tuple[str, str, str]] = []
        self.calls: list[Call] = []
        self.violations: list[str] = []
        self.answers: list[tuple[int, str]] = []
        """The status of each answer to an event, and its body."""
        self.attempts: dict[str, int] = {}
        """How often each event was sent."""
        self.missing_scopes: set[str] = set()
        """The methods that the scopes of the bot do not cover."""
        self.reads_channels = True
        """Whether the bot has the scope channels:history: else it is told of mentions only."""
        self.is_revoked = False
        self.hides_files = False
        """Whether the bot may not read files."""
        self.sockets: list[_Socket] = []
        self.tickets: set[str] = set()
        self.sent = 0
        """How many envelopes were sent."""
        self._envelopes: set[str] = set()
        """Those that are not acknowledged."""
        self._faults: dict[str, list[Fault]] = {}
        self._limits: dict[str, float] = {}
        self._pending = 0
        self._last: list[tuple[str, dict[str, Any], str]] = []
        """The events of what was said last."""
        self._number = 0
        self._began = int(time.time())
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def api_url(self) -> str:
        return f"{self.origin}/api/"

    # What people do.

    def say(
        self,
        text: str,
        *,
        user: str = ADA,
        channel: str = DIRECT,
        thread_ts: str = "",
        ts: str = "",
        files: Sequence[File] = (),
        is_told: bool = True,
    ) -> Message:
        """Write a message, and tell the app of it, unless it is away: of a mention twice."""
        message = Message(
            channel=channel,
            ts=ts or self._new_ts(),
            user=user,
            text=text,
            thread_ts=thread_ts,
            files=[file.id for file in files],
        )
        self._keep(message)
        if not is_told:
            return message
        event = self._event_of(message)
        self._last.clear()
        if files:
            event |= {"subtype": "file_share", "upload": True}
            event["files"] = [self._file_of(file) for file in files]
        kind = self.channels[channel].kind
        is_mention = f"<@{BOT_USER}>" in text and kind != "im"
        if self.reads_channels or not is_mention:
            self.tell("message", **event, channel_type=kind)
        if is_mention:
            event.pop("subtype", None)
            self.tell("app_mention", **event)
        return message

    def say_again(self) -> None:
        """Tell the app once more of what was said last, as if it had not acknowledged that."""
        last, self._last = self._last, []
        for it in last:
            self._send(*it)

    def press(self, message: Message, label: str, *, user: str = ADA) -> None:
        """Press a button of a message."""
        button = message.buttons[label]
        container = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": message.channel,
            "is_ephemeral": False,
        }
        if message.thread_ts:
            container["thread_ts"] = message.thread_ts
        action = {key: button[key] for key in ("action_id", "text", "type", "value")}
        payload = {
            "type": "block_actions",
            "user": {"id": user, "name": self.users[user], "team_id": TEAM},
            "api_app_id": APP,
            "token": "legacy",
            "container": container,
            "trigger_id": "1.2.3",
            "team": {"id": TEAM, "domain": "tests"},
            "channel": {"id": message.channel, "name": "x"},
            "message": {"ts": message.ts, "text": message.text},
            "state": {"values": {}},
            "response_url": f"{self.origin}/actions/1",
            "actions": [{**action, "block_id": "b", "action_ts": self._new_ts()}],
        }
        self._send("interactive", payload, "")

    def tell(self, kind: str, **event: Any) -> str:
        """Tell the app of an event, and return the id of the event."""
        self._number += 1
        id_ = f"Ev{self._number:08}"
        payload = {
            "token": "legacy",
            "team_id": TEAM,
            "api_app_id": APP,
            "event": {"type": kind, **event, "event_ts": self._new_ts()},
            "type": "event_callback",
            "event_id": id_,
            "event_time": int(time.time()),
            "authorizations": [{"enterprise_id": None, "team_id": TEAM, "user_id": BOT_USER}],
            "is_ext_shared_channel": False,
            "event_context": "4-x",
        }
        self._send("events_api", payload, id_)
        return id_

    def add_file(self, name: str, content: bytes, **others: Any) -> File:
        """Return a file that a person can say something with."""
        self._number += 1
        file = File(
            id=f"F{self._number:08}", name=name, length=len(content), content=content, **others
        )
        self.files[file.id] = file
        return file

    # What goes wrong.

    def fail(self, method: str, *, times: int = 1, **fault: Any) -> None:
        """Let the next calls of a method go wrong: see `Fault`."""
        self._faults.setdefault(method, []).append(Fault(times=times, **fault))

    def limit(self, channel: str, seconds: float) -> None:
        """Take no message for a channel before some seconds have passed."""
        self._limits[channel] = trio.current_time() + seconds

    async def refresh_sockets(self, reason: str = "refresh_requested") -> None:
        """Tell each connection that another one is wanted."""
        for it in [*self.sockets]:
            text = {"type": "disconnect", "reason": reason, "debug_info": {}}
            await it.socket.send_message(json.dumps(text))
        await trio.lowlevel.checkpoint()

    async def close_sockets(self) -> None:
        """Close the connections that are open, as Slack does after a refresh."""
        for it in [*self.sockets]:
            await it.socket.aclose()
        await trio.lowlevel.checkpoint()

    def drop_sockets(self) -> None:
        """Lose the connections that are open: no closing handshake."""
        for it in [*self.sockets]:
            # Only so is it not closed in order.
            stream: Any = it.socket._stream
            stream.socket.close()

    def freeze_sockets(self) -> None:
        """Let the connections that are open read nothing any more, after what comes next."""
        for it in self.sockets:
            connection: Any = it.socket
            connection._stream = _SilentStream(connection._stream)

    # What tests wait for.

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        await trio.lowlevel.checkpoint()
        while not condition():
            await self._changed.park()

    async def wait_told(self) -> None:
        """Wait until each event is acknowledged, or given up."""
        await self.wait_for(lambda: not self._pending)

    def replies(self, channel: str = "", thread_ts: str | None = None) -> list[Message]:
        """Return what the bot has written, where all can see it."""
        return [
            it
            for it in self.messages
            if it.is_bot
            and not it.only_for
            and channel in {"", it.channel}
            and thread_ts in {None, it.thread_ts}
        ]

    # The Web API.

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        await trio.lowlevel.checkpoint()
        path, _, query = request.target.partition("?")
        try:
            if path.startswith("/api/"):
                name = path.removeprefix("/api/")
                return self._answer_call(name, request, query)
            if path.startswith("/upload/v1/"):
                return self._take_upload(path.rpartition("/")[2], request.body)
            if path.startswith("/files-pri/"):
                return self._give_file(path.split("/")[2], request)
            return Response(404)
        finally:
            self._changed.unpark_all()

    def _answer_call(self, name: str, request: Request, query: str) -> Response:
        fault = self._next_fault(name) or Fault(times=0)
        if fault.lost == "before":
            raise HangUpError
        if fault.status == 429:
            return _limited(fault.retry_after)
        if fault.status >= 500:
            return Response(fault.status, b"<html>something went wrong</html>")
        if fault.error:
            return json_response({"ok": False, "error": fault.error})
        try:
            answer = self._do(name, request, query)
        except _LimitedError as exc:
            return _limited(str(exc.seconds))
        except (RefusedError, ArgumentError, BlockError) as exc:
            answer = {"ok": False, "error": exc.code}
            if messages := getattr(exc, "messages", exc.args):
                answer["response_metadata"] = {"messages": [*messages]}
            if exc.code == "missing_scope":
                answer |= {"needed": "a:scope", "provided": "chat:write"}
        if fault.lost == "after":
            raise HangUpError
        return json_response(answer)

    def _next_fault(self, name: str) -> Fault | None:
        waiting = self._faults.get(name, [])
        if not waiting:
            return None
        waiting[0].times -= 1
        return waiting[0] if waiting[0].times else waiting.pop(0)

    def _do(self, name: str, request: Request, query: str) -> dict[str, Any]:
        method = METHODS.get(name)
        if method is None:
            raise RefusedError("unknown_method")
        self._check_token(request.headers, method.token)
        if name in self.missing_scopes:
            raise RefusedError("missing_scope")
        media_type = request.headers.get("content-type", "")
        arguments = read_arguments(method, media_type, query, request.body)
        self.calls.append(Call(name, arguments))
        done = getattr(self, "_" + name.replace(".", "_"))(**arguments)
        return {"ok": True, **done}

    def _check_token(self, headers: Mapping[str, str], prefix: str) -> None:
        kind, _, token = headers.get("authorization", "").partition(" ")
        if not prefix:
            return
        if kind != "Bearer" or not token:
            raise RefusedError("not_authed")
        if token not in {BOT_TOKEN, APP_TOKEN}:
            raise RefusedError("invalid_auth")
        if self.is_revoked:
            raise RefusedError("token_revoked")
        if not token.startswith(prefix):
            raise RefusedError("not_allowed_token_type")

    def _api_test(self, **arguments: Any) -> dict[str, Any]:
        return {"args": arguments}

    def _auth_test(self) -> dict[str, Any]:
        return {
            "url": "https://tests.slack.com/",
            "team": "tests",
            "user": BOT_NAME,
            "team_id": TEAM,
            "user_id": BOT_USER,
            "bot_id": BOT_ID,
            "is_enterprise_install": False,
        }

    def _apps_connections_open(self) -> dict[str, Any]:
        ticket = secrets.token_hex(8)
        self.tickets.add(ticket)
        return {"url": f"{self.socket_url}/link/?ticket={ticket}&app_id={APP}"}

    def _users_info(self, *, user: str, **_: Any) -> dict[str, Any]:
        if user not in self.users:
            raise RefusedError("user_not_found")
        name = self.users[user]
        profile = {"real_name": f"{name} of the tests", "display_name": name}
        return {"user": {"id": user, "name": name.lower(), "profile": profile}}

    def _conversations_info(self, *, channel: str, **_: Any) -> dict[str, Any]:
        found = self._channel(channel)
        return {"channel": {"id": found.id, "name": found.name}}

    def _conversations_history(
        self, *, channel: str, oldest: str = "0", limit: int = 100, **_: Any
    ) -> dict[str, Any]:
        """Return the newest messages beside threads, newest first."""
        self._channel(channel)
        found = [
            it
            for it in self.messages
            if it.channel == channel and not it.thread_ts and it.ts > oldest
        ]
        newest = [self._in_history(it) for it in reversed(found[-limit:])]
        return {"messages": newest, "has_more": len(found) > limit}

    def _conversations_replies(
        self, *, channel: str, ts: str, oldest: str = "0", limit: int = 1_000, **_: Any
    ) -> dict[str, Any]:
        """Return the first message of a thread, and its oldest replies."""
        self._channel(channel)
        root = self.find(channel, ts)
        if root is None:
            raise RefusedError("thread_not_found")
        found = [
            it
            for it in self.messages
            if (it.channel, it.thread_ts) == (channel, ts) and it.ts > oldest
        ]
        shown = [self._in_history(it) for it in (root, *found[:limit])]
        return {"messages": shown, "has_more": len(found) > limit}

    def _in_history(self, message: Message) -> dict[str, Any]:
        found = {"type": "message", **self._event_of(message)}
        del found["channel"]
        if any(it.thread_ts == message.ts for it in self.messages):
            found["thread_ts"] = message.ts
        if message.files:
            found["files"] = [self._file_of(self.files[it]) for it in message.files]
        return found

    def _chat_postMessage(self, *, channel: str, **arguments: Any) -> dict[str, Any]:  # noqa: N802
        where = self._writable(channel)
        message = Message(channel=where.id, ts=self._new_ts(), user=BOT_USER, is_bot=True)
        self._fill(message, arguments)
        self._require_thread(where, arguments)
        message.thread_ts = arguments.get("thread_ts", "")
        self._keep(message)
        return {
            "channel": where.id,
            "ts": message.ts,
            "message": self._event_of(message) | {"type": "message"},
        }

    def _chat_postEphemeral(  # noqa: N802
        self, *, channel: str, user: str, **arguments: Any
    ) -> dict[str, Any]:
        where = self._writable(channel)
        if user not in where.members:
            raise RefusedError("user_not_in_channel")
        message = Message(
            channel=where.id, ts=self._new_ts(), user=BOT_USER, is_bot=True, only_for=user
        )
        self._fill(message, arguments)
        message.thread_ts = arguments.get("thread_ts", "")
        self._keep(message)
        return {"message_ts": message.ts}

    def _chat_update(self, *, channel: str, ts: str, **arguments: Any) -> dict[str, Any]:
        self._channel(channel)
        message = self.find(channel, ts)
        if message is None:
            raise RefusedError("message_not_found")
        if not message.is_bot or message.only_for:
            raise RefusedError("cant_update_message")
        self._fill(message, arguments)
        return {"channel": channel, "ts": ts, "text": message.text}

    def _assistant_threads_setStatus(  # noqa: N802
        self, *, channel_id: str, thread_ts: str, status: str, **_: Any
    ) -> dict[str, Any]:
        channel = self._channel(channel_id)
        if self.find(channel.id, thread_ts) is None:
            raise RefusedError("invalid_thread_ts")
        self.statuses.append((channel_id, thread_ts, status))
        return {}

    def _files_getUploadURLExternal(  # noqa: N802
        self, *, filename: str, length: int, **_: Any
    ) -> dict[str, Any]:
        if length < 1:
            raise RefusedError("invalid_arguments", "[ERROR] must be > 0: length")
        file = self.add_file(filename, b"")
        file.content, file.length = None, length
        return {"file_id": file.id, "upload_url": f"{self.origin}/upload/v1/{file.id}"}

    def _files_completeUploadExternal(  # noqa: N802
        self, *, files: list[dict[str, str]], channel_id: str = "", thread_ts: str = "", **_: Any
    ) -> dict[str, Any]:
        for one in files:
            if not {"id"} <= set(one) <= {"id", "title", "highlight_type"}:
                raise RefusedError("invalid_arguments", "[ERROR] files")
            if one["id"] not in self.files or self.files[one["id"]].content is None:
                raise RefusedError("file_not_found")
        if channel_id:
            where = self._writable(channel_id)
            self._require_thread(where, {"thread_ts": thread_ts})
            message = Message(
                channel=where.id,
                ts=self._new_ts(),
                user=BOT_USER,
                is_bot=True,
                thread_ts=thread_ts,
                files=[one["id"] for one in files],
            )
            self._keep(message)
        for one in files:
            self.files[one["id"]].is_shared = True
        return {"files": [self._file_of(self.files[one["id"]]) for one in files]}

    def _files_info(self, *, file: str, **_: Any) -> dict[str, Any]:
        if file not in self.files:
            raise RefusedError("file_not_found")
        return {"file": self._file_of(self.files[file])}

    def _channel(self, id_: str) -> Channel:
        if id_ not in self.channels or BOT_USER not in self.channels[id_].members:
            # Slack does not tell a private channel from one that does not exist.
            known = self.channels.get(id_)
            code = "channel_not_found" if known is None else "not_in_channel"
            raise RefusedError(code)
        return self.channels[id_]

    def _writable(self, id_: str) -> Channel:
        if id_ in self.users:
            # A message to a user is a direct message.
            found = [it for it in self.channels.values() if it.kind == "im" and id_ in it.members]
            id_ = found[0].id if found else "D-none"
        channel = self._channel(id_)
        if channel.is_archived:
            raise RefusedError("is_archived")
        left = self._limits.get(id_, 0) - trio.current_time()
        if left > 0:
            self.violations.append(f"{id_} was written to {left:g} s too early")
            raise _LimitedError(int(left) + 1)
        return channel

    def _fill(self, message: Message, arguments: dict[str, Any]) -> None:
        text, blocks = arguments.get("text", ""), arguments.get("blocks")
        if blocks is not None:
            check_blocks(blocks)
        if not text and not blocks:
            raise RefusedError("no_text")
        if len(text) > LONGEST_TEXT:
            raise RefusedError("msg_too_long")
        if blocks and not text:
            self.violations.append("a message has blocks, and no text for notices")
        message.text, message.blocks = text, blocks or []

    def _require_thread(self, where: Channel, arguments: dict[str, Any]) -> None:
        thread = arguments.get("thread_ts")
        if not thread:
            return
        root = self.find(where.id, thread)
        if root is None:
            raise RefusedError("thread_not_found")
        if root.thread_ts not in {"", thread}:
            self.violations.append("a thread was named by a reply in it")

    def find(self, channel: str, ts: str) -> Message | None:
        """Return a message that was not deleted."""
        for message in self.messages:
            if (message.channel, message.ts) == (channel, ts):
                return message
        return None

    def _keep(self, message: Message) -> None:
        self.messages.append(message)
        self._changed.unpark_all()

    def _event_of(self, message: Message) -> dict[str, Any]:
        event: dict[str, Any] = {
            "user": message.user,
            "text": message.text,
            "ts": message.ts,
            "channel": message.channel,
            "team": TEAM,
        }
        if message.thread_ts:
            event["thread_ts"] = message.thread_ts
            root = self.find(message.channel, message.thread_ts)
            if root is not None:
                event["parent_user_id"] = root.user
        if message.is_bot:
            event |= {"bot_id": BOT_ID, "app_id": APP}
        else:
            event["client_msg_id"] = f"c-{message.ts}"
        return event

    def _file_of(self, file: File) -> dict[str, Any]:
        where = f"{self.origin}/files-pri/{file.id}/download"
        if file.is_external:
            where = "https://files.example.com/elsewhere"
        return {
            "id": file.id,
            "name": file.name,
            "title": file.name,
            "mimetype": file.media_type,
            "size": file.length,
            "mode": "external" if file.is_external else "hosted",
            "is_external": file.is_external,
            "url_private": where,
            "url_private_download": where,
        }

    def _take_upload(self, id_: str, body: bytes) -> Response:
        file = self.files.get(id_)
        if file is None or file.content is not None or len(body) != file.length:
            return Response(400, b"wrong file")
        file.content = body
        return Response(200, f"OK - {len(body)}".encode(), "text/plain")

    def _give_file(self, id_: str, request: Request) -> Response:
        file = self.files.get(id_)
        if file is None or file.content is None:
            return Response(404)
        shown = request.headers.get("authorization")
        if self.hides_files or shown != f"Bearer {BOT_TOKEN}":
            where = {"location": "https://tests.slack.com/?redir=x"}
            return Response(302, headers=where)
        return Response(200, file.content, file.media_type)

    def _new_ts(self) -> str:
        self._number += 1
        return f"{self._began + self._number}.{self._number:06}"

    # Events.

    def _send(self, kind: str, payload: dict[str, Any], id_: str) -> None:
        self._last.append((kind, payload, id_))
        self._pending += 1
        self._nursery.start_soon(self._deliver, kind, payload, id_)

    async def _deliver(self, kind: str, payload: dict[str, Any], id_: str) -> None:
        """Send an event until it is acknowledged, or was sent four times."""
        await trio.lowlevel.checkpoint()
        reason = ""
        pauses = (0, *RETRY_PAUSES) if id_ else (0,)
        for attempt, pause in enumerate(pauses):
            await trio.sleep(pause)
            self.attempts[id_] = attempt + 1
            self._changed.unpark_all()
            if self.request_url:
                reason = await self._send_request(kind, payload, attempt, reason)
            else:
                reason = await self._send_envelope(kind, payload, attempt, reason)
            if not reason:
                break
        self._pending -= 1
        self._changed.unpark_all()

    async def _send_request(
        self, kind: str, payload: dict[str, Any], attempt: int, reason: str
    ) -> str:
        """Send an event, and return why it must be sent again."""
        headers = {"content-type": "application/json"}
        if attempt:
            headers["x-slack-retry-num"] = str(attempt)
            headers["x-slack-retry-reason"] = reason
        body = json.dumps(payload).encode()
        if kind == "interactive":
            headers["content-type"] = "application/x-www-form-urlencoded"
            body = urlencode({"payload": json.dumps(payload)}).encode()
        try:
            with trio.fail_after(ACK_SECONDS):
                answer = await self.post_signed(body, headers)
        except trio.TooSlowError:
            return "http_timeout"
        except httpx2.HTTPError:
            return "connection_failed"
        return "" if 200 <= answer.status_code < 300 else "http_error"

    async def post_signed(
        self, body: bytes, headers: dict[str, str] | None = None, **changed: str
    ) -> httpx2.Response:
        """Send a request to the app, signed."""
        timestamp = changed.get("timestamp", str(int(time.time())))
        signature = sign(changed.get("secret", SIGNING_SECRET), timestamp, body)
        async with httpx2.AsyncClient(timeout=None, verify=NO_CERTIFICATES) as client:
            answer = await client.post(
                self.request_url,
                content=body,
                headers={
                    "content-type": "application/json",
                    **(headers or {}),
                    "x-slack-request-timestamp": timestamp,
                    "x-slack-signature": signature,
                },
            )
        self.answers.append((answer.status_code, answer.text))
        return answer

    # Socket Mode.

    async def serve_socket(self, request: trio_websocket.WebSocketRequest) -> None:
        """Serve one connection of Socket Mode."""
        query = parse_qs(urlsplit(request.path).query)
        ticket = query.get("ticket", [""])[0]
        if ticket not in self.tickets:
            await request.reject(403)
            return
        self.tickets.remove(ticket)
        socket = await request.accept()
        connection = _Socket(socket)
        hello = {
            "type": "hello",
            "num_connections": len(self.sockets) + 1,
            "debug_info": {"host": "applink-1", "approximate_connection_time": 18060},
            "connection_info": {"app_id": APP},
        }
        try:
            await socket.send_message(json.dumps(hello))
            self.sockets.append(connection)
            self._changed.unpark_all()
            while True:
                self._take_acknowledgement(await socket.get_message())
        except (trio_websocket.ConnectionClosed, trio.ClosedResourceError):
            pass
        finally:
            connection.is_open = False
            if connection in self.sockets:
                self.sockets.remove(connection)
            self._changed.unpark_all()

    def _take_acknowledgement(self, message: str | bytes) -> None:
        found = json.loads(message)
        id_ = found.pop("envelope_id", "")
        if id_ not in self._envelopes or found:
            self.violations.append(f"no acknowledgement: {message!r}")
        self._envelopes.discard(id_)
        self._changed.unpark_all()

    async def _send_envelope(
        self, kind: str, payload: dict[str, Any], attempt: int, reason: str
    ) -> str:
        """Send an event to the newest connection, and return why it must be sent again."""
        await self.wait_for(lambda: bool(self.sockets))
        connection = self.sockets[-1]
        id_ = secrets.token_hex(8)
        envelope = {
            "envelope_id": id_,
            "type": kind,
            "accepts_response_payload": kind != "events_api",
            "payload": payload,
        }
        if kind == "events_api":
            envelope |= {"retry_attempt": attempt, "retry_reason": reason}
        self._envelopes.add(id_)
        try:
            await connection.socket.send_message(json.dumps(envelope))
        except (trio_websocket.ConnectionClosed, trio.ClosedResourceError):
            return "connection_failed"
        self.sent += 1
        self._changed.unpark_all()
        with trio.move_on_after(ACK_SECONDS):
            await self.wait_for(lambda: id_ not in self._envelopes or not connection.is_open)
        return "timeout" if id_ in self._envelopes else ""


@attrs.frozen
class _SilentStream:
    """A stream by which nothing arrives."""

    stream: trio.abc.Stream

    async def receive_some(self, most: int) -> bytes:
        del most
        await trio.sleep_forever()

    async def send_all(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def aclose(self) -> None:
        await self.stream.aclose()


class _LimitedError(Exception):
    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@asynccontextmanager
async def open_fake_slack() -> AsyncGenerator[FakeSlack]:
    """Serve a workspace as long as the block lasts."""
    with raising_one_error():
        # Owns the sockets, and the events that are sent.
        async with trio.open_nursery() as nursery:
            fake = FakeSlack(nursery)
            websockets = await nursery.start(
                trio_websocket.serve_websocket, fake.serve_socket, "127.0.0.1", 0, None
            )
            fake.socket_url = f"ws://127.0.0.1:{websockets.port}"
            async with serve_http(fake.answer) as fake.origin:
                yield fake
            nursery.cancel_scope.cancel(reason="the test is over")


def _limited(seconds: str) -> Response:
    answer = {"ok": False, "error": "ratelimited"}
    return json_response(answer, 429, **{"retry-after": seconds})


def _shown(block: dict[str, Any]) -> str:
    """Return what people read of a block."""
    match block["type"]:
        case "section":
            return str(block["text"]["text"])
        case "rich_text":
            return "\n".join(
                "".join(it.get("text", it.get("url", "")) for it in _inline(element))
                for element in block["elements"]
            )
        case _:
            return ""


def _inline(element: dict[str, Any]) -> list[dict[str, Any]]:
    if element["type"] != "rich_text_list":
        return list(element["elements"])
    return [it for item in element["elements"] for it in item["elements"]]
