"""The server of the control socket: another process of the same user reads and controls a run.

A client sends requests in lines of JSON, and gets responses in lines of JSON:

    {"id": 1, "do": "subscribe", "after": 0}     {"id": 1, "ok": true}, then {"seq": 17} whenever
                                                 the journal has grown, at most ten times a second
    {"id": 2, "do": "cancel", "task": "t_..."}   when every one below it has ended; of a session,
                                                 what it has in the background, too
    {"id": 3, "do": "steer", "task": "t_...", "text": "..."}
    {"id": 4, "do": "answer", "approval": "a_...", "answer": "once", "reason": ""}
    {"id": 5, "do": "prune", "before": 1790000000.0}     idle runs without a fact since that time
    {"id": 6, "do": "delete", "run": "r_..."}            {"id": 6, "ok": true, "runs": 1, ...}

A response has the `id` of its request, and `ok` or `error`. No line hurts the run: one that is no
request gets an error. A command that an agent has started may subscribe, and not act: it would
approve the calls of its own agent.
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
from agents.tools.terminal.process_tags import is_started_by_command
from delegation import DelegationError
from orchestrator.control.wire import (
    PROTOCOL,
    LineReader,
    TooLongError,
    encode_line,
    socket_path,
)
from orchestrator.errors import JournalError, OrchestratorError
from orchestrator.runtime import Orchestrator

MOST_CONNECTIONS: Final = 32
MOST_REQUESTS: Final = 16
"""How many requests one connection may have in progress."""
BATCH_SECONDS: Final = 0.1
"""How long growth is collected before it is sent."""
ANSWERED_BY: Final = "the user, at another terminal"
PEER_CREDENTIALS: Final = struct.Struct("3i")
"""What Linux knows of a connected client: process, user, group."""


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
class AnswerApproval:
    approval: str
    answer: str
    reason: str = ""


@attrs.frozen
class Prune:
    before: float


@attrs.frozen
class DeleteRun:
    run: str


ControlRequest: TypeAlias = (
    Subscribe | Cancel | Steer | AnswerApproval | Prune | DeleteRun
)
REQUEST_TYPES: Final[dict[str, type[ControlRequest]]] = {
    "subscribe": Subscribe,
    "cancel": Cancel,
    "steer": Steer,
    "answer": AnswerApproval,
    "prune": Prune,
    "delete": DeleteRun,
}


@asynccontextmanager
async def open_control(
    orchestrator: Orchestrator, journal: Path
) -> AsyncGenerator[Path | None]:
    """Serve other processes, as long as the block lasts.

    Yields the path of the socket, or None if there can be none: then the run goes on without it.

    Args:
        orchestrator: the orchestrator that they read and control. It holds the lock of the
            journal, so no other process opens the same socket.
        journal: the file that it writes.
    """
    path = socket_path(journal)
    try:
        listening = _listen(path)
    except OSError:
        yield None
        return
    connections = trio.CapacityLimiter(MOST_CONNECTIONS)

    async def serve(stream: trio.SocketStream) -> None:
        await _serve(orchestrator, stream, connections)

    with _remove_at_exit(path), raising_one_error():
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
    # Only the writer of the journal comes here: an existing socket is of a process that is gone.
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(path)
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.bind(os.fspath(path))
        # No client can connect before `listen`, so none precedes the change of the mode.
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
def _remove_at_exit(path: Path) -> Generator[None]:
    """Remove a socket at the end of the block, unless another has replaced it."""
    ours = path.lstat()
    try:
        yield
    finally:
        with suppress(OSError):
            if os.path.samestat(path.lstat(), ours):
                path.unlink()


def _peer(stream: trio.SocketStream) -> tuple[int, int]:
    """Return the process id and the user of a client, where the system knows them."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.getuid()  # then the mode of the socket is what keeps others out
    peer = stream.socket.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size
    )
    pid, user, _ = PEER_CREDENTIALS.unpack(peer)
    return pid, user


async def _serve(
    orchestrator: Orchestrator,
    stream: trio.SocketStream,
    connections: trio.CapacityLimiter,
) -> None:
    await trio.lowlevel.checkpoint()
    # The client may close the connection at any time.
    with suppress(trio.BrokenResourceError), raising_one_error():
        async with stream:
            pid, user = _peer(stream)
            if user not in {os.getuid(), 0}:
                return
            try:
                connections.acquire_on_behalf_of_nowait(stream)
            except trio.WouldBlock:
                await stream.send_all(encode_line({"error": "too many are connected"}))
                return
            try:
                can_act = not (pid and is_started_by_command(pid))
                await _Connection(orchestrator, stream, can_act=can_act).serve()
            finally:
                connections.release_on_behalf_of(stream)


class _Connection:
    """The connection of one client."""

    def __init__(
        self, orchestrator: Orchestrator, stream: trio.SocketStream, *, can_act: bool
    ) -> None:
        self._orchestrator = orchestrator
        self._stream = stream
        self._can_act = can_act
        self._send_lock = trio.Lock()
        self._in_progress = 0
        self._subscription = trio.CancelScope()
        self._is_subscribed = False

    async def serve(self) -> None:
        """Handle requests until the client leaves; those in progress are finished."""
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
                    if self._in_progress >= MOST_REQUESTS:
                        await self._send({"error": "too much is under way; wait"})
                        continue
                    self._in_progress += 1
                    nursery.start_soon(self._handle, line)
                self._subscription.cancel(reason="the client has left")

    async def _handle(self, line: bytes) -> None:
        id_: object = None
        try:
            id_, request = _parse_request(line)
            await self._send({"id": id_, "ok": True, **await self._execute(request)})
        except (OrchestratorError, DelegationError, ValueError) as exc:
            await self._send({"id": id_, "error": str(exc)})
        else:
            if isinstance(request, Subscribe):
                await self._send_growth_forever(request.after)
        finally:
            self._in_progress -= 1

    async def _execute(self, request: ControlRequest) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        if not (self._can_act or isinstance(request, Subscribe)):
            raise ValueError("what an agent has started may look, and not act")
        match request:
            case Cancel(task):
                await self._orchestrator.cancel(task, tree=True)
            case Steer(task, text):
                receipt = await self._orchestrator.steer(task, text)
                return {"state": receipt.state}
            case AnswerApproval(approval, answer, reason):
                await self._orchestrator.answer(
                    approval, answer, reason=reason, by=ANSWERED_BY
                )
            case Prune(before):
                return attrs.asdict(await self._orchestrator.prune(before=before))
            case DeleteRun(run):
                return attrs.asdict(await self._orchestrator.delete_run(run))
            case Subscribe():
                if self._is_subscribed:
                    raise ValueError("it has subscribed already")
                self._is_subscribed = True
        return {}

    async def _send_growth_forever(self, after: int) -> None:
        await trio.lowlevel.checkpoint()
        with self._subscription, suppress(JournalError):
            while True:
                await self._orchestrator.read.wait_posted(after=after)
                # By then the group commit has written it anyway: this costs no flush.
                await trio.sleep(BATCH_SECONDS)
                after = await self._orchestrator.read.wait_durable(after=after)
                await self._send({"seq": after})

    async def _send(self, message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        # A client that has closed its receiving end may have sent requests that are not read yet.
        with suppress(trio.BrokenResourceError):
            async with self._send_lock:
                await self._stream.send_all(encode_line(message))


def _parse_request(line: bytes) -> tuple[object, ControlRequest]:
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        kind = REQUEST_TYPES.get(str(fields.pop("do", "")))
        if kind is None:
            raise ValueError(f"say what to do: {', '.join(REQUEST_TYPES)}")
        return fields.pop("id", None), msgspec.convert(fields, type=kind)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc
