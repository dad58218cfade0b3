"""Discord's gateway: one websocket that brings events, opened again whenever it is lost.

On `RESUME`, the gateway repeats every event after a given number. This is the number of the last
event that was handled, not only received, so an event that a lost connection interrupted comes
again. The number of an event is its acknowledgement.

* TooManySessionsError   wait
* ConnectionLostError    open again after a pause, and resume if possible
* RefusedBotError        the gateway will never accept this bot
"""

import enum
from collections.abc import Awaitable, Callable
from functools import partial
from random import random
from typing import Any, Final, NoReturn, Protocol, TypeAlias, TypeVar

import attrs
import msgspec
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from orchestrator.agents import raising_one_error
from orchestrator.products.chat.discord.lanes import Lane, Lanes
from orchestrator.products.chat.discord.objects import GatewayInfo, Hello, Payload, Ready
from orchestrator.products.chat.discord.session_file import GatewaySession, SessionFile
from orchestrator.products.chat.errors import ChatError, RevokedError
from orchestrator.products.chat.troubles import Troubles
from orchestrator.products.chat.websocket import SocketLostError, close_websocket, open_websocket

INTENTS: Final = 1 << 0 | 1 << 9 | 1 << 12 | 1 << 15
"""Servers and their threads, messages in them, private messages, and the content of messages."""
FATAL: Final = {
    4004: "it refuses the token; set DISCORD_BOT_TOKEN anew",
    4010: "it refuses the shard",
    4011: "the bot is in more servers than one connection may serve",
    4012: "it speaks version 10 of the API no longer",
    4013: "it does not know the intents",
    4014: (
        "the bot may not read messages: switch on `Message Content Intent` of the bot at"
        " https://discord.com/developers/applications"
    ),
}
"""The codes after which a further attempt is useless, with their meanings."""
UNRESUMABLE: Final = frozenset({1000, 1001, 4003, 4007, 4009})
"""The codes after which a new session begins."""
PROJECT: Final = "delegation-orchestrator"
STILL_OPEN: Final = 4900
"""The code for leaving a connection, even when the process ends: 1000 or 1001 would end the
session, which the next process resumes.
"""
CONNECT_SECONDS: Final = 30
ValueT = TypeVar("ValueT")


class Op(enum.IntEnum):
    """The operation of a frame."""

    DISPATCH = 0
    HEARTBEAT = 1
    IDENTIFY = 2
    RESUME = 6
    RECONNECT = 7
    INVALID_SESSION = 9
    HELLO = 10
    HEARTBEAT_ACK = 11


class ConnectionLostError(ChatError):
    """The connection is lost, or no longer usable."""

    def __init__(self, problem: str, *, is_resumable: bool = True) -> None:
        super().__init__(f"the connection to Discord was lost: {problem}")
        self.is_resumable = is_resumable


class TooManySessionsError(ChatError):
    """The bot has begun as many sessions as one day allows."""

    def __init__(self, seconds: float) -> None:
        super().__init__("Discord lets the bot begin no more sessions today")
        self.seconds = seconds


class RefusedBotError(RevokedError):
    """The gateway will never accept this bot."""

    def __init__(self, code: int) -> None:
        super().__init__(f"Discord refuses the bot ({code}): {FATAL[code]}")
        self.code = code


@attrs.frozen
class Dispatch:
    """An event."""

    name: str
    data: msgspec.Raw


class Handler(Protocol):
    """Handles events."""

    def lane_of(self, event: Dispatch) -> Lane:
        """Return when an event is handled."""
        ...

    async def handle(self, event: Dispatch) -> None:
        """Handle an event, and return when the result is durable."""
        ...


GetGateway: TypeAlias = Callable[[], Awaitable[GatewayInfo]]


class Gateway:
    """The events of one bot."""

    def __init__(
        self,
        token: str,
        get_gateway: GetGateway,
        troubles: Troubles,
        file: SessionFile,
        *,
        is_encrypted: bool = True,
        fraction: Callable[[], float] = random,  # noqa: S311 (spreads attempts)
    ) -> None:
        """Set up without a connection; `run` connects.

        The file may contain the session of an earlier process. `is_encrypted` lets the token go
        over encrypted connections only. `fraction` returns a random number below 1.
        """
        self._is_encrypted = is_encrypted
        self._token = token
        self._get_gateway = get_gateway
        self._troubles = troubles
        self._file = file
        self._fraction = fraction
        self.session = file.load()
        self._holds = True
        """Whether the connection works, or worked until now."""

    async def run(self, handler: Handler) -> NoReturn:
        """Give the events to a handler; raise `RevokedError` if Discord refuses this bot."""
        while True:
            try:
                await self._listen(handler)
            except RevokedError:
                raise
            except ChatError as exc:
                problem = exc
            await self._pause(problem)

    async def _pause(self, problem: ChatError) -> None:
        """Wait before the next connection."""
        is_first, self._holds = self._holds, False
        if isinstance(problem, TooManySessionsError):
            await self._troubles.pause(problem)
            await trio.sleep(problem.seconds)
            return
        if isinstance(problem, ConnectionLostError) and not problem.is_resumable:
            self.session = None
            # Discord requires this pause.
            await trio.sleep(1 + 4 * self._fraction())
        if is_first:
            # This is normal: Discord itself asks for a new connection every few hours.
            await trio.sleep(self._fraction())
        else:
            await self._troubles.pause(problem)

    def note_held(self) -> None:
        """Note that a connection works, so that the next loss counts as the first."""
        self._holds = True
        self._troubles.over()

    def begin(self, ready: Ready, number: int) -> None:
        """Record the data for resuming the new session."""
        url, bot = ready.resume_gateway_url, ready.user.id
        self.session = GatewaySession(ready.session_id, url, number, bot)
        self._file.save(self.session)

    def note_handled(self, number: int) -> None:
        """Record the number of the last event before the first unhandled one."""
        if self.session is not None and number > self.session.seq:
            self.session.seq = number
            self._file.save(self.session)

    def opening(self) -> dict[str, Any]:
        """Return the payload that resumes the session, or begins a new one."""
        if self.session is not None:
            resume = {"session_id": self.session.id, "seq": self.session.seq}
            return {"op": Op.RESUME, "d": {"token": self._token, **resume}}
        properties = {"os": "linux", "browser": PROJECT, "device": PROJECT}
        identify = {"intents": INTENTS, "properties": properties}
        return {"op": Op.IDENTIFY, "d": {"token": self._token, **identify}}

    async def _listen(self, handler: Handler) -> NoReturn:
        """Open a connection, and handle its events until it is lost."""
        session = self.session
        url = session.url if session is not None else ""
        if not url:
            info = await self._get_gateway()
            url = info.url
            starts = info.session_start_limit
            if session is None and not starts.remaining:
                # One more session would revoke the token.
                raise TooManySessionsError(starts.reset_after / 1000)
        if self._is_encrypted and not url.startswith("wss://"):
            # For example, a stand-in's address that an earlier process saved in the file.
            raise ConnectionLostError("its address is not wss", is_resumable=False)
        try:
            address = f"{url.rstrip('/')}/?v=10&encoding=json"
            async with open_websocket(address) as socket:
                try:
                    await _Connection(socket, self, handler, self._fraction()).listen()
                finally:
                    await close_websocket(socket, STILL_OPEN)  # noqa: ASYNC102 (shielded)
        except SocketLostError:
            # The connection could not be opened; later losses are raised by reads and sends.
            if session is not None:
                session.url = ""
            raise


class _Connection:
    """One websocket, until it is lost."""

    def __init__(
        self, socket: WebSocketConnection, gateway: Gateway, handler: Handler, fraction: float
    ) -> None:
        self._socket = socket
        self._gateway = gateway
        self._handler = handler
        self._fraction = fraction
        self._is_acknowledged = True
        """Whether the gateway has answered the last heartbeat."""

    async def listen(self) -> NoReturn:
        try:
            with trio.fail_after(CONNECT_SECONDS):
                first = await self._read()
        except trio.TooSlowError:
            raise ConnectionLostError("it sent no first frame") from None
        if first.op != Op.HELLO:
            raise ConnectionLostError(f"its first frame is {first.op}, not HELLO")
        interval = _decode(first.d, Hello).heartbeat_interval / 1000
        with raising_one_error():
            # Owns all tasks of the connection.
            async with trio.open_nursery() as nursery:
                lanes = Lanes(nursery, self._gateway.note_handled)
                nursery.start_soon(self._beat_forever, interval)
                await self._send(self._gateway.opening())
                while True:
                    await self._take(await self._read(), lanes)

    async def _take(self, payload: Payload, lanes: Lanes) -> None:
        await trio.lowlevel.checkpoint()
        match payload.op:
            case Op.DISPATCH:
                number, event = payload.s or 0, Dispatch(payload.t or "", payload.d)
                if event.name == "READY":
                    self._gateway.begin(_decode(payload.d, Ready), number)
                lane = self._handler.lane_of(event)
                await lanes.put(number, lane, partial(self._handler.handle, event))
            case Op.HEARTBEAT:
                await self._beat()
            case Op.RECONNECT:
                raise ConnectionLostError("Discord asks for a new connection")
            case Op.INVALID_SESSION:
                is_resumable = _decode(payload.d, bool)
                problem = "the session is not valid"
                raise ConnectionLostError(problem, is_resumable=is_resumable)
            case Op.HEARTBEAT_ACK:
                self._is_acknowledged = True
                self._gateway.note_held()
            case _:
                pass  # an operation that a later version may add

    async def _beat_forever(self, interval: float) -> NoReturn:
        # Clients that were cut off together should not come back together.
        await trio.sleep(interval * self._fraction)
        while True:
            if not self._is_acknowledged:
                raise ConnectionLostError("it does not answer")
            self._is_acknowledged = False
            await self._beat()
            await trio.sleep(interval)

    async def _beat(self) -> None:
        session = self._gateway.session
        await self._send({"op": Op.HEARTBEAT, "d": session.seq if session else None})

    async def _send(self, payload: dict[str, Any]) -> None:
        try:
            await self._socket.send_message(msgspec.json.encode(payload).decode())
        except ConnectionClosed as exc:
            raise _lost(exc) from None

    async def _read(self) -> Payload:
        try:
            frame = await self._socket.get_message()
        except ConnectionClosed as exc:
            raise _lost(exc) from None
        return _decode(frame, Payload)


def _lost(closed: ConnectionClosed) -> ConnectionLostError | RefusedBotError:
    """Return the error for a closed connection."""
    code = 1006 if closed.reason is None else closed.reason.code
    if code in FATAL:
        return RefusedBotError(code)
    problem = f"it was closed with {code}"
    return ConnectionLostError(problem, is_resumable=code not in UNRESUMABLE)


def _decode(data: msgspec.Raw | str | bytes, type_: type[ValueT]) -> ValueT:
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.MsgspecError as exc:
        raise ConnectionLostError(f"it sent a message that cannot be read ({exc})") from None
