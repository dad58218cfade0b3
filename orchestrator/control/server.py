"""The control socket: another process of the same user looks at a run, and acts on it.

Whoever connects says what it wants in lines of JSON, and is answered in lines of JSON:

    {"id": 1, "do": "subscribe", "after": 0}     {"id": 1, "ok": true}, then {"seq": 17} whenever
                                                 the journal has grown, at most ten times a second
    {"id": 2, "do": "cancel", "task": "t_..."}   when every one below it has ended; of a session,
                                                 what it has in the background, too
    {"id": 3, "do": "steer", "task": "t_...", "text": "..."}
    {"id": 4, "do": "answer", "approval": "a_...", "answer": "once", "reason": ""}

An answer has the `id` of what it answers, and `ok` or `error`. Nothing that anybody sends here
hurts the run: what is no such line is answered with an error. A command that an agent has started
may look, and not act: it would approve what its own agent asks.
"""

import os
import socket
import stat
import struct
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import trio

from agents import raising_one_error
from agents.tools.terminal.process_tags import is_of_a_command
from delegation import DelegationError
from orchestrator.control.wire import (
    PROTOCOL,
    LineReader,
    TooLongError,
    line_of,
    socket_path,
)
from orchestrator.errors import JournalError, OrchestratorError
from orchestrator.runtime import Orchestrator

MOST_CONNECTIONS: Final = 32
MOST_WISHES: Final = 16
"""How much one connection may have under way."""
PAUSE_SECONDS: Final = 0.1
"""How long growth is gathered before it is told."""
BY: Final = "the user, at another terminal"
PEER: Final = struct.Struct("3i")
"""What Linux tells of whoever has connected: process, user, group."""


@attrs.frozen
class Subscribe:
    after: int = 0


@attrs.frozen
class Cancel:
    task: str


@attrs.frozen
class Steer:
    task: str
    text: str


@attrs.frozen
class AnswerAsk:
    approval: str
    answer: str
    reason: str = ""


Wish: TypeAlias = Subscribe | Cancel | Steer | AnswerAsk
WISHES: Final[dict[str, type[Wish]]] = {
    "subscribe": Subscribe,
    "cancel": Cancel,
    "steer": Steer,
    "answer": AnswerAsk,
}


@asynccontextmanager
async def open_control(
    orchestrator: Orchestrator, journal: Path
) -> AsyncGenerator[Path | None]:
    """Let other processes look and act, as long as the block lasts.

    Gives the path of the socket, or None where there can be none: then a run does without.

    Args:
        orchestrator: whom they act on. It writes the journal, so that nobody else can.
        journal: the file that it writes.
    """
    path = socket_path(journal)
    try:
        listening = _listen(path)
    except OSError:
        yield None
        return
    room = trio.CapacityLimiter(MOST_CONNECTIONS)

    async def serve(stream: trio.SocketStream) -> None:
        await _serve(orchestrator, stream, room)

    with _removing(path), raising_one_error():
        async with trio.open_nursery() as nursery:
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
            nursery.start_soon(trio.serve_listeners, serve, [listener])
            yield path
            nursery.cancel_scope.cancel(reason="the run has ended")


def _listen(path: Path) -> socket.socket:
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700)
    if path.parent.parent == Path("/tmp"):  # noqa: S108 (others may have made that folder)
        _require_private(path.parent)
    # Only who writes the journal comes here: what is left there is of a process that is gone.
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(path)
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.bind(os.fspath(path))
        # Nobody can connect before we listen, so nobody can come in between.
        path.chmod(0o600)
        listening.listen(MOST_CONNECTIONS)
    except BaseException:
        listening.close()
        raise
    return listening


def _require_private(folder: Path) -> None:
    found = folder.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(folder)


@contextmanager
def _removing(path: Path) -> Generator[None]:
    """Remove a socket in the end, unless it is another one by then."""
    ours = path.lstat()
    try:
        yield
    finally:
        with suppress(OSError):
            if os.path.samestat(path.lstat(), ours):
                path.unlink()


def _peer(stream: trio.SocketStream) -> tuple[int, int]:
    """Return which process has connected, and of which user, where the system knows."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.getuid()  # then the mode of the socket is what keeps others out
    peer = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    pid, user, _ = PEER.unpack(peer)
    return pid, user


async def _serve(
    orchestrator: Orchestrator, stream: trio.SocketStream, room: trio.CapacityLimiter
) -> None:
    await trio.lowlevel.checkpoint()
    # Whoever is at the other end may leave at any time, and in the midst of anything.
    with suppress(trio.BrokenResourceError), raising_one_error():
        async with stream:
            pid, user = _peer(stream)
            if user not in {os.getuid(), 0}:
                return
            try:
                room.acquire_on_behalf_of_nowait(stream)
            except trio.WouldBlock:
                await stream.send_all(line_of({"error": "too many are connected"}))
                return
            try:
                can_act = not (pid and is_of_a_command(pid))
                await _Connection(orchestrator, stream, can_act=can_act).serve()
            finally:
                room.release_on_behalf_of(stream)


class _Connection:
    """One process that is connected."""

    def __init__(
        self, orchestrator: Orchestrator, stream: trio.SocketStream, *, can_act: bool
    ) -> None:
        self._orchestrator = orchestrator
        self._stream = stream
        self._can_act = can_act
        self._sending = trio.Lock()
        self._under_way = 0
        self._subscription = trio.CancelScope()
        self._is_subscribed = False

    async def serve(self) -> None:
        """Do what it wants until it leaves; what is under way then comes to its end."""
        await self._send({"protocol": PROTOCOL, "pid": os.getpid()})
        lines = LineReader(self._stream)
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                while True:
                    try:
                        line = await lines.read()
                    except TooLongError as exc:
                        await self._send({"error": str(exc)})
                        continue
                    if line is None:
                        break
                    if self._under_way >= MOST_WISHES:
                        await self._send({"error": "too much is under way; wait"})
                        continue
                    self._under_way += 1
                    nursery.start_soon(self._obey, line)
                self._subscription.cancel(reason="nobody listens any more")

    async def _obey(self, line: bytes) -> None:
        id_: object = None
        try:
            id_, wish = _read(line)
            await self._send({"id": id_, "ok": True, **await self._do(wish)})
        except (OrchestratorError, DelegationError, ValueError) as exc:
            await self._send({"id": id_, "error": str(exc)})
        else:
            if isinstance(wish, Subscribe):
                await self._tell_growth(wish.after)
        finally:
            self._under_way -= 1

    async def _do(self, wish: Wish) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        if not (self._can_act or isinstance(wish, Subscribe)):
            raise ValueError("what an agent has started may look, and not act")
        match wish:
            case Cancel(task):
                await self._orchestrator.cancel(task, tree=True)
            case Steer(task, text):
                receipt = await self._orchestrator.steer(task, text)
                return {"state": receipt.state}
            case AnswerAsk(approval, answer, reason):
                await self._orchestrator.answer(approval, answer, reason=reason, by=BY)
            case Subscribe():
                if self._is_subscribed:
                    raise ValueError("it has subscribed already")
                self._is_subscribed = True
        return {}

    async def _tell_growth(self, after: int) -> None:
        await trio.lowlevel.checkpoint()
        with self._subscription, suppress(JournalError):
            while True:
                await self._orchestrator.wait_changed(after=after)
                # What nobody waits for is on the disk by then, too: this costs no flush.
                await trio.sleep(PAUSE_SECONDS)
                after = await self._orchestrator.wait_kept(after=after)
                await self._send({"seq": after})

    async def _send(self, message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        # Whoever does not listen any more may have said something before that is to be read.
        with suppress(trio.BrokenResourceError):
            async with self._sending:
                await self._stream.send_all(line_of(message))


def _read(line: bytes) -> tuple[object, Wish]:
    try:
        said = msgspec.json.decode(line, type=dict[str, Any])
        kind = WISHES.get(str(said.pop("do", "")))
        if kind is None:
            raise ValueError(f"say what to do: {', '.join(WISHES)}")
        return said.pop("id", None), msgspec.convert(said, type=kind)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc
