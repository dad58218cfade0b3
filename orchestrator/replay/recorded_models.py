"""Who speaks when a run is replayed: models and tools answer what the record says, when it says so.

The tools that hand work on and look after it are real, and begin when they began.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

import attrs
import trio

from agents import (
    Agent,
    AssistantMessage,
    CallKey,
    DefinitionError,
    Failure,
    Model,
    ModelError,
    ModelRequest,
    Queued,
    RefusedBy,
    Tool,
    ToolCall,
    ToolError,
    ToolMessage,
)
from agents.models.wrappers.wrapper import ModelWrapper
from agents.tools.result_text import ToolResult
from delegation import Ending, Ledger, Outcome, TaskId, TaskRecord
from delegation.events import ModelAnswered, ModelFailed, TaskRequested, ToolAnswered
from delegation.events.processes import ProcessId
from orchestrator.execution.agent_registry import AgentRegistry
from orchestrator.execution.model_resolver import ModelResolver
from orchestrator.replay.compare import equivalence_for
from orchestrator.replay.record import RecordedRun, TaskTurn

_REPEATED_REFUSALS: Final = frozenset({RefusedBy.APPROVAL, RefusedBy.SHUTDOWN})
"""Refusals that depend on people and on the process: they are taken from the record."""


class ReplayPosition:
    """Where in the record we are."""

    def __init__(self) -> None:
        self.seq: float = 0
        self._waiting: dict[float, trio.Event] = {}

    async def wait_reached(self, seq: float) -> None:
        """Wait until the record is at this fact, or past it."""
        await trio.lowlevel.checkpoint()
        if seq > self.seq:
            await self._waiting.setdefault(seq, trio.Event()).wait()

    def advance_to(self, seq: int) -> None:
        self.seq = seq
        if (waiting := self._waiting.pop(seq, None)) is not None:
            waiting.set()

    def finish(self) -> None:
        """Let everybody go on who waits for what the record does not have."""
        self.seq = math.inf
        for waiting in self._waiting.values():
            waiting.set()


ANSWERED_SEQ: Final[ContextVar[float]] = ContextVar("answered seq")
"""Where the call of a delegation tool that is being made was answered."""


class RecordedModels:
    """The models of a replay (`ModelSource`): each answers what the record says, when it says so."""

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
        self._answers_by_turn: dict[TaskTurn, _RecordedAnswers] = {}
        self.unrecorded_waits: dict[TaskId, str] = {}
        """What tasks wait for that the record does not have."""

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

    def answers_for(self, task: TaskRecord) -> "_RecordedAnswers":
        turn = self._ledger.sessions[task.session].turns
        stretch = self._record.task_turn(task.id, turn)
        if stretch not in self._answers_by_turn:
            self._answers_by_turn[stretch] = _RecordedAnswers(
                self._record, self._position, stretch, self.unrecorded_waits
            )
        return self._answers_by_turn[stretch]


class RecordedTools:
    """The tools of a replay (`ToolPlace`): an agent's own answer from the record, delegation is real.

    A delegation tool begins and answers when it did.
    """

    has_effects = False

    def __init__(
        self,
        ledger: Ledger,
        record: RecordedRun,
        position: ReplayPosition,
        models: RecordedModels,
        registry: AgentRegistry,
    ) -> None:
        self._ledger = ledger
        self._record = record
        self._position = position
        self._models = models
        self._registry = registry
        self._equivalence = equivalence_for(record)

    def takes(self, tool: Tool, task: TaskRecord) -> bool:
        return True

    async def run(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord
    ) -> str | ToolResult:
        if tool in self._registry.agent_of(task).tools:
            return await self._answer_from_record(task, tool, call)
        return await self._run_delegation_tool(task, tool, call)

    def _answer_to(
        self, task: TaskRecord, call: ToolCall
    ) -> tuple[float, ToolMessage | None]:
        """Return where a call was answered, and what."""
        entry = self._record.tool_answers.get((task.id, call.id))
        if entry is None:
            return math.inf, None
        assert isinstance(entry.event, ToolAnswered), "that is what these are"
        return entry.seq, entry.event.message

    async def _answer_from_record(
        self, task: TaskRecord, tool: Tool, call: ToolCall
    ) -> ToolResult:
        """Answer for a tool that is not run."""
        answered_at, answer = self._answer_to(task, call)
        if answer is None:
            await self._models.answers_for(task).end_unanswered(
                f"{tool.name} is called once more"
            )
        await self._position.wait_reached(answered_at)
        assert answer is not None, "without one it does not come to its end"
        notices = self._command_notices(task, call)
        if not answer.failed:
            return ToolResult(answer.text, notices)
        if answer.refused_by is RefusedBy.UNKNOWN_TOOL:
            raise ToolError(f"there is a tool {tool.name!r} now", consumes=notices)
        raise ToolError(answer.text, consumes=notices, refused_by=answer.refused_by)

    def _command_notices(self, task: TaskRecord, call: ToolCall) -> Sequence[int]:
        """Return the notices of commands that an answer consumed."""
        event = self._record.tool_answers[task.id, call.id].event
        assert isinstance(event, ToolAnswered), "that is what these are"
        commands = self._record.processes_by_seq
        consumed = Counter(commands[seq] for seq in event.mail if seq in commands)
        unread: dict[ProcessId, list[int]] = {}
        for seq, process in self._ledger.sessions[task.session].process_notices():
            unread.setdefault(process, []).append(seq)
        # Older records tell the end alone, which is the last of it.
        return [
            seq
            for process, count in consumed.items()
            for seq in unread.get(process, [])[-count:]
        ]

    async def _run_delegation_tool(
        self, task: TaskRecord, tool: Tool, call: ToolCall
    ) -> str | ToolResult:
        """Run a tool of ours: from where it began to where it answered."""
        answered_at, answer = self._answer_to(task, call)
        begins = self._start_seq(task, call, answered_at)
        if math.isinf(begins):
            await self._models.answers_for(task).wait_end()
        await self._position.wait_reached(begins)
        if answer is not None and answer.refused_by in _REPEATED_REFUSALS:
            await self._position.wait_reached(answered_at)
            raise ToolError(answer.text, refused_by=answer.refused_by)
        ANSWERED_SEQ.set(answered_at)
        refused: ToolError | None = None
        try:
            result = await tool.run(call)
            text = result.text if isinstance(result, ToolResult) else result
        except ToolError as exc:
            result = text = str(exc)
            refused = exc
        if answer is None:
            await self._models.answers_for(task).wait_end()
        elif self._equivalence.same_texts(answer.text, text, by=tool.name):
            await self._position.wait_reached(answered_at)
        if refused is not None:
            raise refused
        return result

    def _start_seq(
        self, task: TaskRecord, call: ToolCall, answered_seq: float
    ) -> float:
        """Return where a call of ours began to do something."""
        record = self._record
        if (asked := record.first_request_seqs.get((task.id, call.id))) is not None:
            return asked
        ids: Any = call.arguments.get("ids", ())
        tasks = [id_ for id_ in ids if isinstance(id_, str)] if ids else []
        match call.arguments.get("action"):
            case "wait":
                return 0
            case "steer":
                named = [f"m_{task.id}_{call.id}_{id_}" for id_ in tasks]
                said = [
                    record.steering_seqs[id_]
                    for id_ in record.steering_seqs
                    if id_ in named
                ]
                return min(said, default=answered_seq)
            case "cancel":
                stopped = [
                    at for id_ in tasks for at in record.cancel_seqs_of(TaskId(id_))
                ]
                here = self._position.seq
                return min(
                    (at for at in stopped if here <= at <= answered_seq),
                    default=answered_seq,
                )
            case _:
                return answered_seq


class RecordedIds:
    """The ids of a replay: a task is named as it was."""

    def __init__(self, record: RecordedRun) -> None:
        self._record = record
        self._new_ids = map(TaskId, map("t_new{}".format, itertools.count(1)))

    def new_task_id(self, parent: TaskId, call: str) -> TaskId:
        entry = self._record.requests.get((parent, call))
        if entry is None:
            return next(self._new_ids)
        assert isinstance(entry.event, TaskRequested), "that is what these are"
        return entry.event.request.id


class RecordedTiming:
    """The timing of a replay (`StepTiming`): a wait for tasks returns when it did.

    By then others may have settled, too.
    """

    def __init__(self, position: ReplayPosition) -> None:
        self._position = position

    async def before_request(self, parent: TaskRecord, agent: str, goal: str) -> None:
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def before_run(self, task: TaskRecord) -> None:
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def after_wait(self) -> None:
        await self._position.wait_reached(ANSWERED_SEQ.get())


class _RecordedAnswers:
    """What the model of a task says in one turn."""

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
        """The answer that comes next."""
        self.has_abandoned_call = task_turn in record.abandoned_calls
        """Its model was asked once more, and not waited for."""

    @property
    def outcome(self) -> Outcome:
        return Outcome(Ending.LOST) if self._end is None else self._end.outcome

    def advance(self) -> None:
        self.next = next(self._answers, None)

    async def wait_next(self, seq: int) -> None:
        await self._position.wait_reached(self._ends_after_crash.get(seq, seq))

    async def wait_end(self) -> None:
        """Wait for the end that is recorded. It is then that a cancelled call gives up."""
        with trio.CancelScope(shield=True):
            await self._position.wait_reached(
                math.inf if self._end is None else self._end.seq
            )
        await trio.lowlevel.checkpoint()

    async def end_unanswered(self, what: str) -> None:
        """Do what a call did that was never answered: fail, or be cancelled."""
        await self.wait_end()
        if self.outcome.ending is Ending.FAILED:
            raise DefinitionError(self.outcome.error)
        self._unrecorded_waits[self._task] = what
        try:
            await trio.sleep_forever()
        finally:
            del self._unrecorded_waits[self._task]


class _TimedModel:
    """Lets a model be asked, and paid for, when its answer came."""

    def __init__(self, answers: _RecordedAnswers, model: Model) -> None:
        self.name = model.name
        self._answers = answers
        self._model = model

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        part = self._answers
        if part.next is not None:
            # It may have said a word now and then, which is not recorded.
            request.tell(Queued(True))
            await part.wait_next(part.next.seq)
            request.tell(Queued(False))
        elif not part.has_abandoned_call:
            await part.wait_end()
        return await self._model.answer(request)


class _RecordedModel(ModelWrapper):
    """Gives the recorded answers of a model."""

    def __init__(self, answers: _RecordedAnswers, model: Model) -> None:
        super().__init__(model)
        self._answers = answers

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        part, entry = self._answers, self._answers.next
        await trio.lowlevel.checkpoint()
        if entry is None:
            await part.end_unanswered("its model is asked once more")
        part.advance()
        match entry and entry.event:
            case ModelAnswered(_, message):
                return message
            case ModelFailed(_, error, usage):
                outcome = part.outcome
                is_cut = outcome.ending is Ending.OVER_BUDGET
                kind = Failure.CUT_OFF if is_cut else Failure(outcome.kind or "other")
                raise ModelError(error, kind=kind, partial=outcome.output, usage=usage)
            case _:
                raise AssertionError("these are the answers of models")


@attrs.frozen
class _UnusedModel:
    """A model that is only known by its name."""

    name: str

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        raise AssertionError("nobody asks a model when a run is replayed")
