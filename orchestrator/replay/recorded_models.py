"""Who speaks when a run is replayed: models and tools answer what the record says, when it says so.

The tools that hand work on and look after it are real, and begin when they began.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import trio

from agents import (
    Agent,
    AssistantMessage,
    CallId,
    DefinitionError,
    Failure,
    InLine,
    Model,
    ModelError,
    ModelRequest,
    Price,
    Tool,
    ToolCall,
    ToolError,
    ToolMessage,
)
from delegation import Ending, Ledger, Outcome, TaskId, TaskRecord
from delegation.events import ModelAnswered, ModelFailed, TaskRequested, ToolAnswered
from delegation.events.processes import ProcessId
from orchestrator.engine.approvals import turned_away
from orchestrator.execution.agent_registry import Roster
from orchestrator.journal.bookkeeper import STOPPING
from orchestrator.replay.compare import likeness_in
from orchestrator.replay.record import Record, Stretch


class Walk:
    """Where in the record we are."""

    def __init__(self) -> None:
        self.position: float = 0
        self._waiting: dict[float, trio.Event] = {}

    async def reach(self, seq: float) -> None:
        """Wait until the record is at this fact, or past it."""
        await trio.lowlevel.checkpoint()
        if seq > self.position:
            await self._waiting.setdefault(seq, trio.Event()).wait()

    def go_to(self, seq: int) -> None:
        self.position = seq
        if (waiting := self._waiting.pop(seq, None)) is not None:
            waiting.set()

    def finish(self) -> None:
        """Let everybody go on who waits for what the record does not have."""
        self.position = math.inf
        for waiting in self._waiting.values():
            waiting.set()


@attrs.frozen
class Call:
    """A call of one of our tools that is being made."""

    answered_at: float
    ids: Iterator[TaskId]
    """The ids of the tasks that it asked for."""


CALL: Final[ContextVar[Call]] = ContextVar("call")


Telling: TypeAlias = Callable[[TaskId, CallId, Sequence[int]], None]


def _tell_nobody(task: TaskId, call: CallId, mail: Sequence[int]) -> None:
    """Tell nobody which mail an answer tells."""


class PromptedRoster(Roster):
    """Lets the record speak for models and tools."""

    runs_tools = False

    def __init__(
        self,
        ledger: Ledger,
        record: Record,
        walk: Walk,
        environ: Mapping[str, str],
    ) -> None:
        super().__init__(environ)
        self._ledger = ledger
        self._record = record
        self._walk = walk
        self._likeness = likeness_in(record)
        self._parts: dict[Stretch, _Part] = {}
        self._new_ids = map(TaskId, map("t_new{}".format, itertools.count(1)))
        self.waiting: dict[TaskId, str] = {}
        """What tasks wait for that the record does not have."""
        self.telling: Telling = _tell_nobody
        """Is told which mail an answer tells."""

    def new_task_id(self) -> TaskId:
        return next(CALL.get().ids, None) or next(self._new_ids)

    def id_for(self, parent: TaskId, call: str) -> TaskId:
        """Return the id of what a pipeline delegates: the one that it had."""
        entry = self._record.requests.get((parent, call))
        if entry is None:
            return next(self._new_ids)
        assert isinstance(entry.event, TaskRequested), "that is what these are"
        return entry.event.request.id

    def _bare(self, name: str) -> Model:
        return _Nobody(name)

    def model_for(
        self, task: TaskRecord, agent: Agent[Any], paid: Callable[[Model], Model]
    ) -> Model:
        part = self._part(task)
        return _InTurn(part, paid(_Prompted(part, self.model_of(agent))))

    def tools_for(self, task: TaskRecord, tools: Sequence[Tool]) -> Sequence[Tool]:
        own = self.agent_of(task).tools
        return [
            attrs.evolve(
                tool,
                run=partial(self._answered, task, tool)
                if tool in own
                else partial(self._run, task, tool),
            )
            for tool in tools
        ]

    def _part(self, task: TaskRecord) -> "_Part":
        turn = self._ledger.sessions[task.session].turns
        stretch = self._record.stretch(task.id, turn)
        if stretch not in self._parts:
            self._parts[stretch] = _Part(
                self._record, self._walk, stretch, self.waiting
            )
        return self._parts[stretch]

    def _answer_to(
        self, task: TaskRecord, call: ToolCall
    ) -> tuple[float, ToolMessage | None]:
        """Return where a call was answered, and what."""
        entry = self._record.tools.get((task.id, call.id))
        if entry is None:
            return math.inf, None
        assert isinstance(entry.event, ToolAnswered), "that is what these are"
        return entry.seq, entry.event.message

    async def _answered(self, task: TaskRecord, tool: Tool, call: ToolCall) -> str:
        """Answer for a tool that is not run."""
        answered_at, answer = self._answer_to(task, call)
        if answer is None:
            await self._part(task).end(f"{tool.name} is called once more")
        await self._walk.reach(answered_at)
        assert answer is not None, "without one it does not come to its end"
        self._tell_of_commands(task, call)
        if not answer.failed:
            return answer.text
        if answer.text.startswith(f"there is no tool {tool.name!r}"):
            raise ToolError(f"there is a tool {tool.name!r} now")
        raise ToolError(answer.text)

    def _tell_of_commands(self, task: TaskRecord, call: ToolCall) -> None:
        """Let an answer tell how commands ended, if it did."""
        event = self._record.tools[task.id, call.id].event
        assert isinstance(event, ToolAnswered), "that is what these are"
        commands = self._record.commands
        told = Counter(commands[seq] for seq in event.mail if seq in commands)
        unread: dict[ProcessId, list[int]] = {}
        for seq, process in self._ledger.sessions[task.session].ended_processes():
            unread.setdefault(process, []).append(seq)
        # Older records tell the end alone, which is the last of it.
        news = [unread.get(process, [])[-many:] for process, many in told.items()]
        self.telling(task.id, call.id, list(itertools.chain(*news)))

    async def _run(self, task: TaskRecord, tool: Tool, call: ToolCall) -> str:
        """Run a tool of ours: from where it began to where it answered."""
        answered_at, answer = self._answer_to(task, call)
        begins = self._begins(task, call, answered_at)
        if math.isinf(begins):
            await self._part(task).reach_end()
        await self._walk.reach(begins)
        refusals = (STOPPING, *turned_away(tool.name))
        if answer is not None and answer.failed and answer.text.startswith(refusals):
            await self._walk.reach(answered_at)
            raise ToolError(answer.text)
        CALL.set(Call(answered_at, self._ids(task, call)))
        refused: ToolError | None = None
        try:
            said = await tool.run(call)
        except ToolError as exc:
            said, refused = str(exc), exc
        if answer is None:
            await self._part(task).reach_end()
        elif self._likeness.texts(answer.text, said, by=tool.name):
            await self._walk.reach(answered_at)
        if refused is not None:
            raise refused
        return said

    def _begins(self, task: TaskRecord, call: ToolCall, answered_at: float) -> float:
        """Return where a call of ours began to do something."""
        record = self._record
        if (asked := record.asked.get((task.id, call.id))) is not None:
            return asked
        ids: Any = call.arguments.get("ids", ())
        tasks = [id_ for id_ in ids if isinstance(id_, str)] if ids else []
        match call.arguments.get("action"):
            case "wait":
                return 0
            case "steer":
                named = [f"m_{task.id}_{call.id}_{id_}" for id_ in tasks]
                said = [record.said[id_] for id_ in record.said if id_ in named]
                return min(said, default=answered_at)
            case "cancel":
                stopped = [at for id_ in tasks for at in record.stops(TaskId(id_))]
                here = self._walk.position
                return min(
                    (at for at in stopped if here <= at <= answered_at),
                    default=answered_at,
                )
            case _:
                return answered_at

    def _ids(self, task: TaskRecord, call: ToolCall) -> Iterator[TaskId]:
        for index in itertools.count():
            yield self.id_for(task.id, f"{call.id}#{index}")


class _Part:
    """What the model of a task says in one turn."""

    def __init__(
        self, record: Record, walk: Walk, stretch: Stretch, waiting: dict[TaskId, str]
    ) -> None:
        self._answers = iter(record.models.get(stretch, ()))
        self._walk = walk
        self._late = record.late
        self._task, _ = stretch
        self._waiting = waiting
        self._end = record.ends.get(stretch)
        self.next = next(self._answers, None)
        """The answer that comes next."""
        self.is_broken_off = stretch in record.broken
        """Its model was asked once more, and not waited for."""

    @property
    def outcome(self) -> Outcome:
        return Outcome(Ending.LOST) if self._end is None else self._end.outcome

    def take(self) -> None:
        self.next = next(self._answers, None)

    async def reach_next(self, seq: int) -> None:
        await self._walk.reach(self._late.get(seq, seq))

    async def reach_end(self) -> None:
        """Wait for the end that is recorded. It is then that a cancelled call gives up."""
        with trio.CancelScope(shield=True):
            await self._walk.reach(math.inf if self._end is None else self._end.seq)
        await trio.lowlevel.checkpoint()

    async def end(self, what: str) -> None:
        """Do what a call did that was never answered: fail, or be cancelled."""
        await self.reach_end()
        if self.outcome.ending is Ending.FAILED:
            raise DefinitionError(self.outcome.error)
        self._waiting[self._task] = what
        try:
            await trio.sleep_forever()
        finally:
            del self._waiting[self._task]


class _InTurn:
    """Lets a model be asked, and paid for, when its answer came."""

    def __init__(self, part: _Part, model: Model) -> None:
        self.name = model.name
        self._part = part
        self._model = model

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        part = self._part
        if part.next is not None:
            # It may have said a word now and then, which is not recorded.
            request.tell(InLine(True))
            await part.reach_next(part.next.seq)
            request.tell(InLine(False))
        elif not part.is_broken_off:
            await part.reach_end()
        return await self._model.answer(request)


class _Prompted:
    """Says what a model said."""

    def __init__(self, part: _Part, model: Model) -> None:
        self.name = model.name
        self._part = part
        self._model = model

    @property
    def price(self) -> Price | None:
        return getattr(self._model, "price", None)

    def count_tokens(self, request: ModelRequest) -> int | None:
        count = getattr(self._model, "count_tokens", None)
        return None if count is None else count(request)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        part, entry = self._part, self._part.next
        await trio.lowlevel.checkpoint()
        if entry is None:
            await part.end("its model is asked once more")
        part.take()
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
class _Nobody:
    """A model that is only known by its name."""

    name: str

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        raise AssertionError("nobody asks a model when a run is replayed")
