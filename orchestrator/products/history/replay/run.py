"""Replays a run from its record: no model is called, and no tool of an agent runs.

Turns, delegation, limits and budgets are real. The replay steps through the record fact by fact, on
a clock that jumps. At each fact, every trio task runs until it waits; then the steps that wait for
this fact are released. So facts keep their recorded order, however trio schedules.
"""

import contextvars
import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final, assert_never

import trio
import trio.testing
from msgspec.structs import replace

from orchestrator.agents import Agent, DefinitionError, Pipeline
from orchestrator.delegation import (
    Cause,
    DeliveryCapability,
    Encoded,
    Ending,
    ImpossibleEventError,
    Ledger,
    Reply,
    Rules,
    SessionRecord,
    TaskId,
    TaskRecord,
    events,
)
from orchestrator.ports.execution import NO_WORKSPACE, AgentRegistry
from orchestrator.ports.journals import Bookkeeper, EventT, MemoryJournal
from orchestrator.ports.sessions import Deliveries, Sessions, open_engine
from orchestrator.products.history.replay.compare import ReplayResult, compare
from orchestrator.products.history.replay.index import SIDE_CALLS
from orchestrator.products.history.replay.position import ReplayPosition
from orchestrator.products.history.replay.record import RecordedRun
from orchestrator.products.history.replay.recorded_models import RecordedModels
from orchestrator.products.history.replay.recorded_tools import (
    RecordedIds,
    RecordedTiming,
    RecordedTools,
)
from orchestrator.products.history.stand_in_servers import StandInServers

FACT_AFTER_LIMIT_SECONDS: Final = 0.25
"""The longest time, in seconds, from a deadline to a fact that preceded it in the record: deadlines
begin slightly earlier in a replay.
"""
CLOCK_STEP_SECONDS: Final = 1e-6
LIMIT_AFTER_FACT_SECONDS: Final = 1e-3
"""The longest time, in seconds, from a fact to the deadline that caused it: the clock goes one step
past each deadline, and another deadline may begin there.
"""


async def replay(
    entries: Sequence[events.Entry],
    agent: Agent[Any],
    *,
    run: str | None = None,
    rules: Rules | None = None,
    environ: Mapping[str, str] | None = None,
) -> ReplayResult:
    """Replay a run from its record, in a thread with its own clock.

    A run that has not ended is replayed up to the end of its record.

    Args:
        entries: the entries of the journal.
        agent: the current definition of the run's agent.
        run: the id of the run; by default the newest.
        rules: the rules of delegation for the run.
        environ: names the providers, whose prices may matter for a budget.

    Raises:
        UnknownIdError: there is no such run.
        ReplayError: the run belongs to another agent, or lost a task in a crash.
    """
    again = partial(replay_sync, entries, agent, run=run, rules=rules, environ=environ)
    return await trio.to_thread.run_sync(again, abandon_on_cancel=True)


def replay_sync(
    entries: Sequence[events.Entry],
    agent: Agent[Any],
    *,
    run: str | None = None,
    rules: Rules | None = None,
    environ: Mapping[str, str] | None = None,
) -> ReplayResult:
    """Replay a run like `replay`, outside an event loop."""
    record = RecordedRun(entries, run)
    record.require_replayable(agent)
    clock = trio.testing.MockClock()
    replayer = _Replayer(record, agent, rules, os.environ if environ is None else environ, clock)
    # The caller's budgets do not apply to the replayed run.
    return contextvars.Context().run(partial(trio.run, replayer.run, clock=clock))


class _RecordedTimes:
    """Gives facts their recorded times, and starts tasks and turns at the recorded facts."""

    def __init__(self, ledger: Ledger, record: RecordedRun, position: ReplayPosition) -> None:
        self.journal = MemoryJournal()
        self.positions: list[float] = []
        """The position in the record at which each fact of the replay was posted."""
        self.now = record.entries[0].at
        self._ledger = ledger
        self._record = record
        self._position = position
        self.book = Bookkeeper(
            self.journal, ledger, clock=lambda: self.now, fact_stamp=self, schedule=self
        )

    def stamp(self, event: EventT) -> tuple[EventT, float]:
        at = self._record.recorded_at(event)
        if (
            isinstance(event, events.ModelAnswered)
            and event.message.id in self._record.copied_messages
        ):
            event = replace(event, copied=True)
        elif (
            isinstance(event, events.TaskSettled)
            and event.answer is not None
            and event.answer.message.id in self._record.copied_messages
        ):
            event = replace(event, answer=replace(event.answer, copied=True))
        elif isinstance(event, events.ModelFailed):
            turn = self._ledger.sessions[self._record.session.id].turns
            task_turn = self._record.task_turn(event.task, turn)
            recorded = self._record.abandoned_calls.get(task_turn)
            if recorded is not None and recorded.reason is event.reason:
                # The recorded usage was an estimate, perhaps made by other rules than today's.
                usage, charged = recorded.usage, recorded.charged
                event = replace(event, usage=usage, charged=charged)
        return event, self.now if at is None else at

    def note_position(self, entry: events.Entry, encoded: Encoded) -> None:
        del entry, encoded
        self.positions.append(self._position.seq)

    async def wait_start_due(self, ledger: Ledger) -> None:
        started = self._record.start_seqs
        due = (started.get(task, math.inf) for task in ledger.startable)
        await self._position.wait_reached(min(due, default=0))

    async def wait_turn_due(self, ledger: Ledger) -> None:
        turns = [session.turns + 1 for session in ledger.wakeable.values()]
        recorded = self._record.turns.get(min(turns, default=0))
        await self._position.wait_reached(math.inf if recorded is None else recorded.seq)


class _DiscardingDoor:
    """Takes the replies of a session, and discards them."""

    def __init__(self, capability: DeliveryCapability, deliveries: Deliveries) -> None:
        self.capability = capability
        self._deliveries = deliveries

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        self._deliveries.mark_delivered(reply)

    def disconnect(self) -> None:
        """Do nothing: no client waits here."""


class _Replayer:
    """An orchestrator that a record drives."""

    def __init__(
        self,
        record: RecordedRun,
        agent: Agent[Any],
        rules: Rules | None,
        environ: Mapping[str, str],
        clock: trio.testing.MockClock,
    ) -> None:
        self._record = record
        self._agent = agent
        self._clock = clock
        self._position = ReplayPosition()
        self._ledger = Ledger(rules)
        self._times = _RecordedTimes(self._ledger, record, self._position)
        self._book = self._times.book
        self._models = RecordedModels(self._ledger, record, self._position, environ)
        self._registry = AgentRegistry(self._models)
        self._downtime = record.downtime()
        self._began = record.entries[0].at
        self._other_usage = deque(record.other_usage)
        self._turn_scope = trio.CancelScope()
        self._caller_cancelled_seqs = {record.caller_cancelled_seq(turn) for turn in record.turns}

    async def run(self) -> ReplayResult:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._book.subscribers.subscribe(self._times.note_position))
            engine = await stack.enter_async_context(
                open_engine(
                    self._book,
                    self._registry,
                    NO_WORKSPACE,
                    new_task_id=RecordedIds(self._record).new_task_id,
                    place=RecordedTools(
                        self._ledger, self._record, self._position, self._models, self._registry
                    ),
                    servers=StandInServers(self._record.called_tools),
                    timing=RecordedTiming(self._position),
                )
            )
            # The callers outside the orchestrator: they run turns, deliver and cancel.
            callers = await stack.enter_async_context(trio.open_nursery())
            for entry in self._record.entries:
                await self._advance_clock(entry)
                self._position.advance_to(entry.seq)
                self._repeat_external_action(engine.sessions, callers, entry)
                await trio.testing.wait_all_tasks_blocked()
                self._repeat_cancel(engine.sessions, callers, entry)
            await trio.testing.wait_all_tasks_blocked()
            if self._record.is_whole:
                self._position.finish()
                await trio.testing.wait_all_tasks_blocked()
            result = self._compared()
            callers.cancel_scope.cancel(reason="the record has ended")
            # A call that was broken off waits for its end even when it is cancelled.
            self._position.finish()
        return result

    def _compared(self) -> ReplayResult:
        # Facts at the same position keep their order.
        count = len(self._times.positions) + 1
        positions = (seq + at / count for at, seq in enumerate(self._times.positions))
        entries = list(zip(self._times.journal.entries, positions, strict=True))
        return compare(self._record, entries, self._ledger, self._models.unrecorded_waits)

    async def _advance_clock(self, entry: events.Entry) -> None:
        """Move the clock to the time of a fact, deadline by deadline."""
        while self._other_usage and self._other_usage[0].seq < entry.seq:
            self._other_usage.popleft().apply(self._ledger)
        self._began += self._downtime.get(entry.seq, 0)
        self._times.now = entry.at
        while True:
            await trio.testing.wait_all_tasks_blocked()
            left = max(0.0, entry.at - self._began - trio.current_time())
            limit = trio.lowlevel.current_statistics().seconds_to_next_deadline
            is_late = self._may_follow_deadline(entry.event)
            if limit > left + LIMIT_AFTER_FACT_SECONDS * is_late:
                self._clock.jump(left)
                return
            if limit > left - FACT_AFTER_LIMIT_SECONDS and not is_late:
                self._clock.jump(max(0.0, limit - CLOCK_STEP_SECONDS))
                return
            self._clock.jump(max(0.0, limit) + CLOCK_STEP_SECONDS)

    def _may_follow_deadline(self, event: events.Event) -> bool:
        """Return whether a deadline may have caused a fact."""
        match event:
            case events.TaskRequested(request):
                return self._is_pipeline_task(request.parent)
            case events.TaskSettled(task, outcome):
                # The program of a pipeline may have stopped waiting after some seconds.
                by_time = {Ending.TIMED_OUT, Ending.CANCELLED}
                return outcome.ending in by_time or self._is_pipeline_task(task)
            case events.TurnEnded(_, _, outcome):
                is_limit = outcome.ending is Ending.TIMED_OUT
                return is_limit or isinstance(self._agent, Pipeline)
            case events.ToolAnswered(task, message):
                return self._record.called_tool(task, message.call) == "task"
            case _:
                return False

    def _is_pipeline_task(self, task: TaskId) -> bool:
        """Return whether a task runs a program, which may set its own deadlines."""
        record = self._ledger.tasks.get(task)
        if record is None or record.outcome is not None:
            return False
        with suppress(DefinitionError):
            return isinstance(self._registry.agent_of(record), Pipeline)
        return False

    @property
    def _session(self) -> SessionRecord:
        return self._ledger.sessions[self._record.run]

    def _repeat_external_action(
        self, sessions: Sessions, callers: trio.Nursery, entry: events.Entry
    ) -> None:
        """Repeat an action from outside the orchestrator: by a client, a person or a command."""
        if entry.seq in self._caller_cancelled_seqs:
            self._turn_scope.cancel(reason="the caller was cancelled")
        event = entry.event
        if isinstance(event, events.DoorFact):
            self._repeat_door_fact(sessions, callers, event)
        elif isinstance(event, events.SteeringFact):
            self._repeat_steering(event)
        elif isinstance(event, events.ProcessFact | events.OversightFact):
            self._post_if_possible(event)
        match event:
            case events.JournalOpened():
                self._close_door(sessions)
            case events.MessageReceived() if not self._session.closed:
                self._book.post(event)
            case events.TurnStarted(capability=DeliveryCapability.NONE) if (
                self._session.turn is None
            ):
                sessions.turns.begin(self._session, DeliveryCapability.NONE)
                callers.start_soon(self._take_turn, sessions)
            case events.ModelFailed(reason=reason) if reason in SIDE_CALLS:
                self._post_if_possible(event)
            case _:
                pass  # the replay posts it by itself

    def _repeat_door_fact(
        self, sessions: Sessions, callers: trio.Nursery, event: events.DoorFact
    ) -> None:
        match event:
            case events.SessionOpened(id_):
                agent = self._agent
                self._registry.register_session(id_, agent)
                self._book.post(
                    replace(
                        event, agent=agent.name, budget=agent.budget, forked_from="", attended=False
                    )
                )
            case events.DoorOpened():
                door = _DiscardingDoor(event.capability, sessions.deliveries)
                sessions.deliveries.attach(event.session, door)
                self._book.post(event)
                callers.start_soon(sessions.deliveries.deliver, self._session)
            case events.DoorClosed():
                self._close_door(sessions)
            case events.SessionClosed(id_):
                if not self._session.closed:
                    self._book.post(events.SessionClosed(id_, tuple(self._session.mail)))
            case events.TurnResumed(paused=paused):
                for account in self._ledger.accounts.values():
                    account.started_at += paused
            case (
                events.KindChanged()
                | events.MetadataChanged()
                | events.StateChanged()
                | events.ReplyDelivered()
                | events.ReplyPartDelivered()
                | events.DeliveryFailed()
                | events.TurnInterrupted()
            ):
                pass
            case _:
                assert_never(event)

    def _close_door(self, sessions: Sessions) -> None:
        if self._session.door is not None:
            sessions.deliveries.detach(self._session.id)
            self._book.post(events.DoorClosed(self._session.id))

    def _repeat_steering(self, event: events.SteeringFact) -> None:
        match event:
            case events.Steered(task, id_, origin=events.SteeringOrigin.OUTSIDE):
                steered = self._ledger.tasks.get(task)
                if steered is not None and _can_be_steered(steered) and id_ not in steered.steering:
                    self._book.post(event)
            case events.Steered() | events.SteeringSeen() | events.CancelRequested():
                pass
            case _:
                assert_never(event)

    def _post_if_possible(
        self, event: events.ProcessFact | events.OversightFact | events.ModelFailed
    ) -> None:
        """Post the fact of a background command, a person, or a parent that a tool asks.

        The action itself is not repeated, so the fact is posted if the ledger accepts it.
        """
        if event.task in self._ledger.tasks:
            with suppress(ImpossibleEventError):
                self._book.post(event)

    async def _take_turn(self, sessions: Sessions) -> None:
        self._turn_scope = trio.CancelScope()
        with self._turn_scope:
            await sessions.turns.take(self._session)

    def _repeat_cancel(
        self, sessions: Sessions, callers: trio.Nursery, entry: events.Entry
    ) -> None:
        """Repeat a cancel that came from outside."""
        match entry.event:
            case events.CancelRequested(task) | events.TaskSettled(task):
                pass
            case _:
                return
        ledger = self._ledger
        if (record := ledger.tasks.get(task)) is None or record.outcome is not None:
            return
        if isinstance(entry.event, events.TaskSettled):
            # The record of a task that never started has only its end.
            is_meant = entry.event.outcome.cause is Cause.BEFORE_START
        else:
            is_meant = (not record.is_root or record.is_running) and not (record.cancel_requested)
        if is_meant:
            callers.start_soon(sessions.delegator.cancel, [task])


def _can_be_steered(task: TaskRecord) -> bool:
    return task.outcome is None and (task.is_running or not task.is_root)
