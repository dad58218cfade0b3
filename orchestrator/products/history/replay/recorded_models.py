"""The models of a replay: each gives its recorded answers at the recorded facts."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    DefinitionError,
    Failure,
    Model,
    ModelError,
    ModelRequest,
    Queued,
    TextDelta,
    Usage,
)
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper
from orchestrator.delegation import Cause, Ending, Ledger, Outcome, TaskId, TaskRecord
from orchestrator.delegation.events import ModelAnswered, ModelFailed, ModelFailure
from orchestrator.ports.execution import ModelResolver
from orchestrator.products.history.replay.index import FURTHER_CALLS, TaskTurn
from orchestrator.products.history.replay.position import ReplayPosition
from orchestrator.products.history.replay.record import RecordedRun


class RecordedModels:
    """The models of a replay (`ModelSource`)."""

    def __init__(
        self,
        ledger: Ledger,
        record: RecordedRun,
        position: ReplayPosition,
        environ: Mapping[str, str],
    ) -> None:
        self._ledger = ledger
        self._record = record
        self._position = position
        self._names = ModelResolver(environ, connect=_UnusedModel)
        self._answers_by_turn: dict[TaskTurn, RecordedAnswers] = {}
        self.unrecorded_waits: dict[TaskId, str] = {}
        """Descriptions of the calls that are missing in the record, by the waiting task."""

    def model_of(self, agent: Agent[Any]) -> Model:
        return self._names.model_of(agent)

    def model_for(
        self, task: TaskRecord, agent: Agent[Any], budgeted: Callable[[Model], Model]
    ) -> Model:
        answers = self.answers_for(task)
        recorded = _RecordedModel(answers, self.model_of(agent))
        return _TimedModel(answers, budgeted(recorded))

    async def aclose(self) -> None:
        await self._names.aclose()

    def answers_for(self, task: TaskRecord) -> "RecordedAnswers":
        turn = self._ledger.sessions[task.session].turns
        task_turn = self._record.task_turn(task.id, turn)
        if task_turn not in self._answers_by_turn:
            self._answers_by_turn[task_turn] = RecordedAnswers(
                self._record, self._position, task_turn, self.unrecorded_waits
            )
        return self._answers_by_turn[task_turn]


class RecordedAnswers:
    """The recorded answers of a model in one turn of a task."""

    def __init__(
        self,
        record: RecordedRun,
        position: ReplayPosition,
        task_turn: TaskTurn,
        unrecorded_waits: dict[TaskId, str],
    ) -> None:
        self._answers = iter(record.model_answers.get(task_turn, ()))
        self._position = position
        self._ends_after_crash = record.ends_after_crash
        self._task, _ = task_turn
        self._unrecorded_waits = unrecorded_waits
        self._end = record.outcomes.get(task_turn)
        self.next = next(self._answers, None)
        self.abandoned_call = record.abandoned_calls.get(task_turn)
        """The last call of the model, if it gave no answer."""

    @property
    def outcome(self) -> Outcome:
        return Outcome(Ending.LOST) if self._end is None else self._end.value

    def advance(self) -> None:
        self.next = next(self._answers, None)

    async def wait_next(self, seq: int) -> None:
        await self._position.wait_reached(self._ends_after_crash.get(seq, seq))

    async def wait_end(self) -> None:
        """Wait for the recorded end of the turn, which broke off a cancelled call."""
        with trio.CancelScope(shield=True):
            await self._position.wait_reached(math.inf if self._end is None else self._end.seq)
        await trio.lowlevel.checkpoint()

    async def end_unanswered(self, what: str) -> None:
        """End like a call without an answer: fail, or be cancelled."""
        await self.wait_end()
        if self.outcome.ending is Ending.FAILED:
            raise DefinitionError(self.outcome.error)
        self._unrecorded_waits[self._task] = what
        try:
            await trio.sleep_forever()
        finally:
            del self._unrecorded_waits[self._task]


class _TimedModel:
    """Starts a model call, with its reservation, at the time of the recorded answer."""

    def __init__(self, answers: RecordedAnswers, model: Model) -> None:
        self.name = model.name
        self._answers = answers
        self._model = model

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        answers = self._answers
        if answers.next is not None:
            # Streamed words count as signs of life, but they are not recorded.
            request.tell(Queued(True))
            await answers.wait_next(answers.next.seq)
            request.tell(Queued(False))
        elif answers.abandoned_call is None:
            await answers.wait_end()
            if answers.outcome.cause is not Cause.BUDGET:
                # The record does not have the call, so it is not booked either.
                await answers.end_unanswered("its model is asked once more")
        return await self._model.answer(request)


class _RecordedModel(ModelWrapper):
    """Gives the recorded answers of a model."""

    def __init__(self, answers: RecordedAnswers, model: Model) -> None:
        super().__init__(model)
        self._answers = answers

    def bill(self, usage: Usage, answered_by: str = "") -> Usage:
        """Return the recorded usage: prices may have changed since."""
        del answered_by
        return usage

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        while (entry := self._answers.next) is not None:
            self._answers.advance()
            event = entry.value
            if isinstance(event, ModelAnswered):
                return event.message
            if event.reason not in FURTHER_CALLS:
                raise self._error(event)
            request = await self._next_attempt(event, request)
        await self._end_unanswered(request)
        raise AssertionError("a call that is not recorded was answered")

    async def _end_unanswered(self, request: ModelRequest) -> None:
        abandoned = self._answers.abandoned_call
        if abandoned is not None and abandoned.text:
            request.tell(TextDelta(abandoned.text))
        try:
            await self._answers.end_unanswered("its model is asked once more")
        except DefinitionError:
            if abandoned is None:
                # By the record, the call was never sent.
                request.tell(Queued(True))
            raise

    def _error(self, event: ModelFailed) -> ModelError:
        outcome = self._answers.outcome
        is_cut = outcome.cause is Cause.BUDGET
        return ModelError(
            event.error,
            kind=Failure.CUT_OFF if is_cut else Failure(outcome.kind or "other"),
            partial=event.text,
            usage=event.usage,
            at_most=event.charged or event.usage,
        )

    async def _next_attempt(self, event: ModelFailed, request: ModelRequest) -> ModelRequest:
        """Repeat a call without an answer, and begin the next call at its recorded end."""
        answers, attempts = self._answers, request.attempts
        assert attempts is not None, "the model of a task counts its attempts"
        if event.reason is ModelFailure.SUMMARY:
            attempts.helped(event.usage)
        else:
            at_most = event.charged or event.usage
            attempts.failed(ModelError(event.error, usage=event.usage, at_most=at_most))
        if answers.next is not None:
            request.tell(Queued(True))
            await answers.wait_next(answers.next.seq)
            request.tell(Queued(False))
        elif answers.outcome.cause is not Cause.BUDGET:
            await self._end_unanswered(request)
        return await attempts.begin(request)


@attrs.frozen
class _UnusedModel:
    """Stands for a provider's model, which a replay never calls."""

    name: str

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        raise AssertionError("a replay calls no model")
