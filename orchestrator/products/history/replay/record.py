"""The record of one run: a pure index of its facts, for replay and fork."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, TypeAlias, assert_never

import attrs

from orchestrator.agents import Agent, CallId, MessageId
from orchestrator.delegation import (
    Account,
    Cause,
    DeliveryCapability,
    Ending,
    Grant,
    Ledger,
    Outcome,
    SessionId,
    TaskId,
    root_of,
)
from orchestrator.delegation.amounts import NOTHING, Amounts
from orchestrator.delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallPlaced,
    CancelRequested,
    DeliveryFailed,
    DoorClosed,
    DoorOpened,
    Entry,
    Event,
    JobOccurred,
    JobPaused,
    JobRemoved,
    JobSet,
    JournalOpened,
    LabelsChanged,
    MessageReceived,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    ModelFailure,
    NetworkRequested,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    ProcessUnreachable,
    QuietChanged,
    ReplyDelivered,
    ReplyPartDelivered,
    SessionClosed,
    SessionOpened,
    StartsPaused,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    WorkspaceOpened,
)
from orchestrator.delegation.events.processes import ProcessId
from orchestrator.kernel.errors import OrchestratorError, UnknownIdError
from orchestrator.kernel.journal.journal import fold, fold_entries

DELEGATION_TOOLS: Final = frozenset({"delegate_task", "task"})
"""The tools that a replay runs."""

FURTHER_CALLS: Final = frozenset({ModelFailure.ATTEMPT, ModelFailure.SUMMARY})
"""Calls after which the same answer takes another one."""

TaskTurn: TypeAlias = tuple[TaskId, int]
"""A task, and the turn of a root: 0 of any other task."""


class ReplayError(OrchestratorError):
    """A run cannot be replayed."""


@attrs.frozen
class RecordedOutcome:
    """The outcome of a task or of a turn, with its sequence number."""

    seq: int
    outcome: Outcome


@attrs.frozen
class OtherRunUsage:
    """What a budget is charged with by another run, or for a call that a crash broke off."""

    seq: int
    account: Account
    used: Amounts

    def apply(self, ledger: Ledger) -> None:
        """Book it in the ledger of a replay."""
        id_ = self.account.id
        if id_ not in ledger.accounts:
            ledger.accounts[id_] = self.account.without_use()
        ledger.accounts[id_].used += self.used


class RecordedRun:
    """The facts of one run."""

    def __init__(self, entries: Sequence[Entry], run: str | None = None) -> None:
        """Index a run.

        Args:
            entries: of the whole journal, or those of the run and of no session.
            run: its id; by default the newest.
        """
        runs = {entry.session: None for entry in entries if entry.session}
        if not runs:
            raise UnknownIdError("there are no runs in the journal")
        if run is not None and run not in runs:
            raise UnknownIdError(f"there is no run {run!r}")
        self.run = SessionId(run) if run is not None else list(runs)[-1]
        self.root = root_of(self.run)
        whole = [entry for entry in entries if entry.session in {self.run, ""}]
        own = [index for index, entry in enumerate(whole) if entry.session]
        self.entries = _until_process_died(whole[own[0] : own[-1] + 1])
        self.ledger = fold_entries(self.entries, f"run {self.run}")
        self.session = self.ledger.sessions[self.run]
        self.model_answers: dict[TaskTurn, list[Entry]] = {}
        """The answers and the failures of the model of a task."""
        self.abandoned_calls: dict[TaskTurn, ModelFailed] = {}
        """The model calls that were broken off, or failed by an error of the model's own code."""
        self.tool_answers: dict[tuple[TaskId, CallId], Entry] = {}
        self.task_tool_calls: set[tuple[TaskId, CallId]] = set()
        """The calls of the `task` tool: they may have waited for some seconds."""
        self.requests: dict[tuple[TaskId, str], Entry] = {}
        """The requests, by parent and call key."""
        self.first_request_seqs: dict[tuple[TaskId, str], int] = {}
        """The position of the first request of each call."""
        self.steering_seqs: dict[MessageId, int] = {}
        """The position of each steering message."""
        self.processes_by_seq: dict[int, ProcessId] = {}
        """The notices of background commands, by position."""
        self.outcomes: dict[TaskTurn, RecordedOutcome] = {}
        self.turns: dict[int, Entry] = {}
        self.start_seqs: dict[TaskId, int] = {}
        self.cancel_seqs: dict[TaskId, list[int]] = {}
        """The positions at which the end of a task was requested, or followed from that."""
        self.copied_messages: set[MessageId] = set()
        """The answers that were copied from the run that this one is a fork of."""
        self._dates: dict[Hashable, float] = {}
        self._failed: dict[TaskTurn, Entry] = {}
        self._turn = 0
        for entry in self.entries:
            self._index(entry)
        self.ends_after_crash = dict(self._answers_before_a_crash())
        """The positions of final answers that a crash followed, and of the ends after it."""
        self.other_runs_usage = sorted(
            [*self._find_other_runs_usage(entries), *self._find_crash_charges(entries)],
            key=lambda usage: usage.seq,
        )
        """What the budgets of this run are charged with that no fact of a replay repeats."""

    def _index(self, entry: Entry) -> None:  # noqa: C901, PLR0912 (a case a fact)
        event = entry.event
        if (key := _key(event)) is not None:
            self._dates.setdefault(key, entry.at)
        match event:
            case TurnStarted():
                self._turn = event.turn
                self.turns[event.turn] = entry
            case TaskStarted():
                self.start_seqs.setdefault(event.task, entry.seq)
            case ModelAnswered():
                self.model_answers.setdefault(self.task_turn(event.task), []).append(entry)
                self.task_tool_calls.update(
                    (event.task, call.id) for call in event.message.calls if call.name == "task"
                )
                if event.copied:
                    self.copied_messages.add(event.message.id)
            case ModelFailed():
                task_turn = self.task_turn(event.task)
                if event.reason is ModelFailure.QUESTION:
                    pass  # its fact is posted again: no model of the replay makes it
                elif event.reason is ModelFailure.BROKEN_OFF:
                    self.abandoned_calls[task_turn] = event
                elif event.reason in FURTHER_CALLS:
                    self.model_answers.setdefault(task_turn, []).append(entry)
                else:
                    self._failed[task_turn] = entry
            case ToolAnswered():
                self.tool_answers[event.task, event.message.call] = entry
            case TaskRequested(request):
                self.requests[request.parent, request.call] = entry
                call, _, _ = request.call.rpartition("#")
                self.first_request_seqs.setdefault((request.parent, call), entry.seq)
            case Steered():
                self.steering_seqs[event.id] = entry.seq
            case ProcessMatched() | ProcessEnded() | ProcessUnreachable():
                self.processes_by_seq[entry.seq] = event.id
            case CancelRequested():
                self.cancel_seqs.setdefault(event.task, []).append(entry.seq)
            case TaskSettled():
                self._add_outcome(
                    self.task_turn(event.task), RecordedOutcome(entry.seq, event.outcome)
                )
                if event.outcome.ending is Ending.CANCELLED:
                    self.cancel_seqs.setdefault(event.task, []).append(entry.seq)
            case TurnEnded():
                self._add_outcome(
                    (self.root, event.turn), RecordedOutcome(entry.seq, event.outcome)
                )
            case (
                JournalOpened()
                | SessionOpened()
                | DoorOpened()
                | DoorClosed()
                | SessionClosed()
                | LabelsChanged()
                | MessageReceived()
                | TurnResumed()
                | ReplyDelivered()
                | DeliveryFailed()
                | ReplyPartDelivered()
                | JobSet()
                | JobPaused()
                | JobRemoved()
                | JobOccurred()
                | SteeringSeen()
                | ModelCalled()
                | QuietChanged()
                | StartsPaused()
                | ApprovalAsked()
                | ApprovalAnswered()
                | ProcessStarted()
                | WorkspaceOpened()
                | NetworkRequested()
                | CallPlaced()
            ):
                pass
            case _:
                assert_never(event)

    def _answers_before_a_crash(self) -> Iterator[tuple[int, int]]:
        crashes = [it.seq for it in self.entries if isinstance(it.event, JournalOpened)]
        for task_turn, end in self.outcomes.items() if crashes else ():
            last = self.model_answers.get(task_turn, [])[-1:]
            for entry in last:
                event = entry.event
                is_final = not (isinstance(event, ModelAnswered) and event.message.calls)
                if is_final and any(entry.seq < it < end.seq for it in crashes):
                    yield entry.seq, end.seq

    def _find_other_runs_usage(self, entries: Sequence[Entry]) -> Iterator["OtherRunUsage"]:
        shared = {grant.id: grant for it in self.entries for grant in _grants(it.event)}
        if not shared or all(it.session in {self.run, ""} for it in entries):
            return
        ledger = Ledger()
        # An account is described by the run that opens it, also before anything is used.
        known: dict[str, Amounts | None] = dict.fromkeys(shared)
        for entry in entries:
            fold(ledger, [entry], "journal")
            for id_ in shared:
                if (account := ledger.accounts.get(id_)) is None:
                    continue
                used, before = account.used, known[id_]
                if entry.session != self.run and used != before:
                    yield OtherRunUsage(entry.seq, account, used - (before or NOTHING))
                known[id_] = used

    def _find_crash_charges(self, entries: Sequence[Entry]) -> Iterator["OtherRunUsage"]:
        """Yield what calls are charged with during which the process died.

        Beside other runs, those of shared budgets are part of what these have used.
        """
        is_alone = all(it.session in {self.run, ""} for it in entries)
        if not any(isinstance(it.event, JournalOpened) for it in self.entries):
            return
        ledger = Ledger()
        for entry in self.entries:
            if not isinstance(entry.event, JournalOpened):
                fold(ledger, [entry], "journal")
                continue
            before = {id_: it.used for id_, it in ledger.accounts.items()}
            fold(ledger, [entry], "journal")
            for id_, account in ledger.accounts.items():
                is_found = account.is_shared and not is_alone
                if account.used != before[id_] and not is_found:
                    yield OtherRunUsage(entry.seq, account, account.used - before[id_])

    def _add_outcome(self, task_turn: TaskTurn, end: RecordedOutcome) -> None:
        self.outcomes[task_turn] = end
        failed = self._failed.pop(task_turn, None)
        if failed is None:
            return
        if is_fatal_failure(failed.event, end.outcome):
            self.model_answers.setdefault(task_turn, []).append(failed)
        elif isinstance(failed.event, ModelFailed) and failed.event.reason is ModelFailure.FAILED:
            self.abandoned_calls.setdefault(task_turn, failed.event)

    def task_turn(self, task: TaskId, turn: int | None = None) -> TaskTurn:
        """Return the key of a turn; of a root, by default the latest."""
        if task != self.root:
            return task, 0
        return task, self._turn if turn is None else turn

    def cancel_seqs_of(self, task: TaskId) -> Sequence[int]:
        """Return the positions at which the end of a task was requested."""
        return self.cancel_seqs.get(task, ())

    def called_tools(self, prefix: str) -> list[str]:
        """Return the names of the tools that models called and that begin so, each once."""
        calls = [
            call.name
            for entries in self.model_answers.values()
            for entry in entries
            if isinstance(entry.event, ModelAnswered)
            for call in entry.event.message.calls
        ]
        return list(dict.fromkeys(name for name in calls if name.startswith(prefix)))

    def recorded_at(self, event: Event) -> float | None:
        """Return the recorded time of the fact that a fact of the replay repeats."""
        return self._dates.get(_key(event))

    @property
    def is_whole(self) -> bool:
        """It has the end of the run. The process of any other died in it, or works on it."""
        return self.session.has_nothing_pending

    def has_fact(self, event: Event) -> bool:
        """Return whether the record has the fact that a fact of the replay repeats."""
        key = _key(event)
        return key is None or key in self._dates

    def require_replayable(self, agent: Agent[Any]) -> None:
        """Raise `ReplayError` if the run cannot be replayed."""
        if agent.name != self.session.root.agent:
            raise ReplayError(
                f"run {self.run} is of agent {self.session.root.agent!r}, and not of {agent.name!r}"
            )
        for entry in self.entries:
            match entry.event:
                case TurnResumed(afresh=True) | TaskStarted(afresh=True):
                    raise ReplayError(
                        f"in run {self.run} a task began anew after a crash, and what it"
                        " had done before is forgotten: this cannot be replayed"
                    )
                case TaskSettled(_, outcome) | TurnEnded(_, _, outcome):
                    if outcome.ending is Ending.LOST:
                        raise ReplayError(
                            f"a task of run {self.run} was lost with its process, and when is"
                            " unknown: this cannot be replayed"
                        )
                case _:
                    pass

    @property
    def is_one_shot(self) -> bool:
        """It was one goal and one answer, without a door."""
        return all(
            entry.event.capability is DeliveryCapability.NONE
            for entry in self.turns.values()
            if isinstance(entry.event, TurnStarted)
        )

    def caller_cancelled_seq(self, turn: int) -> int | None:
        """Return the position at which the caller of a turn was cancelled: the first fact after."""
        end = self.outcomes.get((self.root, turn))
        if (
            end is None
            or end.outcome.ending is not Ending.CANCELLED
            or self.root in self.cancel_seqs
        ):
            return None
        first = end.seq
        for entry in reversed([it for it in self.entries if it.seq < end.seq]):
            match entry.event:
                case TaskSettled(_, Outcome(ending=Ending.CANCELLED)) | ModelFailed():
                    first = entry.seq
                case _:
                    break
        return first

    @property
    def session_opened(self) -> SessionOpened:
        event = self.entries[0].event
        assert isinstance(event, SessionOpened), "a run begins with this fact"
        return event

    def downtime(self) -> dict[int, float]:
        """Return how many seconds nothing ran, by the position at which that ended."""
        return {
            entry.seq: max(0.0, entry.at - before.at)
            for before, entry in zip(self.entries, self.entries[1:], strict=False)
            if isinstance(entry.event, JournalOpened)
            or (isinstance(entry.event, TurnResumed) and isinstance(before.event, JournalOpened))
        }


def _until_process_died(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries of a run up to where its process died, if the next one gave it up."""
    end = entries[-1].event
    if isinstance(end, TurnEnded) and end.outcome.cause is Cause.PROCESS_DIED:
        for index in reversed(range(len(entries))):
            if isinstance(entries[index].event, JournalOpened):
                return entries[:index]
    return entries


def is_fatal_failure(event: Event, outcome: Outcome) -> bool:
    """Tell whether this failed model call ended its task.

    A crash may come between the two: then the model was called again.
    """
    if not isinstance(event, ModelFailed):
        return False
    return (event.reason, outcome.cause) in {
        (ModelFailure.FAILED, Cause.MODEL),
        (ModelFailure.CUT_OFF, Cause.BUDGET),
    }


def _grants(event: Event) -> Sequence[Grant]:
    match event:
        case SessionOpened() | MessageReceived():
            return event.grants
        case TaskRequested(request):
            return request.grants
        case _:
            return ()


def _key(event: Event) -> Hashable | None:
    """Return the key by which a fact of the replay repeats one of the record."""
    match event:
        case TaskRequested(request):
            return TaskRequested, request.id
        case TaskStarted(task) | TaskSettled(task):
            return type(event), task
        case ToolAnswered(task, message):
            return ToolAnswered, task, message.call
        case ModelAnswered(_, message):
            return ModelAnswered, message.id
        case TurnStarted() | TurnEnded():
            return type(event), event.turn
        case (
            JournalOpened()
            | SessionOpened()
            | DoorOpened()
            | DoorClosed()
            | SessionClosed()
            | LabelsChanged()
            | MessageReceived()
            | TurnResumed()
            | ReplyDelivered()
            | DeliveryFailed()
            | ReplyPartDelivered()
            | JobSet()
            | JobPaused()
            | JobRemoved()
            | JobOccurred()
            | ModelCalled()
            | ModelFailed()
            | CancelRequested()
            | Steered()
            | SteeringSeen()
            | QuietChanged()
            | StartsPaused()
            | ApprovalAsked()
            | ApprovalAnswered()
            | ProcessStarted()
            | ProcessMatched()
            | ProcessEnded()
            | ProcessUnreachable()
            | WorkspaceOpened()
            | NetworkRequested()
            | CallPlaced()
        ):
            return None
        case _:
            assert_never(event)
