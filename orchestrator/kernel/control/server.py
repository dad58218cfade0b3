"""The server of the control socket: another process of the same user reads and controls a run.

A client sends requests in lines of JSON, and gets responses in lines of JSON:

    {"id": 1, "do": "subscribe", "after": 0}     {"id": 1, "ok": true}, then {"seq": 17} whenever
                                                 the journal has grown, at most ten times a second;
                                                 "waits" has the calls that wait for a provider
    {"id": 2, "do": "cancel", "task": "t_..."}   answered when all tasks below it have ended; for a
                                                 session, its background tasks are included
    {"id": 3, "do": "steer", "task": "t_...", "text": "..."}
    {"id": 4, "do": "answer", "approval": "a_...", "answer": "once", "reason": ""}
    {"id": 5, "do": "prune", "before": 1790000000.0}     idle runs without a fact since that time
    {"id": 6, "do": "delete", "run": "r_..."}            {"id": 6, "ok": true, "runs": 1, ...}
    {"id": 7, "do": "job", "job": "brief", "action": "run"}     or pause, resume, remove; run
                                                    returns {"id": 7, "ok": true, "run": "r_..."}
    {"id": 8, "do": "edit_job", "job": "brief", "edit": {"schedule": "0 9 * * *"}}
    {"id": 9, "do": "pause", "task": "t_...", "paused": true}   or false; for new tasks below it

A response has the `id` of its request, and `ok` or `error`. A line that is not a request gets an
error, and never harms the run. A command that an agent has started may subscribe but not act,
because it would approve the calls of its own agent. A process of unknown origin may not act either.
"""

import math
import os
import socket
import stat
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias, assert_never

import attrs
import msgspec
import trio
from msgspec.structs import asdict, replace

from orchestrator.agents import raising_one_error
from orchestrator.agents.tools.terminal.process_origin import Origin
from orchestrator.delegation import DelegationError
from orchestrator.kernel.control import wire
from orchestrator.kernel.control.peer import Peer
from orchestrator.kernel.engine.scheduler_slot import JobAction, JobEdit, JobScheduler
from orchestrator.kernel.errors import JournalError, OrchestratorError
from orchestrator.kernel.journal.audit import AuditEvent, AuditWriter, local_actor
from orchestrator.kernel.journal.refusals import RefusalCounter
from orchestrator.kernel.orchestrator import Orchestrator

MOST_CONNECTIONS: Final = 32
BACKLOG: Final = 128
MOST_OF_PROCESS: Final = 8
MOST_OF_COMMANDS: Final = 4
"""How many connections there may be of all processes that may not act."""
FIRST_SECONDS: Final = 10
"""How long a client may take for its first request."""
MOST_REQUESTS: Final = 16
"""How many requests one connection may have in progress."""
BATCH_SECONDS: Final = 0.1
"""How long growth is collected before it is sent."""
MOST_WAITS: Final = 200
"""The most tasks whose wait for a provider is sent: a display shows no more."""
ANSWERED_BY: Final = "the user, at another terminal"
NOT_ALLOWED: Final = {
    Origin.COMMAND: "what an agent has started may look, and not act",
    Origin.UNKNOWN: "the process that connected has ended, or cannot be seen from here: it may"
    " look, and not act",
}


@attrs.frozen
class Subscribe:
    after: int = 0


@attrs.frozen
class Cancel:
    task: str


@attrs.frozen
class Pause:
    task: str
    paused: bool = True


@attrs.frozen
class Steer:
    task: str
    text: str


@attrs.frozen
class AnswerApproval:
    approval: str
    answer: str
    reason: str = ""
    by: str = ""
    """The name of the person who answers, for the record."""


@attrs.frozen
class Prune:
    before: float


@attrs.frozen
class DeleteRun:
    run: str


@attrs.frozen
class ControlJob:
    job: str
    action: JobAction


@attrs.frozen
class EditJob:
    job: str
    edit: JobEdit


Action: TypeAlias = (
    Cancel | Pause | Steer | AnswerApproval | Prune | DeleteRun | ControlJob | EditJob
)
ControlRequest: TypeAlias = Subscribe | Action
REQUEST_TYPES: Final[dict[str, type[ControlRequest]]] = {
    "subscribe": Subscribe,
    "cancel": Cancel,
    "pause": Pause,
    "steer": Steer,
    "answer": AnswerApproval,
    "prune": Prune,
    "delete": DeleteRun,
    "job": ControlJob,
    "edit_job": EditJob,
}


@asynccontextmanager
async def open_control(orchestrator: Orchestrator, journal: Path) -> AsyncGenerator[Path | None]:
    """Serve other processes, as long as the block lasts.

    Yields the path of the socket, or None if it cannot be opened: then the run goes on without it.

    Args:
        orchestrator: the orchestrator that they read and control. It holds the lock of the
            journal, so no other process opens the same socket.
        journal: the file that it writes.
    """
    path = wire.socket_path(journal)
    try:
        listening = _listen(path)
    except OSError:
        yield None
        return
    connected = _Connected()
    audit = _Audit(orchestrator.facts)

    async def serve(stream: trio.SocketStream) -> None:
        await _serve(orchestrator, stream, connected, audit)

    with _remove_at_exit(path), raising_one_error():
        async with trio.open_nursery() as nursery:
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
            nursery.start_soon(trio.serve_listeners, serve, [listener])
            nursery.start_soon(audit.refusals.record_forever)
            yield path
            nursery.cancel_scope.cancel(reason="the run has ended")
        audit.refusals.flush()


def _listen(path: Path) -> socket.socket:
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700)
    if wire.is_shared(path.parent.parent):
        wire.require_private(path.parent)
    # Only the writer of the journal comes here: an existing socket is of a process that is gone.
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(path)
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.bind(os.fspath(path))
        # No client can connect before `listen`, so no client precedes the change of the mode.
        path.chmod(0o600)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


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


class _Connected:
    """Counts connections: no single process, and not the commands of agents, may take them all."""

    def __init__(self) -> None:
        self._of_commands = 0
        self._of_process: Counter[int] = Counter()

    @contextmanager
    def count(self, peer: Peer, origin: Origin) -> Generator[bool]:
        """Count a connection as long as the block lasts, and tell whether there may be one more."""
        if origin is not Origin.ELSEWHERE:
            self._of_commands += 1
            try:
                yield self._of_commands <= MOST_OF_COMMANDS
            finally:
                self._of_commands -= 1
            return
        self._of_process[peer.pid] += 1
        try:
            yield (
                self._of_process[peer.pid] <= MOST_OF_PROCESS
                and self._of_process.total() <= MOST_CONNECTIONS
            )
        finally:
            self._of_process[peer.pid] -= 1
            if not self._of_process[peer.pid]:
                del self._of_process[peer.pid]


async def _serve(
    orchestrator: Orchestrator, stream: trio.SocketStream, connected: _Connected, audit: "_Audit"
) -> None:
    await trio.lowlevel.checkpoint()
    # The client may close the connection at any time.
    with suppress(trio.BrokenResourceError), raising_one_error():
        async with stream:
            with Peer(stream.socket) as peer:
                if peer.user not in {os.getuid(), 0}:
                    return
                with connected.count(peer, await peer.origin()) as has_place:
                    if not has_place:
                        error = {"error": "too many are connected"}
                        await stream.send_all(wire.encode_line(error))
                        return
                    connection = _Connection(orchestrator, stream, peer, audit)
                    await connection.serve()


class _Audit:
    """Records the actions of clients; refused actions are counted."""

    def __init__(self, writer: AuditWriter) -> None:
        self.writer = writer
        self.refusals = RefusalCounter(writer)

    @contextmanager
    def record(self, event: AuditEvent, *, is_recorded_later: bool) -> Generator[None]:
        """Record an action before its first fact, and count it if it fails.

        A deletion records itself, if it deletes anything (`is_recorded_later`).
        """
        if not is_recorded_later:
            self.writer.audit(event)
        try:
            yield
        except (OrchestratorError, DelegationError, ValueError) as exc:
            self.refusals.count(replace(event, outcome=type(exc).__name__))
            raise


class _Connection:
    """The connection of one client."""

    def __init__(
        self, orchestrator: Orchestrator, stream: trio.SocketStream, peer: Peer, audit: _Audit
    ) -> None:
        self._orchestrator = orchestrator
        self._stream = stream
        self._peer = peer
        self._audit = audit
        self._send_lock = trio.Lock()
        self._in_progress = 0
        self._subscription = trio.CancelScope()
        self._is_subscribed = False

    async def serve(self) -> None:
        """Handle requests until the client leaves; started requests are finished."""
        await self._send({"protocol": wire.PROTOCOL, "pid": os.getpid()})
        lines = wire.LineReader(self._stream)
        patience: float = FIRST_SECONDS
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                while True:
                    line: bytes | None = None
                    try:
                        with trio.move_on_after(patience):
                            line = await lines.read()
                    except wire.TooLongError as exc:
                        await self._send({"error": str(exc)})
                        continue
                    finally:
                        patience = math.inf
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
        if isinstance(request, Subscribe):
            if self._is_subscribed:
                raise ValueError("it has subscribed already")
            self._is_subscribed = True
            return {}
        event = self._event_of(request)
        origin = await self._peer.origin()
        if origin is not Origin.ELSEWHERE:
            self._audit.refusals.count(replace(event, outcome="refused"))
            raise ValueError(NOT_ALLOWED[origin])
        is_deletion = isinstance(request, Prune | DeleteRun)
        with self._audit.record(event, is_recorded_later=is_deletion):
            response = await self._carry_out(request, event)
        await self._audit.writer.wait_audited()
        return response

    def _event_of(self, request: Action) -> AuditEvent:
        match request:
            case Cancel(task) | Pause(task) | Steer(task):
                target = task
            case AnswerApproval(approval):
                target = approval
            case Prune():
                target = ""
            case DeleteRun(run):
                target = run
            case ControlJob(job) | EditJob(job):
                target = job
            case _:
                assert_never(request)
        names = {kind: name for name, kind in REQUEST_TYPES.items()}
        return AuditEvent(
            actor=local_actor(self._peer.user),
            action=f"control.{names[type(request)]}",
            target=target,
            peer=f"pid {self._peer.pid}",
        )

    async def _carry_out(self, request: Action, event: AuditEvent) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        match request:
            case Cancel(task):
                await self._orchestrator.cancel(task, tree=True)
            case Pause(task, paused):
                act = self._orchestrator.pause if paused else self._orchestrator.unpause
                await act(task)
            case Steer(task, text):
                receipt = await self._orchestrator.steer(task, text)
                return {"state": receipt.state}
            case AnswerApproval(approval, answer, reason, by):
                by = by or ANSWERED_BY
                await self._orchestrator.answer(approval, answer, reason=reason, by=by)
            case Prune(before):
                pruned = await self._orchestrator.prune(before=before, by=event)
                return asdict(pruned)
            case DeleteRun(run):
                pruned = await self._orchestrator.delete_run(run, by=event)
                return asdict(pruned)
            case ControlJob(job, action):
                run = self._scheduler.act(job, action)
                await self._orchestrator.facts.wait_durable()
                return {"run": run}
            case EditJob(job, edit):
                self._scheduler.edit(job, edit)
                await self._orchestrator.facts.wait_durable()
            case _:
                assert_never(request)
        return {}

    @property
    def _scheduler(self) -> JobScheduler:
        scheduler = self._orchestrator.sessions.scheduler.current
        if scheduler is None:
            raise ValueError("this process begins no jobs")
        return scheduler

    async def _send_growth_forever(self, after: int) -> None:
        await trio.lowlevel.checkpoint()
        with self._subscription, suppress(JournalError):
            while True:
                await self._orchestrator.read.wait_posted(after=after)
                # By then the group commit has written it anyway: this costs no flush.
                await trio.sleep(BATCH_SECONDS)
                after = await self._orchestrator.read.wait_durable(after=after)
                message: dict[str, Any] = {"seq": after}
                if waits := self._orchestrator.read.awaited_providers():
                    message["waits"] = dict(islice(waits.items(), MOST_WAITS))
                await self._send(message)

    async def _send(self, message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        # A client that has closed its receiving end may have sent requests that are not read yet.
        with suppress(trio.BrokenResourceError):
            async with self._send_lock:
                await self._stream.send_all(wire.encode_line(message))


def _parse_request(line: bytes) -> tuple[object, ControlRequest]:
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        kind = REQUEST_TYPES.get(str(fields.pop("do", "")))
        if kind is None:
            raise ValueError(f"say what to do: {', '.join(REQUEST_TYPES)}")
        return fields.pop("id", None), msgspec.convert(fields, type=kind)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc
