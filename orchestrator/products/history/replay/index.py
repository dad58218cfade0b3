"""The index of the facts of one run, built in one pass, for replay, comparison and fork."""

from collections.abc import Hashable
from typing import Final, Generic, TypeAlias, TypeVar, assert_never

import attrs

from orchestrator.agents import CallId, MessageId
from orchestrator.delegation import (
    Cause,
    Ending,
    Outcome,
    SessionId,
    TaskId,
    TaskRequest,
    events,
    root_of,
)
from orchestrator.delegation.events.processes import ProcessId
from orchestrator.products.history.replay.steps import (
    Step,
    end_step,
    model_step,
    request_step,
    tool_step,
)

FURTHER_CALLS: Final = frozenset({events.ModelFailure.ATTEMPT, events.ModelFailure.SUMMARY})
"""Failures after which the model is called again for the same answer."""
SIDE_CALLS: Final = frozenset({events.ModelFailure.QUESTION, events.ModelFailure.CONVERSATION})
"""Calls beside a turn, which a replay does not make: it posts their facts."""
FATAL_FAILURES: Final = frozenset(
    {(events.ModelFailure.FAILED, Cause.MODEL), (events.ModelFailure.CUT_OFF, Cause.BUDGET)}
)
"""Failures that end their task, with the cause of its end."""
TaskTurn: TypeAlias = tuple[TaskId, int]
"""A task and its turn number; the number is 0 for every task except a root."""
TaskCall: TypeAlias = tuple[TaskId, CallId]
FactT_co = TypeVar("FactT_co", covariant=True)


@attrs.frozen
class Numbered(Generic[FactT_co]):
    """A fact, or a part of a fact, with its sequence number."""

    seq: int
    value: FactT_co


@attrs.frozen
class RecordedCall:
    """A tool call of a model."""

    name: str
    seq: int
    """The position of the answer that contains the call."""
    turn: int
    """The turn of the root that made the call; 0 for any other task."""


class RunIndex:
    """The facts of one run, by task, turn and call."""

    def __init__(self, run: SessionId) -> None:
        self.run = run
        self.root = root_of(run)
        self.model_answers: dict[
            TaskTurn, list[Numbered[events.ModelAnswered | events.ModelFailed]]
        ] = {}
        """The answers of a model, and the failures that a replay repeats."""
        self.abandoned_calls: dict[TaskTurn, events.ModelFailed] = {}
        """The model calls that were broken off, or that failed in the model's own code."""
        self.broken_off_answers: set[int] = set()
        """The failures in the middle of a turn's last answer, which later turns read."""
        self.calls: dict[TaskCall, RecordedCall] = {}
        self.tool_answers: dict[TaskCall, Numbered[events.ToolAnswered]] = {}
        self.requests: dict[tuple[TaskId, str], Numbered[TaskRequest]] = {}
        """The requests, by parent and call key."""
        self.first_request_seqs: dict[tuple[TaskId, str], int] = {}
        """The position of the first request of each call."""
        self.steering_seqs: dict[MessageId, int] = {}
        self.processes_by_seq: dict[int, ProcessId] = {}
        """The notices of background commands, by position."""
        self.outcomes: dict[TaskTurn, Numbered[Outcome]] = {}
        self.turns: dict[int, Numbered[events.TurnStarted]] = {}
        self.start_seqs: dict[TaskId, int] = {}
        self.cancel_seqs: dict[TaskId, list[int]] = {}
        """The positions at which a task was cancelled, directly or as a consequence."""
        self.crash_seqs: list[int] = []
        self.copied_messages: set[MessageId] = set()
        """The answers that a fork copied from the original run."""
        self.steps: dict[TaskId, list[Step]] = {}
        self._tool_steps: dict[TaskId, list[tuple[CallId, Step]]] = {}
        """The tool answers since the last step of each task."""
        self._mail: dict[int, str] = {}
        self._dates: dict[Hashable, float] = {}
        self._failed: dict[TaskTurn, Numbered[events.ModelFailed]] = {}
        self._said: int | None = None
        """The position of a failure of the root's model in the middle of its answer."""
        self._turn = 0

    def add(self, entry: events.Entry, position: float) -> None:
        """Add a fact at its position in the record."""
        seq, event = entry.seq, entry.event
        if (key := _key(event)) is not None:
            self._dates.setdefault(key, entry.at)
        if isinstance(event, events.WorkFact):
            self._add_work(seq, event, position)
            return
        match event:
            case events.JournalOpened():
                self.crash_seqs.append(seq)
            case events.TurnResumed():
                self._said = None  # the model was asked again
            case events.ModelFailed():
                self._add_failure(seq, event)
            case events.Steered():
                self.steering_seqs[event.id] = seq
            case events.ProcessMatched() | events.ProcessEnded() | events.ProcessUnreachable():
                self.processes_by_seq[seq] = event.id
            case events.CancelRequested():
                self.cancel_seqs.setdefault(event.task, []).append(seq)
            case _:
                pass

    def _add_work(  # noqa: C901, PLR0912 (a case a fact)
        self, seq: int, event: events.WorkFact, position: float
    ) -> None:
        match event:
            case events.MessageReceived():
                self._mail[seq] = f"message {event.text!r}"
            case events.TurnStarted():
                self._turn = event.turn
                self.turns[event.turn] = Numbered(seq, event)
                # Tasks that are cancelled together end in any order.
                read = ", ".join(sorted(self._mail.get(it, "a notice") for it in event.mail))
                what = f"turn {event.turn} begins"
                self._add_step(self.root, Step(what, f"it reads {read}", position))
            case events.TurnEnded():
                if self._said is not None:
                    self.broken_off_answers.add(self._said)
                    self._said = None
                self._add_outcome((self.root, event.turn), seq, event.outcome)
                what = f"turn {event.turn} ends"
                self._add_step(self.root, end_step(what, event.outcome, position))
            case events.TaskRequested(request):
                self.requests[request.parent, request.call] = Numbered(seq, request)
                call, _, _ = request.call.rpartition("#")
                self.first_request_seqs.setdefault((request.parent, call), seq)
                self._add_step(request.id, request_step(event, position))
            case events.TaskStarted():
                self.start_seqs.setdefault(event.task, seq)
            case events.ModelAnswered(task, message):
                task_turn = self.task_turn(task)
                self.model_answers.setdefault(task_turn, []).append(Numbered(seq, event))
                for it in message.calls:
                    self.calls[task, it.id] = RecordedCall(it.name, seq, task_turn[1])
                if event.copied:
                    self.copied_messages.add(message.id)
                self._add_step(task, model_step(event, position))
            case events.ToolAnswered(task, message):
                self.tool_answers[task, message.call] = Numbered(seq, event)
                answer = tool_step(message, self.called_tool(task, message.call), position)
                self._tool_steps.setdefault(task, []).append((message.call, answer))
            case events.TaskSettled(task, outcome):
                self._mail[seq] = f"the end of {task}"
                self._add_outcome(self.task_turn(task), seq, outcome)
                if outcome.ending is Ending.CANCELLED:
                    self.cancel_seqs.setdefault(task, []).append(seq)
                self._add_step(task, end_step("it ends", outcome, position))
            case _:
                assert_never(event)

    def _add_failure(self, seq: int, event: events.ModelFailed) -> None:
        task_turn = self.task_turn(event.task)
        if event.task == self.root and event.reason not in SIDE_CALLS:
            self._said = seq if event.text else None
        if event.reason in SIDE_CALLS:
            pass  # the replay posts this fact again, since no model makes it
        elif event.reason is events.ModelFailure.BROKEN_OFF:
            self.abandoned_calls[task_turn] = event
        elif event.reason in FURTHER_CALLS:
            self.model_answers.setdefault(task_turn, []).append(Numbered(seq, event))
        else:
            self._failed[task_turn] = Numbered(seq, event)

    def _add_outcome(self, task_turn: TaskTurn, seq: int, outcome: Outcome) -> None:
        self.outcomes[task_turn] = Numbered(seq, outcome)
        failed = self._failed.pop(task_turn, None)
        if failed is None:
            return
        reason = failed.value.reason
        # A crash may come between the failure and the end: then the model was called again.
        if (reason, outcome.cause) in FATAL_FAILURES:
            self.model_answers.setdefault(task_turn, []).append(failed)
        elif reason is events.ModelFailure.FAILED:
            self.abandoned_calls.setdefault(task_turn, failed.value)

    def _add_step(self, task: TaskId, *steps: Step) -> None:
        # The calls of one answer are answered in any order.
        answers = sorted(self._tool_steps.pop(task, ()), key=lambda it: it[0])
        self.steps.setdefault(task, []).extend([*(step for _, step in answers), *steps])

    def end_steps(self) -> None:
        """Add the tool answers after the last step of each task."""
        for task in list(self._tool_steps):
            self._add_step(task)

    def task_turn(self, task: TaskId, turn: int | None = None) -> TaskTurn:
        """Return the key of a turn; the default for a root is its latest turn."""
        if task != self.root:
            return task, 0
        return task, self._turn if turn is None else turn

    def called_tool(self, task: TaskId, call: CallId) -> str:
        """Return the name of the tool that a task called."""
        found = self.calls.get((task, call))
        return "" if found is None else found.name

    def recorded_at(self, event: events.Event) -> float | None:
        """Return the time of the recorded fact that matches a fact of the replay."""
        return self._dates.get(_key(event))

    def has_fact(self, event: events.Event) -> bool:
        """Return whether the record has a fact that matches a fact of the replay."""
        key = _key(event)
        return key is None or key in self._dates


def _key(event: events.Event) -> Hashable | None:
    """Return the key that matches a fact of the replay with a recorded one, if it has a key."""
    match event:
        case events.TaskRequested(request):
            return events.TaskRequested, request.id
        case events.TaskStarted(task) | events.TaskSettled(task):
            return type(event), task
        case events.ToolAnswered(task, message):
            return events.ToolAnswered, task, message.call
        case events.ModelAnswered(_, message):
            return events.ModelAnswered, message.id
        case events.TurnStarted() | events.TurnEnded():
            return type(event), event.turn
        case _:
            return None
