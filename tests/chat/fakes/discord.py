"""Discord on loopback: its HTTP API, its files, and its gateway over a real websocket.

It refuses what Discord refuses, counts calls in Discord's buckets, keeps sessions that can be
resumed, and repeats what a resumed one has missed. Faults come on demand. What a bot does that
Discord would let pass, and that is wrong all the same, is in `violations`.
"""

import re
import secrets
import time
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

import attrs
import msgspec
import trio
import trio_websocket

from tests.chat.fakes.discord_bodies import (
    SYSTEM_TYPES,
    RefusedError,
    SentFile,
    bad_form,
    check_edit,
    check_fields,
    check_message,
    pinged,
    read_multipart,
)
from tests.chat.fakes.http import HangUpError, Request, Response, json_response, serve_http

TOKEN: Final = "MTA5OTk.a-token.of-the-tests"
BOT, APPLICATION = "1009900", "1009900"
ADA, BOB, OTHER_BOT = "2001", "2002", "2003"
SERVER, GENERAL, DIRECT, THREAD = "7001", "7101", "7201", "7102"
EPOCH: Final = 1_420_070_400_000
TEXT, DM, PUBLIC_THREAD = 0, 1, 11
GUILDS, GUILD_MESSAGES, DIRECT_MESSAGES = 1 << 0, 1 << 9, 1 << 12
MESSAGE_CONTENT: Final = 1 << 15
PRIVILEGED: Final = 1 << 1 | 1 << 8 | MESSAGE_CONTENT
ALL_INTENTS: Final = (1 << 26) - 1
NONCE_SECONDS: Final = 300
PRESS_SECONDS: Final = 3
FOLLOW_SECONDS: Final = 15 * 60
USER_AGENT: Final = re.compile(r"DiscordBot \(\S+,? \S+\).*")
NAMES: Final = {BOT: "helper", ADA: "Ada", BOB: "Bob", OTHER_BOT: "parrot"}


@attrs.define(kw_only=True)
class Channel:
    """A channel, a thread or a private chat."""

    id: str
    type: int
    name: str = ""
    parent: str = ""
    refusal: RefusedError | None = None
    """The refusal of every message to it."""

    @property
    def is_direct(self) -> bool:
        return self.type == DM


@attrs.define(kw_only=True)
class Message:
    """A message."""

    id: str
    channel: str
    author: str
    content: str = ""
    type: int = 0
    reply_to: str = ""
    components: list[dict[str, Any]] = attrs.field(factory=list)
    files: list[SentFile] = attrs.field(factory=list)
    nonce: str | int | None = None
    sent_at: float = 0.0
    flags: int = 0
    pings: set[str] = attrs.field(factory=set)
    more: dict[str, Any] = attrs.field(factory=dict)
    """Other fields: a poll, stickers, a forwarded message."""

    @property
    def buttons(self) -> dict[str, str]:
        """The data of the buttons, by their labels."""
        return {it["label"]: it["custom_id"] for row in self.components for it in row["components"]}


@attrs.define(kw_only=True)
class Fault:
    """The fault of a call, instead of an answer."""

    times: int = 1
    status: int = 0
    retry_after: float = 0.0
    is_global: bool = False
    code: int = 0
    body: bytes | None = None
    is_html: bool = False
    """It is the network before Discord that answers."""
    lost: Literal["", "before", "after", "never"] = ""
    """The connection is lost before or after the call was carried out; or it hangs."""


@attrs.frozen
class Call:
    """A call that a bot has made."""

    method: str
    path: str
    body: Any


@attrs.define
class _Interaction:
    token: str
    user: str
    began: float
    is_answered: bool = False


@attrs.define
class _Session:
    """A session of the gateway: it outlives its connections."""

    id: str
    intents: int
    events: list[dict[str, Any]] = attrs.field(factory=list)

    @property
    def seq(self) -> int:
        return len(self.events)


@attrs.define
class _Connection:
    """A connection to the gateway."""

    socket: trio_websocket.WebSocketConnection
    compress: Any = None
    session: _Session | None = None
    beaten_at: float = 0.0
    sent: int = 0
    """How many events of the session were sent."""
    is_closing: bool = False

    async def send(self, payload: dict[str, Any]) -> None:
        data = msgspec.json.encode(payload)
        if self.compress is None:
            await self.socket.send_message(data.decode())
        else:
            packed = self.compress.compress(data)
            await self.socket.send_message(packed + self.compress.flush(zlib.Z_SYNC_FLUSH))


class FakeDiscord:
    """Discord, as one bot, two people and another bot see it."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.token = TOKEN
        self.url = ""
        """Where the API is."""
        self.gateway_url = ""
        self.heartbeat_interval = 41_250
        self.answers_heartbeats = True
        self.refuses_sockets = 0
        """So many of the next connections to the gateway are refused."""
        self.disallowed_intents = 0
        self.session_starts = 1000
        self.identified = 0
        self.resumed = 0
        self.connections = 0
        """How many connections to the gateway there have been."""
        self.close_codes: list[int] = []
        """With which codes the bot has closed connections."""
        self.heartbeats: list[int | None] = []
        self.violations: list[str] = []
        self.calls: list[Call] = []
        self.typed: list[str] = []
        self.whispers: list[tuple[str, str]] = []
        """The messages that only one person sees."""
        self.limit = (5, 5.0)
        """How many messages a channel takes in how many seconds."""
        self.channels = {
            it.id: it
            for it in (
                Channel(id=GENERAL, type=TEXT, name="general"),
                Channel(id=THREAD, type=PUBLIC_THREAD, name="a thread", parent=GENERAL),
                Channel(id=DIRECT, type=DM),
            )
        }
        self.messages: dict[str, Message] = {}
        self._clock = clock
        self._last_id = 0
        self._faults: list[tuple[str, Fault]] = []
        self._sessions: dict[str, _Session] = {}
        self._open: list[_Connection] = []
        self._interactions: dict[str, _Interaction] = {}
        self._buckets: dict[tuple[str, str], tuple[int, float]] = {}
        self._changed = trio.lowlevel.ParkingLot()

    # What tests do and see.

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so; it is looked at whenever anything has happened."""
        await trio.lowlevel.checkpoint()
        while not is_so():
            await self._changed.park()

    def sent(self, channel: str = "") -> list[Message]:
        """Return what the bot has sent, oldest first."""
        return [
            it for it in self.messages.values() if it.author == BOT and channel in {"", it.channel}
        ]

    def texts(self, channel: str = "") -> list[str]:
        return [it.content for it in self.sent(channel)]

    async def wait_sent(self, count: int, channel: str = "") -> list[Message]:
        await self.wait_until(lambda: len(self.sent(channel)) >= count)
        return self.sent(channel)

    async def say(
        self,
        text: str,
        *,
        by: str = ADA,
        channel: str = DIRECT,
        reply_to: str = "",
        files: Mapping[str, bytes] | None = None,
        **more: Any,
    ) -> Message:
        """Let a person write a message, and tell the bot."""
        message = self.write(text, by=by, channel=channel, reply_to=reply_to, files=files, **more)
        await self.announce(message)
        return message

    def write(
        self,
        text: str,
        *,
        by: str = ADA,
        channel: str = DIRECT,
        reply_to: str = "",
        files: Mapping[str, bytes] | None = None,
        **more: Any,
    ) -> Message:
        """Let a person write a message of which the gateway does not tell."""
        sent = [SentFile(name, content) for name, content in (files or {}).items()]
        return self._add(
            Message(
                id=self.new_id(),
                channel=channel,
                author=by,
                content=text,
                type=more.pop("type", 19 if reply_to else 0),
                reply_to=reply_to,
                files=sent,
                more=more,
            )
        )

    async def announce(self, message: Message) -> None:
        """Tell the gateway's sessions of a message, maybe once more."""
        channel = self.channels[message.channel]
        for session in self._sessions.values():
            wanted = DIRECT_MESSAGES if channel.is_direct else GUILD_MESSAGES
            if not session.intents & wanted:
                continue
            data = self.message_object(message, session.intents)
            if not channel.is_direct:
                data["guild_id"] = SERVER
                data["member"] = {"roles": [], "joined_at": _iso(0), "flags": 0}
                data["member"] |= {"deaf": False, "mute": False}
            self._dispatch(session, "MESSAGE_CREATE", data)
        await self._flush()

    async def press(self, message: Message, label: str, *, by: str = ADA) -> str:
        """Let a person press a button, and return the id of the interaction."""
        channel = self.channels[message.channel]
        id_, token = self.new_id(), secrets.token_urlsafe(24)
        self._interactions[id_] = _Interaction(token, by, trio.current_time())
        data: dict[str, Any] = {
            "id": id_,
            "application_id": APPLICATION,
            "type": 3,
            "token": token,
            "version": 1,
            "channel_id": message.channel,
            "channel": self.channel_object(channel),
            "message": self.message_object(message, ALL_INTENTS),
            "data": {"component_type": 2, "custom_id": message.buttons[label], "id": 2},
            "locale": "en-GB",
            "entitlements": [],
            "attachment_size_limit": 10 * 1024 * 1024,
            "authorizing_integration_owners": {},
            "app_permissions": "8",
            "context": 1 if channel.is_direct else 0,
        }
        if channel.is_direct:
            data["user"] = user_object(by)
        else:
            member = {"roles": [], "joined_at": _iso(0), "permissions": "8", "flags": 0}
            member |= {"deaf": False, "mute": False, "user": user_object(by)}
            data |= {"guild_id": SERVER, "member": member}
            data["guild"] = {"id": SERVER, "locale": "en-GB", "features": []}
        for session in self._sessions.values():
            self._dispatch(session, "INTERACTION_CREATE", data)
        await self._flush()
        return id_

    def is_acknowledged(self, interaction: str) -> bool:
        return self._interactions[interaction].is_answered

    def fail(self, call: str, **fault: Any) -> None:
        """Let the next calls of a kind fail: `POST /channels/{}/messages`."""
        self._faults.append((call, Fault(**fault)))

    async def close_sockets(self, code: int) -> None:
        """Close all connections of the gateway with a code."""
        for it in list(self._open):
            it.is_closing = True
            with suppress(trio_websocket.ConnectionClosed):
                await it.socket.aclose(code)

    async def cut_sockets(self) -> None:
        """Drop all connections of the gateway without a word."""
        for it in list(self._open):
            await trio.aclose_forcefully(it.socket._stream)

    async def send_to_all(self, payload: dict[str, Any]) -> None:
        """Send a frame as it is."""
        for it in list(self._open):
            await it.send(payload)

    def forget_sessions(self) -> None:
        """Let no session be resumed any more."""
        self._sessions.clear()

    @property
    def is_connected(self) -> bool:
        return any(it.session is not None for it in self._open)

    @property
    def has_session(self) -> bool:
        return bool(self._sessions)

    async def wait_handled(self) -> None:
        """Wait until the bot says that it has handled all events: its heartbeats do."""

        def is_handled() -> bool:
            sessions = list(self._sessions.values())
            return bool(sessions and self.heartbeats) and (self.heartbeats[-1] == sessions[-1].seq)

        await self.wait_until(is_handled)

    async def wait_connected(self) -> None:
        await self.wait_until(lambda: self.is_connected)

    def new_id(self) -> str:
        """Return an id that is later than all others."""
        now = int(self._clock() * 1000) - EPOCH << 22
        self._last_id = max(now, self._last_id + 1)
        return str(self._last_id)

    # What Discord says of things.

    def channel_object(self, channel: Channel) -> dict[str, Any]:
        found: dict[str, Any] = {"id": channel.id, "type": channel.type, "flags": 0}
        found["last_message_id"] = None
        if channel.is_direct:
            return found | {"recipients": [user_object(ADA)]}
        found |= {"guild_id": SERVER, "name": channel.name, "position": 0}
        found |= {"permission_overwrites": [], "nsfw": False, "topic": None}
        found["parent_id"] = channel.parent or None
        if channel.type == PUBLIC_THREAD:
            found |= {
                "owner_id": ADA,
                "message_count": 1,
                "member_count": 1,
                "total_message_sent": 1,
                "thread_metadata": {
                    "archived": False,
                    "auto_archive_duration": 1440,
                    "archive_timestamp": _iso(self._clock()),
                    "locked": False,
                },
                "rate_limit_per_user": 0,
            }
        return found

    def message_object(self, message: Message, intents: int = ALL_INTENTS) -> dict[str, Any]:
        """Return a message as a bot with these intents reads it."""
        mentioned = re.findall(r"<@!?(\d+)>", message.content)
        replied = self.messages.get(message.reply_to)
        if replied is not None and replied.author not in mentioned:
            mentioned.append(replied.author)
        is_readable = (
            intents & MESSAGE_CONTENT
            or BOT in mentioned
            or message.author == BOT
            or self.channels[message.channel].is_direct
        )
        found: dict[str, Any] = {
            "id": message.id,
            "type": message.type,
            "channel_id": message.channel,
            "author": user_object(message.author),
            "content": message.content if is_readable else "",
            "timestamp": _iso(self._clock()),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [user_object(it) for it in mentioned if it in NAMES],
            "mention_roles": [],
            "attachments": self._attachments(message) if is_readable else [],
            "embeds": [],
            "pinned": False,
            "components": message.components if is_readable else [],
            "flags": message.flags,
            **message.more,
        }
        if message.nonce is not None:
            found["nonce"] = message.nonce
        if message.reply_to:
            found["message_reference"] = {
                "type": 0,
                "message_id": message.reply_to,
                "channel_id": message.channel,
            }
            found["referenced_message"] = (
                None
                if replied is None
                else self.message_object(attrs.evolve(replied, reply_to=""), intents)
            )
        return found

    def _attachments(self, message: Message) -> list[dict[str, Any]]:
        root = self.url.removesuffix("/api/v10")
        return [
            {
                "id": str(int(message.id) + index),
                "filename": it.name,
                "size": len(it.content),
                "url": f"{root}/attachments/{message.channel}/{message.id}/{index}?ex=1",
                "proxy_url": f"{root}/attachments/{message.channel}/{message.id}/{index}",
                "content_type": "text/plain; charset=utf-8",
            }
            for index, it in enumerate(message.files)
        ]

    # The HTTP API.

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        await trio.lowlevel.checkpoint()
        url = urlsplit(request.target)
        try:
            if url.path.startswith("/attachments/"):
                return self._give_file(url.path, request)
            path = url.path.removeprefix("/api/v10")
            return await self._answer_call(path, parse_qs(url.query), request)
        except RefusedError as exc:
            return json_response(exc.body, exc.status)
        finally:
            self._changed.unpark_all()

    def _give_file(self, path: str, request: Request) -> Response:
        if "authorization" in request.headers:
            self.violations.append("a host of files was given the token")
        *_, id_, index = path.split("/")
        if id_ not in self.messages:
            return Response(404, b"This content is no longer available.", "text/plain")
        file = self.messages[id_].files[int(index)]
        return Response(200, file.content, "application/octet-stream")

    async def _answer_call(
        self, path: str, query: dict[str, list[str]], request: Request
    ) -> Response:
        names = re.findall(r"(?<=/)(?:\d+|@me)(?=/|$)", path)
        shape = re.sub(r"(?<=/)\d+(?=/|$)", "{}", path)
        if path.startswith(("/interactions/", "/webhooks/")):
            pieces = path.split("/")
            names, shape = (pieces[2:4], "/".join(["", pieces[1], "{}", "{}", *pieces[4:]]))
        kind = f"{request.method} {shape}"
        fault = self._next_fault(kind)
        if fault is not None and fault.lost == "before":
            raise HangUpError
        if fault is not None and fault.lost == "never":
            await trio.sleep_forever()
        if fault is not None and fault.status:
            return _fault_response(fault)
        self._check_caller(path, request)
        headers = self._count(kind, names[0] if names else "")
        if isinstance(headers, Response):
            return headers
        body, files = _read_body(request)
        self.calls.append(Call(request.method, path, body))
        if request.method == "GET":
            found = self._read(shape, names, query)
        else:
            found = await self._write(kind, names, body, files)
            if "with_response" in query and kind.endswith("/callback"):
                found = {"interaction": {"id": names[0], "type": 3}}
        if fault is not None and fault.lost == "after":
            raise HangUpError
        if found is None:
            return Response(204, b"", "text/html; charset=utf-8", headers)
        return json_response(found, 200, **headers)

    def _check_caller(self, path: str, request: Request) -> None:
        # What an interaction names is called without the bot's token, and by any client.
        if not path.startswith(("/interactions/", "/webhooks/")):
            if not USER_AGENT.fullmatch(request.headers.get("user-agent", "")):
                raise RefusedError(403, 40333, "internal network error")
            if request.headers.get("authorization") != f"Bot {self.token}":
                raise RefusedError(401, 0, "401: Unauthorized")

    def _read(self, shape: str, names: list[str], query: dict[str, list[str]]) -> Any:
        match shape, names:
            case "/gateway/bot", _:
                starts = {"total": 1000, "remaining": self.session_starts}
                starts |= {"reset_after": 60_000, "max_concurrency": 1}
                found = {"url": self.gateway_url, "shards": 1}
                return found | {"session_start_limit": starts}
            case "/users/@me", _:
                own = {"mfa_enabled": True, "verified": True, "locale": "en-GB"}
                return user_object(BOT) | own | {"email": None}
            case "/oauth2/applications/@me" | "/applications/@me", _:
                return application_object()
            case "/channels/{}", [channel]:
                return self.channel_object(self._channel(channel))
            case "/channels/{}/messages", [channel]:
                return self._history(self._channel(channel), query)
            case "/channels/{}/messages/{}", [channel, message]:
                return self.message_object(self._message(channel, message))
            case _:
                raise RefusedError(404, 0, "404: Not Found")

    async def _write(
        self, kind: str, names: list[str], body: Any, files: dict[int, SentFile]
    ) -> Any:
        match kind, names:
            case "POST /channels/{}/messages", [channel]:
                return await self._create(self._channel(channel), body, files)
            case "PATCH /channels/{}/messages/{}", [channel, message]:
                return self._edit(self._message(channel, message), body)
            case "DELETE /channels/{}/messages/{}", [channel, message]:
                del self.messages[self._message(channel, message).id]
            case "POST /channels/{}/typing", [channel]:
                self.typed.append(self._channel(channel).id)
            case "POST /interactions/{}/{}/callback", [interaction, token]:
                self._answer_interaction(interaction, token, body)
            case "POST /webhooks/{}/{}", [application, token]:
                return self._follow(application, token, body, files)
            case _:
                raise RefusedError(404, 0, "404: Not Found")
        return None

    def _next_fault(self, kind: str) -> Fault | None:
        for waiting in self._faults:
            call, fault = waiting
            if call == kind:
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(waiting)
                return fault
        return None

    def _count(self, kind: str, subject: str) -> dict[str, str] | Response:
        """Count a call in its bucket; one too many is refused."""
        most, seconds = self.limit if kind.startswith("POST /channels/") else (50, 1.0)
        now, key = trio.current_time(), (kind, subject)
        used, ends = self._buckets.get(key, (0, now + seconds))
        if now >= ends:
            used, ends = 0, now + seconds
        headers = {
            "x-ratelimit-limit": str(most),
            "x-ratelimit-remaining": str(max(0, most - used - 1)),
            "x-ratelimit-reset": f"{self._clock() + ends - now:.3f}",
            "x-ratelimit-reset-after": f"{ends - now:.3f}",
            "x-ratelimit-bucket": f"{zlib.crc32(kind.encode()):032x}",
        }
        if used >= most:
            self.violations.append(f"{kind} was called although its bucket was empty")
            limited = {"message": "You are being rate limited.", "global": False}
            return json_response(
                limited | {"retry_after": ends - now},
                429,
                **headers,
                **{"retry-after": str(int(ends - now) + 1), "x-ratelimit-scope": "user"},
            )
        self._buckets[key] = (used + 1, ends)
        return headers

    def _channel(self, id_: str) -> Channel:
        if id_ not in self.channels:
            raise RefusedError(404, 10003, "Unknown Channel")
        return self.channels[id_]

    def _message(self, channel: str, id_: str) -> Message:
        found = self.messages.get(id_)
        if found is None or found.channel != self._channel(channel).id:
            raise RefusedError(404, 10008, "Unknown Message")
        return found

    def _history(self, channel: Channel, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        if channel.refusal is not None:
            raise channel.refusal
        (limit,) = query.get("limit", ["50"])
        if not 1 <= int(limit) <= 100:
            raise bad_form("limit", "NUMBER_TYPE_MAX", "Must be 1 to 100.")
        ids = [int(it.id) for it in self.messages.values() if it.channel == channel.id]
        if "after" in query:
            chosen = sorted(it for it in ids if it > int(query["after"][0]))
            chosen = chosen[: int(limit)]
        else:
            before = int(query.get("before", ["99999999999999999999"])[0])
            chosen = sorted(it for it in ids if it < before)[-int(limit) :]
        return [self.message_object(self.messages[str(it)]) for it in reversed(chosen)]

    async def _create(
        self, channel: Channel, body: Any, files: dict[int, SentFile]
    ) -> dict[str, Any]:
        check_message(body, files)
        if channel.refusal is not None:
            raise channel.refusal
        nonce, reply_to = body.get("nonce"), self._checked_reference(channel, body)
        if body.get("enforce_nonce") and nonce is not None:
            now = trio.current_time()
            for it in self.sent():
                if it.nonce == nonce and now - it.sent_at < NONCE_SECONDS:
                    return self.message_object(it)
        replied = self.messages.get(reply_to)
        message = self._add(
            Message(
                id=self.new_id(),
                channel=channel.id,
                author=BOT,
                content=(body.get("content") or "").strip(),
                type=19 if reply_to else 0,
                reply_to=reply_to,
                components=_numbered(body.get("components") or []),
                files=list(files.values()),
                nonce=nonce,
                sent_at=trio.current_time(),
                flags=body.get("flags") or 0,
                pings=pinged(
                    body.get("content") or "",
                    body.get("allowed_mentions"),
                    None if replied is None else replied.author,
                ),
            )
        )
        await self.announce(message)
        return self.message_object(message)

    def _checked_reference(self, channel: Channel, body: dict[str, Any]) -> str:
        reference = body.get("message_reference")
        if not reference:
            return ""
        types = {"message_id": (str, int), "channel_id": (str, int), "type": int}
        types |= {"guild_id": (str, int), "fail_if_not_exists": bool}
        check_fields(reference, types)
        id_ = str(reference["message_id"])
        found = self.messages.get(id_)
        if found is not None and found.channel == channel.id:
            if found.type in SYSTEM_TYPES:
                raise bad_form(
                    "message_reference",
                    "REPLIES_CANNOT_REPLY_TO_SYSTEM_MESSAGE",
                    "Cannot reply to a system message",
                )
            return id_
        if reference.get("fail_if_not_exists", True):
            raise bad_form(
                "message_reference", "MESSAGE_REFERENCE_UNKNOWN_MESSAGE", "Unknown message"
            )
        return ""

    def _edit(self, message: Message, body: Any) -> dict[str, Any]:
        check_edit(body)
        if message.author != BOT:
            raise RefusedError(403, 50005, "Cannot edit a message authored by another user")
        if body.get("content") is not None:
            message.content = body["content"]
        if "components" in body:
            message.components = _numbered(body["components"] or [])
        return self.message_object(message)

    def _answer_interaction(self, id_: str, token: str, body: Any) -> None:
        check_fields(body, {"type": int, "data": dict})
        found = self._interactions.get(id_)
        if found is None or found.token != token:
            raise RefusedError(404, 10062, "Unknown interaction")
        if trio.current_time() - found.began > PRESS_SECONDS:
            raise RefusedError(404, 10062, "Unknown interaction")
        if found.is_answered:
            raise RefusedError(400, 40060, "Interaction has already been acknowledged.")
        if body["type"] == 4:
            check_message(body["data"], {}, is_followup=True)
            self._whisper(found, body["data"])
        elif body["type"] != 6:
            raise bad_form("type", "BASE_TYPE_CHOICES", "is no answer to a button")
        found.is_answered = True

    def _follow(
        self, application: str, token: str, body: Any, files: dict[int, SentFile]
    ) -> dict[str, Any]:
        found = next((it for it in self._interactions.values() if it.token == token), None)
        if application != APPLICATION or found is None or not found.is_answered:
            raise RefusedError(404, 10015, "Unknown Webhook")
        if trio.current_time() - found.began > FOLLOW_SECONDS:
            raise RefusedError(401, 50027, "Invalid Webhook Token")
        check_message(body, files, is_followup=True)
        self._whisper(found, body)
        message = Message(id=self.new_id(), channel=GENERAL, author=BOT)
        return self.message_object(message) | {"content": body["content"]}

    def _whisper(self, interaction: _Interaction, body: Mapping[str, Any]) -> None:
        if not (body.get("flags") or 0) & 1 << 6:
            self.violations.append("an answer to a press is read by all")
        self.whispers.append((interaction.user, body["content"]))

    def _add(self, message: Message) -> Message:
        self.messages[message.id] = message
        self._changed.unpark_all()
        return message

    # The gateway.

    async def serve_socket(self, request: trio_websocket.WebSocketRequest) -> None:
        """Serve one connection of a bot."""
        query = parse_qs(urlsplit(request.path).query)
        self.connections += 1
        if self.refuses_sockets:
            self.refuses_sockets -= 1
            await request.reject(503)
            return
        socket = await request.accept()
        if query.get("v") != ["10"] or query.get("encoding") != ["json"]:
            await socket.aclose(4012)
            return
        compress = query.get("compress", [""])[0]
        connection = _Connection(socket, zlib.compressobj() if compress == "zlib-stream" else None)
        self._open.append(connection)
        self._changed.unpark_all()
        try:
            await self._serve(connection)
        except trio_websocket.ConnectionClosed as exc:
            if exc.reason is not None and not connection.is_closing:
                self.close_codes.append(exc.reason.code)
                if exc.reason.code in {1000, 1001} and connection.session:
                    self._sessions.pop(connection.session.id, None)
        except _CloseError as exc:
            connection.is_closing = True
            await socket.aclose(exc.code, exc.reason)
        finally:
            self._open.remove(connection)
            self._changed.unpark_all()

    async def _serve(self, connection: _Connection) -> None:
        interval = self.heartbeat_interval
        connection.beaten_at = trio.current_time()
        await connection.send({"op": 10, "d": {"heartbeat_interval": interval}})
        frames = 0
        while True:
            left = connection.beaten_at + interval * 1.5 / 1000 - trio.current_time()
            with trio.move_on_after(left) as scope:
                frame = await connection.socket.get_message()
            if scope.cancelled_caught:
                raise _CloseError(4009, "no heartbeat")
            frames += 1
            if len(frame) > 4096:
                raise _CloseError(4002, "too long")
            try:
                payload = msgspec.json.decode(frame)
                op, data = payload["op"], payload["d"]
            except (msgspec.DecodeError, KeyError, TypeError):
                raise _CloseError(4002, "no payload") from None
            await self._take(connection, op, data)
            self._changed.unpark_all()

    async def _take(self, connection: _Connection, op: int, data: Any) -> None:
        session = connection.session
        match op:
            case 1:
                connection.beaten_at = trio.current_time()
                self.heartbeats.append(data)
                if session is not None and data is not None and data > session.seq:
                    raise _CloseError(4007, "such a number was never sent")
                if self.answers_heartbeats:
                    await connection.send({"op": 11, "d": None})
            case 2:
                await self._identify(connection, data)
            case 6:
                await self._resume(connection, data)
            case 3 | 4 | 8:
                if session is None:
                    raise _CloseError(4003, "not authenticated")
            case _:
                raise _CloseError(4001, "unknown opcode")

    async def _identify(self, connection: _Connection, data: Any) -> None:
        if connection.session is not None:
            raise _CloseError(4005, "already authenticated")
        self.identified += 1
        self.session_starts -= 1
        if self.session_starts < 0:
            self.violations.append("the bot began more sessions than it may")
        if data.get("token") != self.token:
            raise _CloseError(4004, "authentication failed")
        intents = data.get("intents")
        if not isinstance(intents, int) or not 0 <= intents <= ALL_INTENTS:
            raise _CloseError(4013, "invalid intents")
        if intents & self.disallowed_intents:
            raise _CloseError(4014, "disallowed intents")
        if not {"os", "browser", "device"} <= data.get("properties", {}).keys():
            raise _CloseError(4002, "no properties")
        session = _Session(secrets.token_hex(16), intents)
        self._sessions[session.id] = session
        connection.session = session
        ready: dict[str, Any] = {
            "v": 10,
            "user": user_object(BOT),
            "guilds": [{"id": SERVER, "unavailable": True}],
            "session_id": session.id,
            "resume_gateway_url": self.gateway_url,
            "session_type": "normal",
            "application": {"id": APPLICATION, "flags": 1 << 19},
            "private_channels": [],
            "user_settings": {},
            "relationships": [],
            "presences": [],
            "geo_ordered_rtc_regions": [],
            "auth": {},
        }
        if shard := data.get("shard"):
            ready["shard"] = shard
        self._dispatch(session, "READY", ready)
        if intents & GUILDS:
            self._dispatch(session, "GUILD_CREATE", self._server_object())
        await self._flush()

    async def _resume(self, connection: _Connection, data: Any) -> None:
        if data.get("token") != self.token:
            raise _CloseError(4004, "authentication failed")
        session = self._sessions.get(data.get("session_id"))
        if session is None:
            await connection.send({"op": 9, "d": False})
            return
        if not 0 <= data.get("seq", -1) <= session.seq:
            raise _CloseError(4007, "invalid seq")
        for it in self._open:
            if it.session is session:
                it.session = None
        self.resumed += 1
        connection.session, connection.sent = session, data["seq"]
        self._dispatch(session, "RESUMED", {})
        await self._flush()

    def _server_object(self) -> dict[str, Any]:
        channels = [it for it in self.channels.values() if not it.is_direct]
        member: dict[str, Any] = {"user": user_object(BOT), "roles": [], "joined_at": _iso(0)}
        member |= {"deaf": False, "mute": False, "flags": 0}
        everyone: dict[str, Any] = {
            "id": SERVER,
            "name": "@everyone",
            "permissions": "8",
            "color": 0,
        }
        everyone |= {"hoist": False, "managed": False, "mentionable": False}
        everyone |= {"position": 0, "flags": 0, "colors": {"primary_color": 0}}
        server: dict[str, Any] = {
            "id": SERVER,
            "name": "a server",
            "owner_id": ADA,
            "unavailable": False,
            "large": False,
            "member_count": 3,
            "joined_at": _iso(0),
            "roles": [everyone],
            "members": [member],
            "channels": [self.channel_object(it) for it in channels if it.type == TEXT],
            "threads": [self.channel_object(it) for it in channels if it.parent],
            **dict.fromkeys(("emojis", "stickers", "features", "voice_states", "presences"), ()),
            **dict.fromkeys(("guild_scheduled_events", "stage_instances", "soundboard_sounds"), ()),
            **dict.fromkeys(("icon", "splash", "discovery_splash", "banner", "description"), None),
            **dict.fromkeys(("application_id", "rules_channel_id", "vanity_url_code"), None),
            **dict.fromkeys(
                ("afk_channel_id", "system_channel_id", "public_updates_channel_id"), None
            ),
            **dict.fromkeys(
                ("verification_level", "default_message_notifications", "mfa_level"), 0
            ),
            **dict.fromkeys(("explicit_content_filter", "system_channel_flags", "nsfw_level"), 0),
            "premium_tier": 0,
            "premium_progress_bar_enabled": False,
            "afk_timeout": 300,
            "preferred_locale": "en-GB",
            "nsfw": False,
        }
        return server

    def _dispatch(self, session: _Session, name: str, data: dict[str, Any]) -> None:
        session.events.append({"op": 0, "t": name, "s": session.seq + 1, "d": data})

    async def _flush(self) -> None:
        """Send to all connections what they have not got."""
        await trio.lowlevel.checkpoint()
        for it in list(self._open):
            while it.session is not None and it.sent < it.session.seq:
                it.sent += 1
                with suppress(trio_websocket.ConnectionClosed):
                    await it.send(it.session.events[it.sent - 1])
        self._changed.unpark_all()


class _CloseError(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


def user_object(id_: str) -> dict[str, Any]:
    name = NAMES[id_]
    return {
        "id": id_,
        "username": name.lower(),
        "global_name": None if id_ in {BOT, OTHER_BOT} else name,
        "discriminator": "0",
        "avatar": None,
        "bot": id_ in {BOT, OTHER_BOT},
        "flags": 0,
        "public_flags": 0,
    }


def application_object() -> dict[str, Any]:
    return {
        "id": APPLICATION,
        "name": "helper",
        "icon": None,
        "description": "",
        "bot_public": True,
        "bot_require_code_grant": False,
        "verify_key": "0" * 64,
        "team": None,
        "owner": user_object(ADA),
        "flags": 1 << 19,
        "approximate_guild_count": 1,
        "summary": "",
    }


def _numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return components with the ids that Discord gives them."""
    ids = count(1)
    return [
        {
            **row,
            "id": next(ids),
            "components": [{**it, "id": next(ids)} for it in row["components"]],
        }
        for row in rows
    ]


def _read_body(request: Request) -> tuple[Any, dict[int, SentFile]]:
    content_type = request.headers.get("content-type", "")
    body, files = request.body, dict[int, SentFile]()
    if content_type.startswith("multipart/form-data"):
        body, files = read_multipart(content_type, body)
    elif body and not content_type.startswith("application/json"):
        raise RefusedError(400, 50035, "Invalid Form Body")
    try:
        return (msgspec.json.decode(body) if body else None), files
    except msgspec.DecodeError:
        raise RefusedError(400, 50109, "The request body contains invalid JSON.") from None


def _fault_response(fault: Fault) -> Response:
    if fault.body is not None:
        return Response(fault.status, fault.body)
    if fault.is_html:
        headers = {"retry-after": str(int(fault.retry_after))}
        return Response(fault.status, b"<html>stop</html>", "text/html", headers)
    if fault.status == 429:
        limited = {"message": "You are being rate limited.", "global": fault.is_global}
        limited["retry_after"] = fault.retry_after
        headers = {"retry-after": str(int(fault.retry_after) + 1)}
        if fault.is_global:
            headers["x-ratelimit-global"] = "true"
        return json_response(limited, 429, **headers)
    if fault.status >= 500:
        return Response(fault.status, b"<html>something went wrong</html>", "text/html")
    refusal = {"message": "as the test wants it", "code": fault.code}
    return json_response(refusal, fault.status)


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000+00:00", time.gmtime(seconds))


@asynccontextmanager
async def open_fake_discord(clock: Callable[[], float] = time.time) -> AsyncGenerator[FakeDiscord]:
    """Serve Discord as long as the block lasts."""
    fake = FakeDiscord(clock)
    async with trio.open_nursery() as nursery, serve_http(fake.answer) as url:
        sockets = await nursery.start(
            trio_websocket.serve_websocket, fake.serve_socket, "127.0.0.1", 0, None
        )
        fake.url = f"{url}/api/v10"
        fake.gateway_url = f"ws://127.0.0.1:{sockets.port}"
        try:
            yield fake
        finally:
            nursery.cancel_scope.cancel(reason="the test is over")
