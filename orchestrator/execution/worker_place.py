"""The place of tool calls that workers run: the writer of the journal lends them, and decides.

A call is sent when it is durable, and accepted for one run of one attempt; whatever any other run
says is fenced. A run begins when the fact that names it is durable, so a call without that fact
has never run. An end is acknowledged when its answer is durable, so the next writer gets what this
one could not record. A run whose worker is gone is tried again if the tool may run twice; else the
call is broken off.
"""

import math
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, NoReturn, TypeAlias, assert_never

import attrs
import trio

from agents import (
    AgentError,
    CallKey,
    DefinitionError,
    RefusedBy,
    Tool,
    ToolCall,
    ToolError,
    raising_one_error,
)
from agents.tools.context import commands_are_walled
from agents.tools.result_text import ToolResult
from delegation import DeliveryCapability, TaskId, TaskRecord, root_of
from delegation.events import CallPlaced, Entry, TaskSettled, ToolAnswered, TurnEnded
from orchestrator.execution.agent_catalogue import fingerprint
from orchestrator.execution.agent_registry import AgentRegistry
from orchestrator.execution.worker_wire import (
    MOST_BYTES,
    Answered,
    Begin,
    Crashed,
    End,
    Failed,
    Fenced,
    Later,
    Stopped,
    Taken,
    Unfit,
    Work,
    call_prefix_in,
    dispatch_id,
    encoded,
    question_in,
    size_of,
)
from orchestrator.journal.bookkeeper import Bookkeeper
from orchestrator.workers import (
    Dispatch,
    DispatchId,
    Exchange,
    Presence,
    Request,
    RunId,
    Tenure,
    WorkerId,
    WorkerSeen,
    WorkQueue,
    WriterMailbox,
    attempt_number,
)

LOOK_SECONDS: Final = 1.0
"""How often the writer looks which workers are alive, while any call is lent."""
SHOWN_AFTER: Final = 2.0
"""How long a call waits for a worker before its task is shown as waiting for one."""
LATE_SECONDS: Final = 10.0
"""How much later than the worker the writer gives a call up that is over its timeout."""
STOP_SECONDS: Final = 60.0
"""How long a cancelled call waits at most until nothing of it runs. Leases are shorter."""
CLOSE_SECONDS: Final = 2.0
"""How long a writer that closes takes to say what it has recorded."""
RESEND_SECONDS: Final = 30.0
"""How long a call waits beside an idle worker before it is sent again."""
LONGEST_PAUSE: Final = 30.0
"""The longest pause before a call is sent again that a worker has refused."""
GONE: Final = "broken off: the worker that ran it is gone, and its effect is unknown"
ENDED_BY_WORKER: Final = (
    "broken off: its worker was stopped during this call, and its effect is unknown"
)
UNREADABLE: Final = (
    "the worker that ran it sent an answer that cannot be read; its effect is unknown"
)


class WorkerCallError(AgentError):
    """A tool failed on its worker with an error that ends the task."""


OpenExchange: TypeAlias = Callable[[], AbstractAsyncContextManager[Exchange]]


@attrs.frozen
class _Lender:
    """What work is lent by."""

    tenure: Tenure
    queue: WorkQueue
    mailbox: WriterMailbox
    presence: Presence


class _LentCall:
    """One call, from its first dispatch to its end."""

    def __init__(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord, version: str
    ) -> None:
        self.tool = tool
        self.call = call
        self.key = key
        self.task = task
        self.version = version
        """The fingerprint of its agent."""
        self.walled = commands_are_walled()
        self.id = dispatch_id(task.call_prefix, call.id)
        self.attempt = 0
        self.tries = 0
        self.run: RunId | None = None
        """The one that counts; None while it waits for a worker."""
        self.worker = WorkerId("")
        self.beats: int | None = None
        """How often its worker had been heard of when it was first looked for."""
        self.is_missing = False
        """Its run was not found when workers were looked at last."""
        self.is_over = False
        """Its caller waits for no answer any more: no run may begin."""
        self.is_shown = False
        """A fact says that it waits for a worker."""
        self.since = trio.current_time()
        """Since when it waits for a worker."""
        self.pause = LOOK_SECONDS
        self.refusals = 0
        """How many workers in a row could not run it."""
        self.scope = trio.CancelScope()
        self.deadline = math.inf if tool.timeout is None else self.since + tool.timeout
        self.end: End | None = None
        self.request: Request | None = None
        """What has told the end, to be acknowledged."""
        self.ended = trio.Event()

    def dispatch(self, journal: str) -> Dispatch:
        return Dispatch(self.id, self.attempt, journal, self.tool.place)

    def accept(self, run: RunId, worker: WorkerId) -> None:
        self.run, self.worker, self.beats = run, worker, None
        self.is_missing = False
        # The worker has a clock of its own, and tells when it is over.
        self.scope.deadline = self.deadline + LATE_SECONDS

    def wait_again(self) -> None:
        self.run, self.worker, self.beats = None, WorkerId(""), None
        self.is_missing = self.is_shown = False
        self.since = trio.current_time()
        self.scope.deadline = self.deadline

    def set_end(self, end: End, request: Request | None = None) -> None:
        if self.end is None:
            self.end, self.request = end, request
        self.ended.set()

    @property
    def seconds_left(self) -> float | None:
        if math.isinf(self.deadline):
            return None
        return max(0.0, self.deadline - trio.current_time())


class WorkerPlace:
    """Lends the calls of tools with a place to workers (`ToolPlace`)."""

    has_effects = True
    resumes_calls = True

    def __init__(
        self,
        book: Bookkeeper,
        registry: AgentRegistry,
        tenure: Tenure,
        open_exchange: OpenExchange,
        *,
        here: Collection[str] = (),
    ) -> None:
        """Lend calls.

        Args:
            book: posts where calls run.
            registry: finds the agents of tasks.
            tenure: the right to write the journal, which all is lent under.
            open_exchange: connects to what carries work, when the first call is lent.
            here: the places whose calls run in this process.
        """
        self._book = book
        self._registry = registry
        self._tenure = tenure
        self._open_exchange = open_exchange
        self._here = frozenset(here)
        self._is_closing = False
        self._closed = trio.Event()
        self._is_silent = False
        """No worker is heard any more: another process writes the journal, or it is closed."""
        # Whatever is cancelled around it: calls that are cancelled wait for what workers say.
        self._lending = trio.CancelScope(shield=True)
        self._needed = trio.Event()
        self._opened = trio.Event()
        self._lender: _Lender | None = None
        self._calls: dict[DispatchId, _LentCall] = {}
        self._to_send: list[Dispatch] = []
        self._to_withdraw: list[Dispatch] = []
        self._send_due = trio.Event()
        self._parked: dict[RunId, list[Request]] = {}
        """What runs say whose calls nothing here waits for yet: their tasks are interrupted."""
        self._unrecorded: dict[tuple[TaskId, str], Request] = {}
        """The ends that are to be acknowledged when their answers are recorded, by call."""
        self._recorded: list[Request] = []
        self._ack_due = trio.Event()
        self._finished: dict[RunId, WorkerId] = {}
        """Runs that count no more, until their workers hold them no more."""
        self._refused: set[tuple[WorkerId, str]] = set()
        """The workers that have another version of an agent, and the version they lack."""
        self._look_due = trio.Event()

    def takes(self, tool: Tool, task: TaskRecord) -> bool:
        return bool(tool.place) and tool.place not in self._here

    def close(self) -> None:
        """Leave what runs to the next writer from now on, where a task can be resumed."""
        self._is_closing = True

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Carry what writer and workers say, for the block."""
        with (
            self._book.subscribers.subscribe_kinds(
                self._on_recorded, (ToolAnswered, TaskSettled, TurnEnded)
            ),
            raising_one_error(),
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._lend_forever)
                try:
                    yield
                finally:
                    self._closed.set()
                    if self._lender is None:
                        self._lending.cancel(reason="nothing is lent")
                    else:
                        # The last ends are acknowledged, so that no worker offers them for ever.
                        self._lending.deadline = trio.current_time() + CLOSE_SECONDS

    async def run(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord
    ) -> str | ToolResult:
        _require_small(tool.name, "the arguments of {}", size_of(call.arguments))
        agent = self._registry.agent_of(task)
        lent = _LentCall(tool, call, key, task, fingerprint(agent))
        self._needed.set()
        # An answer that a crash could still undo is sent nowhere.
        await self._book.wait_durable()
        with trio.CancelScope(deadline=lent.deadline) as opening:
            await self._opened.wait()
        if opening.cancelled_caught:
            raise _not_taken(lent)
        self._calls[lent.id] = lent
        self._look_due.set()
        try:
            self._begin(lent)
            with lent.scope:
                await lent.ended.wait()
            if lent.end is None:
                raise _not_taken(lent) if lent.run is None else _too_late(lent)
        finally:
            with trio.CancelScope(shield=True):
                await self._leave(lent)
        return _result(lent)

    def _begin(self, lent: _LentCall) -> None:
        """Send a call, or adopt the run that an earlier writer has accepted."""
        placed = lent.task.placed.get(lent.call.id)
        if placed is not None:
            lent.attempt = placed.attempt
        if placed is None or not placed.run:
            self._send(lent)
            return
        lent.accept(RunId(placed.run), WorkerId(placed.worker))
        for request in self._parked.pop(RunId(placed.run), ()):
            if self._hear(request) is not None:
                # The fact that names the run is an earlier writer's, so it is durable.
                self._reply(request, self._work(lent))

    def _send(self, lent: _LentCall) -> None:
        """Send the next attempt of a call."""
        tenure = self._lent.tenure
        lent.attempt = max(attempt_number(tenure.epoch, lent.tries), lent.attempt + 1)
        lent.tries += 1
        lent.wait_again()
        self._to_send.append(lent.dispatch(tenure.journal))
        self._send_due.set()

    async def _leave(self, lent: _LentCall) -> None:
        """Return when nothing of a call runs, its lease is over, or the next writer has it."""
        await trio.lowlevel.checkpoint()
        lent.is_over = True
        try:
            if lent.end is not None:
                self._acknowledge_later(lent)
            elif self._is_left_to_next(lent.task):
                pass
            elif lent.run is None:
                self._to_withdraw.append(lent.dispatch(self._lent.tenure.journal))
                self._send_due.set()
            else:
                self._stop(lent.run, lent.worker)
                if not (lent.scope.cancelled_caught or self._is_silent):
                    with trio.move_on_after(STOP_SECONDS):
                        await lent.ended.wait()
                    self._acknowledge_later(lent)
        finally:
            del self._calls[lent.id]

    def _is_left_to_next(self, task: TaskRecord) -> bool:
        """Return whether the next writer goes on with the calls of a task."""
        if self._book.is_broken:
            return True  # it is not for us to stop anything
        return self._is_closing and not self._book.ledger.settles_on_teardown(task.id)

    def _stop(self, run: RunId, worker: WorkerId) -> None:
        """Have a run stopped that counts no more."""
        self._lent.mailbox.stop(worker, run)
        self._finished[run] = worker
        self._look_due.set()

    def _acknowledge_later(self, lent: _LentCall) -> None:
        if lent.request is None:
            return
        if isinstance(lent.end, Stopped):
            self._recorded.append(lent.request)
            self._ack_due.set()
        else:
            self._unrecorded[lent.task.id, lent.call.id] = lent.request

    def _on_recorded(self, entry: Entry, _: object) -> None:
        match entry.event:
            case ToolAnswered(task, message):
                request = self._unrecorded.pop((task, message.call), None)
                recorded = [] if request is None else [request]
            case TaskSettled(task):
                recorded = self._of_task(task)
            case TurnEnded(session):
                recorded = self._of_task(root_of(session))
            case _:
                return
        if recorded:
            self._recorded += recorded
            self._ack_due.set()

    def _of_task(self, task: TaskId) -> list[Request]:
        keys = [key for key in self._unrecorded if key[0] == task]
        return [self._unrecorded.pop(key) for key in keys]

    @property
    def _lent(self) -> _Lender:
        assert self._lender is not None, "nothing is lent before it is open"
        return self._lender

    async def _lend_forever(self) -> None:
        await trio.lowlevel.checkpoint()
        try:
            with self._lending:
                if not self._has_open_runs():
                    await self._needed.wait()
                await self._lend()
        finally:
            self._is_silent = True
            for lent in self._calls.values():
                if lent.is_over:
                    lent.ended.set()

    async def _lend(self) -> None:
        async with (
            self._open_exchange() as exchange,
            exchange.writer_mailbox(self._tenure) as mailbox,
        ):
            self._lender = _Lender(
                self._tenure, exchange.queue, mailbox, exchange.presence
            )
            self._opened.set()
            with raising_one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send_forever)
                    nursery.start_soon(self._receive_forever, nursery)
                    nursery.start_soon(self._acknowledge_forever)
                    nursery.start_soon(self._look_forever)
                    await self._closed.wait()
                    nursery.cancel_scope.cancel(reason="the orchestrator is closed")
            await self._acknowledge()

    def _has_open_runs(self) -> bool:
        """Return whether an earlier writer has lent calls that may still run."""
        return any(task.placed for task in self._book.ledger.tasks.values())

    async def _send_forever(self) -> NoReturn:
        lender = self._lent
        while True:
            await self._send_due.wait()
            self._send_due = trio.Event()
            sent, self._to_send = self._to_send, []
            back, self._to_withdraw = self._to_withdraw, []
            if sent:
                await lender.queue.send(lender.tenure, sent)
            if back:
                await lender.queue.withdraw(lender.tenure, back)

    async def _receive_forever(self, nursery: trio.Nursery) -> NoReturn:
        while True:
            begun = [
                (request, lent)
                for request in await self._lent.mailbox.receive()
                if (lent := self._hear(request)) is not None
            ]
            if begun:
                nursery.start_soon(self._let_begin, begun)

    def _hear(self, request: Request) -> _LentCall | None:
        """Take in what a run says; return its call if the run may begin once that is durable."""
        question = question_in(request.body)
        if question is None:
            self._hear_rubbish(request)
            return None
        lent = self._calls.get(DispatchId(question.dispatch))
        if isinstance(question, Begin):
            return self._accepted(request, question, lent)
        if lent is not None and lent.run == request.run and lent.end is None:
            self._take_end(lent, question, request)
        elif request.run not in self._finished and self._is_recorded(request.run):
            self._park(request)
        else:
            self._reply(request, Fenced())
        return None

    def _hear_rubbish(self, request: Request) -> None:
        for lent in self._calls.values():
            if lent.run == request.run:
                lent.set_end(Failed(lent.id, f"{lent.tool.name}: {UNREADABLE}"))
        self._reply(request, Fenced())

    def _accepted(
        self, request: Request, begin: Begin, lent: _LentCall | None
    ) -> _LentCall | None:
        if lent is None or lent.is_over or self._book.closed:
            if lent is None and self._is_recorded(request.run):
                self._park(request)
            else:
                self._reply(request, Fenced())
            return None
        if lent.run == request.run:
            return lent  # it asks again, or was accepted by an earlier writer
        if lent.run is not None or lent.attempt != begin.attempt:
            self._reply(request, Fenced())
            return None
        if (request.worker, lent.version) in self._refused:
            self._reply(request, Later())
            self._postpone(lent)
            return None
        lent.accept(request.run, request.worker)
        self._post(lent)
        return lent

    async def _let_begin(self, begun: list[tuple[Request, _LentCall]]) -> None:
        await self._book.wait_durable()
        for request, lent in begun:
            if lent.run == request.run and not lent.is_over:
                self._reply(request, self._work(lent))
            else:
                self._reply(request, Fenced())

    def _work(self, lent: _LentCall) -> Work:
        task = lent.task
        turn = self._book.ledger.sessions[task.session].turn
        return Work(
            agent=self._registry.steps_to(task),
            version=lent.version,
            tool=lent.tool.name,
            arguments=dict(lent.call.arguments),
            call=lent.call.id,
            key=lent.key,
            seconds=lent.seconds_left,
            session=task.session,
            path=task.path,
            context=dict(task.context),
            async_delivery=turn is not None
            and turn.promises is not DeliveryCapability.NONE,
            walled=lent.walled,
        )

    def _take_end(self, lent: _LentCall, end: End, request: Request) -> None:
        match end:
            case Unfit():
                self._reply(request, Taken())
                self._finished[request.run] = request.worker
                self._refused.add((request.worker, lent.version))
                self._refuse(lent, end.why)
            case Stopped():
                if lent.is_over:
                    lent.set_end(end, request)
                    return
                # Its worker was told to end.
                self._reply(request, Taken())
                self._finished[request.run] = request.worker
                self._lose(lent, ENDED_BY_WORKER)
            case Answered() | Failed() | Crashed():
                lent.set_end(end, request)
            case _:
                assert_never(end)

    def _refuse(self, lent: _LentCall, why: str) -> None:
        """Look for another worker for a call that one could not begin."""
        if lent.is_over:
            lent.ended.set()
            return
        lent.refusals += 1
        lent.attempt += 1
        lent.wait_again()
        self._postpone(lent)
        self._post(lent, wants=f"{lent.version} ({why})")
        lent.is_shown = True

    def _postpone(self, lent: _LentCall) -> None:
        """Send a call again when another worker is there, and later each time."""
        lent.since = trio.current_time() + lent.pause - RESEND_SECONDS
        lent.pause = min(LONGEST_PAUSE, lent.pause * 2)

    def _lose(self, lent: _LentCall, why: str) -> None:
        """Try a call again whose run is gone, or break it off."""
        if lent.run is not None:
            self._stop(lent.run, lent.worker)
        if lent.is_over:
            lent.ended.set()
        elif lent.tool.idempotent:
            self._send(lent)
            self._post(lent)
        else:
            lent.set_end(Failed(lent.id, why, RefusedBy.CRASH.value))

    def _post(self, lent: _LentCall, *, wants: str = "") -> None:
        if self._book.closed or self._book.is_broken:
            return
        self._book.post(
            CallPlaced(
                lent.task.id,
                lent.call.id,
                lent.tool.place,
                lent.attempt,
                lent.worker,
                lent.run or "",
                wants,
            )
        )

    def _is_recorded(self, run: RunId) -> bool:
        """Return whether the journal says that a run counts, and its call has no answer."""
        prefix = call_prefix_in(run, self._lent.tenure.journal)
        if prefix is None:
            return False
        tasks = self._book.ledger.tasks
        task = tasks.get(TaskId(prefix)) or tasks.get(TaskId(prefix.rpartition("~")[0]))
        if task is None or self._book.ledger.is_cancelled(task.id):
            return False
        return any(placed.run == run for placed in task.placed.values())

    def _park(self, request: Request) -> None:
        self._parked.setdefault(request.run, []).append(request)

    def _reply(self, request: Request, reply: Work | Taken | Fenced | Later) -> None:
        self._lent.mailbox.answer(request, encoded(reply))
        if not isinstance(reply, Work):
            self._finished[request.run] = request.worker
            self._look_due.set()

    async def _acknowledge_forever(self) -> NoReturn:
        while True:
            await self._ack_due.wait()
            self._ack_due = trio.Event()
            await self._acknowledge()

    async def _acknowledge(self) -> None:
        """Acknowledge the ends whose answers are recorded, once they are durable."""
        count = len(self._recorded)
        await self._book.wait_durable()
        recorded = self._recorded[:count]
        del self._recorded[:count]
        for request in recorded:
            self._reply(request, Taken())

    async def _look_forever(self) -> NoReturn:
        """Look which workers are alive and what they hold, while any call is lent."""
        lender = self._lent
        while True:
            if not (self._calls or self._finished or self._parked):
                self._look_due = trio.Event()
                await self._look_due.wait()
            await trio.sleep(LOOK_SECONDS)
            workers = {it.beat.worker: it for it in await lender.presence.workers()}
            live = {id_ for id_, it in workers.items() if it.alive}
            waiting = {
                lent.id: lent
                for lent in self._calls.values()
                if lent.run is None and not lent.is_over
            }
            stranded = await lender.queue.stranded(
                [lent.dispatch(lender.tenure.journal) for lent in waiting.values()],
                live,
            )
            for dispatch in stranded:
                lent = waiting[dispatch.id]
                if lent.run is None and lent.attempt == dispatch.attempt:
                    self._send(lent)
            for lent in list(self._calls.values()):
                if lent.run is None:
                    self._look_for_worker(lent, workers.values())
                else:
                    self._look_for_run(lent, workers.get(lent.worker))
            self._stop_unknown_runs(workers)
            self._forget_finished(workers)

    def _look_for_worker(self, lent: _LentCall, workers: Iterable[WorkerSeen]) -> None:
        waited = trio.current_time() - lent.since
        if lent.is_over:
            return
        if waited >= SHOWN_AFTER and not lent.is_shown:
            lent.is_shown = True
            self._post(lent)
        if waited >= RESEND_SECONDS and any(
            it.alive
            and it.beat.place == lent.tool.place
            and (lent.refusals or len(it.beat.runs) < it.beat.slots)
            and (it.beat.worker, lent.version) not in self._refused
            for it in workers
        ):
            is_shown = lent.is_shown
            self._send(lent)
            lent.is_shown = is_shown

    def _look_for_run(self, lent: _LentCall, worker: WorkerSeen | None) -> None:
        """Give a run up that its worker holds no more, once all that it said is heard."""
        if worker is None or not worker.alive:
            is_missing = True
        elif lent.run in worker.beat.runs:
            is_missing = False
        else:
            if lent.beats is None:
                lent.beats = worker.beats
            # It may have begun since the last beat.
            is_missing = worker.beats >= lent.beats + 2
        if is_missing and lent.is_missing:
            self._lose(lent, GONE)
        lent.is_missing = is_missing

    def _stop_unknown_runs(self, workers: Mapping[WorkerId, WorkerSeen]) -> None:
        """Stop the runs of this journal whose calls are over: an earlier writer lent them."""
        journal = f"{self._lent.tenure.journal}/"
        known = {lent.run for lent in self._calls.values()}
        known |= {request.run for request in self._unrecorded.values()}
        known |= {request.run for request in self._recorded}
        for worker in workers.values():
            for run in worker.beat.runs:
                if (
                    run.startswith(journal)
                    and run not in known
                    and run not in self._finished
                    and run not in self._parked
                    and not self._is_recorded(run)
                    and not self._is_asked_for(run)
                ):
                    self._stop(run, worker.beat.worker)

    def _is_asked_for(self, run: RunId) -> bool:
        """Return whether a run may be about to begin: its call waits for a worker."""
        return any(
            lent.run is None and f"/{lent.id}/{lent.attempt}/" in run
            for lent in self._calls.values()
        )

    def _forget_finished(self, workers: Mapping[WorkerId, WorkerSeen]) -> None:
        for run, worker in list(self._finished.items()):
            seen = workers.get(worker)
            if seen is None or (seen.alive and run not in seen.beat.runs):
                del self._finished[run]
                self._lent.mailbox.forget(run)
        for run, requests in list(self._parked.items()):
            if not self._is_recorded(run):
                del self._parked[run]
                for request in requests:
                    self._reply(request, Fenced())
            elif requests[0].worker not in workers and isinstance(
                question_in(requests[0].body), Begin
            ):
                del self._parked[run]  # it never began; an end counts, also of the dead
        self._refused = {it for it in self._refused if it[0] in workers}


def _require_small(tool: str, what: str, size: int) -> None:
    if size > MOST_BYTES:
        raise ToolError(
            f"{what.format(tool)} have {size:,} bytes, and a worker is sent at most"
            f" {MOST_BYTES:,}; write what is long to a file that both can read"
        )


def _not_taken(lent: _LentCall) -> ToolError:
    seconds = lent.tool.timeout or 0
    return ToolError(
        f"{lent.tool.name} did not answer within {seconds:g} second{'s' * (seconds != 1)}: no"
        f" worker at {lent.tool.place!r} has taken it, so it was not run"
    )


def _too_late(lent: _LentCall) -> ToolError:
    seconds = lent.tool.timeout or 0
    return ToolError(
        f"{lent.tool.name} did not answer within {seconds:g} second{'s' * (seconds != 1)}, nor"
        " does its worker; it may still be running, so what it does may yet happen"
    )


def _result(lent: _LentCall) -> str:
    match end := lent.end:
        case Answered(text=text):
            return text
        case Failed(text=text, refused_by=refused_by):
            raise ToolError(text, refused_by=_refusal(refused_by))
        case Crashed(text=text):
            raise WorkerCallError(text)
        case Stopped() | Unfit() | None:
            raise DefinitionError(f"{lent.tool.name} has no answer: {end}")
        case _:
            assert_never(end)


def _refusal(name: str) -> RefusedBy | None:
    known = {it.value: it for it in RefusedBy}
    return known.get(name)
