"""Doing a run again from its record: without a model, and without running a tool.

Everything else is real: the turns, the delegation, the limits, the budgets. The record is walked
from fact to fact on a clock that jumps. At each of them everything runs until it waits, and whoever
waits for that very fact goes on. So facts come in the order in which they came, however trio
schedules.
"""

import contextvars
import math
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final

import attrs
import trio
import trio.testing
from msgspec.structs import replace

from agents import Agent, DefinitionError, Pipeline
from delegation import (
    DeliveryCapability,
    Ending,
    ImpossibleEventError,
    Ledger,
    Reply,
    Rules,
    SessionRecord,
    TaskId,
    TaskRecord,
)
from delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CancelRequested,
    DoorClosed,
    DoorOpened,
    Entry,
    Event,
    JournalOpened,
    MessageReceived,
    ModelAnswered,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    SessionClosed,
    SessionOpened,
    Steered,
    TaskRequested,
    TaskSettled,
    ToolAnswered,
    TurnEnded,
    TurnStarted,
)
from orchestrator.engine.delegator import OrchestratorDelegator
from orchestrator.engine.turns import Turns
from orchestrator.execution.local import Acting
from orchestrator.execution.workspace.task_workspace import NOWHERE
from orchestrator.journal.bookkeeper import Bookkeeper
from orchestrator.journal.fact_redaction import EventT
from orchestrator.journal.memory import MemoryJournal
from orchestrator.replay.compare import Replay, compare
from orchestrator.replay.record import Record
from orchestrator.replay.recorded_models import CALL, PromptedRoster, Walk
from orchestrator.services import House, open_house

SLACK: Final = 0.25
"""By how many seconds a recorded fact may come after a time limit that it came before: a limit
begins a little earlier here than it did."""
MOMENT: Final = 1e-6
LATE: Final = 1e-3
"""By how many seconds a time limit may come after the fact that is there because of it: we go
past each by a moment, and another may begin there."""
STOPPED_EARLY: Final = "it was stopped before it could go on"


async def replay(
    entries: Sequence[Entry],
    agent: Agent[Any],
    *,
    run: str | None = None,
    rules: Rules | None = None,
    environ: Mapping[str, str] | None = None,
) -> Replay:
    """Do a run again from its record, in a thread with a clock of its own.

    Args:
        entries: what the journal has of it.
        agent: whose run it was, as it is defined now.
        run: its id; without one, the newest is meant.
        rules: the limits of delegation under which it ran.
        environ: where providers are looked up, whose prices may matter for a budget.

    Raises:
        UnknownIdError: there is no such run.
        ReplayError: it has not ended, is another agent's, or was lost in a crash.
    """
    again = partial(replay_now, entries, agent, run=run, rules=rules, environ=environ)
    return await trio.to_thread.run_sync(again, abandon_on_cancel=True)


def replay_now(
    entries: Sequence[Entry],
    agent: Agent[Any],
    *,
    run: str | None = None,
    rules: Rules | None = None,
    environ: Mapping[str, str] | None = None,
) -> Replay:
    """Do the same as `replay` where no event loop runs."""
    record = Record(entries, run)
    record.require_repeatable(agent)
    clock = trio.testing.MockClock()
    stage = _Stage(
        record, agent, rules, os.environ if environ is None else environ, clock
    )
    # Budgets around whoever replays are not those around the run.
    return contextvars.Context().run(partial(trio.run, stage.play, clock=clock))


class _Book(Bookkeeper):
    """Dates facts as they were dated, and begins turns when they began."""

    def __init__(self, ledger: Ledger, record: Record, walk: Walk) -> None:
        self.journal = MemoryJournal()
        self.places: list[float] = []
        """Where in the record we were when each fact was posted."""
        self.now = record.entries[0].at
        self._record = record
        self._walk = walk
        self._date: float | None = None
        super().__init__(self.journal, ledger, clock=self._dated)

    def _dated(self) -> float:
        return self.now if self._date is None else self._date

    def _post(self, event: EventT) -> EventT:
        self._date = self._record.date(event)
        if isinstance(event, ModelAnswered) and event.message.id in self._record.copied:
            event = replace(event, copied=True)
        try:
            kept = super()._post(event)
        finally:
            self._date = None
        self.places.append(self._walk.position)
        return kept

    async def wait_startable(self) -> None:
        await super().wait_startable()
        while True:
            started = self._record.started
            due = (started.get(task, math.inf) for task in self.ledger.startable)
            await self._walk.reach(min(due, default=0))
            if self.ledger.startable:
                return
            await super().wait_startable()

    async def wait_wakeable(self) -> None:
        await super().wait_wakeable()
        while True:
            turns = [session.turns + 1 for session in self.ledger.wakeable.values()]
            recorded = self._record.turns.get(min(turns, default=0))
            await self._walk.reach(math.inf if recorded is None else recorded.seq)
            if self.ledger.wakeable:
                return
            await super().wait_wakeable()


class _Delegator(OrchestratorDelegator):
    """Returns from waiting when it did: by then others may have ended, too."""

    def __init__(
        self,
        walk: Walk,
        roster: PromptedRoster,
        book: Bookkeeper,
        acting: Acting,
        new_task_id: Callable[[], TaskId],
    ) -> None:
        super().__init__(book, acting, new_task_id)
        self._walk = walk
        self._roster = roster

    def id_for(self, parent: TaskId, call: str) -> TaskId:
        return self._roster.id_for(parent, call)

    async def wait(
        self, tasks: Sequence[TaskId], *, any_of_them: bool, seconds: float | None
    ) -> None:
        await super().wait(tasks, any_of_them=any_of_them, seconds=seconds)
        await self._walk.reach(CALL.get().answered_at)


class _Door:
    """Takes what a session says, and keeps nothing of it."""

    def __init__(self, capability: DeliveryCapability, turns: Turns) -> None:
        self.capability = capability
        self._turns = turns

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        self._turns.delivered(reply)

    def hang_up(self) -> None:
        """Let go of nobody: nobody waits here."""


class _Stage:
    """An orchestrator on which a record is played."""

    def __init__(
        self,
        record: Record,
        agent: Agent[Any],
        rules: Rules | None,
        environ: Mapping[str, str],
        clock: trio.testing.MockClock,
    ) -> None:
        self._record = record
        self._agent = agent
        self._clock = clock
        self._walk = Walk()
        self._book = _Book(Ledger(rules), record, self._walk)
        self._roster = PromptedRoster(self._book.ledger, record, self._walk, environ)
        self._downtime = record.downtime()
        self._began = record.entries[0].at
        self._booked = deque(record.booked)
        self._asking = trio.CancelScope()
        self._torn_down = {record.torn_down(turn) for turn in record.turns}

    async def play(self) -> Replay:
        async with AsyncExitStack() as stack:
            house = await stack.enter_async_context(
                open_house(
                    self._book,
                    self._roster,
                    NOWHERE,
                    delegating=partial(_Delegator, self._walk, self._roster),
                    new_task_id=self._roster.new_task_id,
                )
            )
            self._roster.telling = house.acting.telling
            # Whoever calls from outside is here.
            callers = await stack.enter_async_context(trio.open_nursery())
            for entry in self._record.entries:
                await self._let_time_pass(entry)
                self._walk.go_to(entry.seq)
                self._come_in(house, callers, entry)
                await trio.testing.wait_all_tasks_blocked()
                self._cancel(house, callers, entry)
            await trio.testing.wait_all_tasks_blocked()
            self._walk.finish()
            await trio.testing.wait_all_tasks_blocked()
            result = self._compared()
            callers.cancel_scope.cancel(reason="the record has ended")
        return result

    def _compared(self) -> Replay:
        # Facts that were posted at one place in the record stay in their order.
        count = len(self._book.places) + 1
        places = (place + at / count for at, place in enumerate(self._book.places))
        entries = list(zip(self._book.journal.entries, places, strict=True))
        return compare(self._record, entries, self._book.ledger, self._roster.waiting)

    async def _let_time_pass(self, entry: Entry) -> None:
        """Let the clock jump to when a fact was recorded, one time limit after the other."""
        while self._booked and self._booked[0].seq < entry.seq:
            self._booked.popleft().book(self._book.ledger)
        self._began += self._downtime.get(entry.seq, 0)
        self._book.now = entry.at
        while True:
            await trio.testing.wait_all_tasks_blocked()
            left = max(0.0, entry.at - self._began - trio.current_time())
            limit = trio.lowlevel.current_statistics().seconds_to_next_deadline
            is_late = self._may_be_late(entry.event)
            if limit > left + LATE * is_late:
                self._clock.jump(left)
                return
            if limit > left - SLACK and not is_late:
                self._clock.jump(max(0.0, limit - MOMENT))
                return
            self._clock.jump(max(0.0, limit) + MOMENT)

    def _may_be_late(self, event: Event) -> bool:
        """Tell whether a fact may be there because of a time limit."""
        match event:
            case TaskRequested(request):
                return self._is_program(request.parent)
            case TaskSettled(task, outcome):
                # A program may have stopped waiting for it, after so many seconds.
                by_time = {Ending.TIMED_OUT, Ending.CANCELLED}
                return outcome.ending in by_time or self._is_program(task)
            case TurnEnded(_, _, outcome):
                is_limit = outcome.ending is Ending.TIMED_OUT
                return is_limit or isinstance(self._agent, Pipeline)
            case ToolAnswered(task, message):
                return (task, message.call) in self._record.controls
            case _:
                return False

    def _is_program(self, task: TaskId) -> bool:
        """Tell whether a task has time limits of its own: those of a program."""
        record = self._book.ledger.tasks.get(task)
        if record is None or record.outcome is not None:
            return False
        with suppress(DefinitionError):
            return isinstance(self._roster.agent_of(record), Pipeline)
        return False

    @property
    def _session(self) -> SessionRecord:
        return self._book.ledger.sessions[self._record.run]

    def _come_in(  # noqa: C901, PLR0912 (a case a fact)
        self, house: House, callers: trio.Nursery, entry: Entry
    ) -> None:
        """Do what somebody outside did."""
        if entry.seq in self._torn_down:
            self._asking.cancel(reason="whoever asked was cancelled")
        match entry.event:
            case SessionOpened(id_) as event:
                agent = self._agent
                self._roster.enter(id_, agent)
                self._book.post(
                    attrs.evolve(
                        event,
                        agent=agent.name,
                        budget=agent.budget,
                        forked_from="",
                        attended=False,
                    )
                )
            case DoorOpened() as event:
                door = _Door(event.capability, house.turns)
                house.turns.attach(event.session, door)
                self._book.post(event)
                callers.start_soon(house.turns.deliver, self._session)
            case DoorClosed() | JournalOpened() if self._session.door is not None:
                house.turns.detach(self._session.id)
                self._book.post(DoorClosed(self._session.id))
            case SessionClosed(id_) if not self._session.closed:
                self._book.post(SessionClosed(id_, tuple(self._session.mail)))
            case MessageReceived() as event if not self._session.closed:
                self._book.post(event)
            case TurnStarted(capability=DeliveryCapability.NONE):
                if self._session.turn is None:
                    house.turns.begin(self._session, DeliveryCapability.NONE)
                    callers.start_soon(self._take_turn, house)
            case Steered(task, id_) as event if not event.by.startswith("/"):
                told = self._book.ledger.tasks.get(task)
                if told is not None and _hears(told) and id_ not in told.steering:
                    self._book.post(event)
            case (
                ProcessStarted()
                | ProcessMatched()
                | ProcessEnded()
                | ApprovalAsked()
                | ApprovalAnswered()
            ) as event:
                # What commands do, and people say, is said here if it can be true.
                if event.task in self._book.ledger.tasks:
                    with suppress(ImpossibleEventError):
                        self._book.post(event)
            case _:
                pass

    async def _take_turn(self, house: House) -> None:
        self._asking = trio.CancelScope()
        with self._asking:
            await house.turns.take(self._session)

    def _cancel(self, house: House, callers: trio.Nursery, entry: Entry) -> None:
        """Cancel what was cancelled, if it was nobody inside who did."""
        match entry.event:
            case CancelRequested(task) | TaskSettled(task):
                pass
            case _:
                return
        ledger = self._book.ledger
        if (record := ledger.tasks.get(task)) is None or record.outcome is not None:
            return
        if isinstance(entry.event, TaskSettled):
            # Of what had not begun, the end is all that is recorded.
            is_meant = entry.event.outcome.error == STOPPED_EARLY
        else:
            is_meant = (record.parent is not None or record.acting) and not (
                record.cancel_requested
            )
        if is_meant:
            callers.start_soon(house.delegator.cancel, [task])


def _hears(task: TaskRecord) -> bool:
    return task.outcome is None and (task.acting or task.parent is not None)
