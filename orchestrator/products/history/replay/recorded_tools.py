"""The tool calls of a replay: an agent's own tools answer from the record, delegation tools run.

A question to a parent is answered from the record too. A delegation tool starts and answers at the
recorded facts, and its tasks have the recorded ids.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final

import trio

from orchestrator.agents import Agent, CallKey, RefusedBy, Tool, ToolCall, ToolError, ToolMessage
from orchestrator.agents.feature_checks import MEMORY, RUN_SCRIPT
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.agents.turn_host import PastChecks
from orchestrator.delegation import ASK_PARENT, Cause, Ledger, TaskId, TaskRecord
from orchestrator.delegation.board_tool import BOARD
from orchestrator.delegation.events import ModelAnswered
from orchestrator.delegation.job_tool import JOB_TOOL
from orchestrator.ports.execution import AgentRegistry
from orchestrator.products.history.replay.compare import equivalence_for
from orchestrator.products.history.replay.position import ReplayPosition
from orchestrator.products.history.replay.record import RecordedRun
from orchestrator.products.history.replay.recorded_models import RecordedModels

_REPEATED_REFUSALS: Final = frozenset({RefusedBy.APPROVAL, RefusedBy.SHUTDOWN})
"""Refusals by people or by the shutdown of the process: they are taken from the record."""
_ANSWERED_SEQ: Final[ContextVar[float]] = ContextVar("answered seq")
"""The position at which the running delegation call was answered."""


class RecordedTools:
    """The place of all tool calls of a replay (`ToolPlace`)."""

    has_effects = False
    resumes_calls = False

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

    def past_checks(self, task: TaskRecord) -> PastChecks:
        record = self._record
        turn = self._ledger.sessions[task.session].turns
        task_turn = record.task_turn(task.id, turn)

        def said(answers: int) -> str | None:
            calls = record.model_answers.get(task_turn, [])
            given = [it.seq for it in calls if isinstance(it.value, ModelAnswered)]
            # The model was called after that answer, so the answer was sent back.
            is_called_again = given[answers:] or calls[-1].seq > given[-1]
            if is_called_again or task_turn in record.abandoned_calls:
                return "it was sent back"
            ended = record.outcomes.get(task_turn)
            if ended is None or ended.value.cause is not Cause.OUTPUT:
                return None
            return ended.value.error

        return said

    def open_turn(self, task: TaskRecord, agent: Agent[Any]) -> None:
        return None

    async def run(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord
    ) -> str | ToolResult:
        is_own = tool.server or tool in self._registry.agent_of(task).tools
        is_dry_run = tool.name == RUN_SCRIPT and call.arguments.get("dry_run") is True
        if is_own or is_dry_run or tool.name in {ASK_PARENT, BOARD, JOB_TOOL, MEMORY}:
            return await self._answer_from_record(task, tool, call)
        return await self._run_delegation_tool(task, tool, call)

    def _answer_to(self, task: TaskRecord, call: ToolCall) -> tuple[float, ToolMessage | None]:
        """Return the answer to a call, and its position."""
        entry = self._record.tool_answers.get((task.id, call.id))
        if entry is None:
            return math.inf, None
        return entry.seq, entry.value.message

    async def _answer_from_record(self, task: TaskRecord, tool: Tool, call: ToolCall) -> ToolResult:
        """Answer for a tool of the agent, which does not run."""
        answered_seq, answer = self._answer_to(task, call)
        if answer is None:
            await self._models.answers_for(task).end_unanswered(f"{tool.name} is called once more")
        await self._position.wait_reached(answered_seq)
        assert answer is not None, "without one the call has ended above"
        notices = self._command_notices(task, call)
        if not answer.failed:
            return ToolResult(answer.text, notices, answer.parts, answer.evidence)
        # A replay does not ask a server for its current tools.
        if answer.refused_by is RefusedBy.UNKNOWN_TOOL and not tool.server:
            raise ToolError(f"there is a tool {tool.name!r} now", consumes=notices)
        raise ToolError(answer.text, consumes=notices, refused_by=answer.refused_by)

    def _command_notices(self, task: TaskRecord, call: ToolCall) -> Sequence[int]:
        """Return the command notices that an answer consumed."""
        event = self._record.tool_answers[task.id, call.id].value
        commands = self._record.processes_by_seq
        consumed = {commands[seq] for seq in event.mail if seq in commands}
        unread = self._ledger.sessions[task.session].process_notices()
        return [seq for seq, process in unread if process in consumed]

    async def _run_delegation_tool(
        self, task: TaskRecord, tool: Tool, call: ToolCall
    ) -> str | ToolResult:
        """Run `delegate_task` or `task` from its recorded start to its recorded answer."""
        answered_seq, answer = self._answer_to(task, call)
        start_seq = self._start_seq(task, call, answered_seq)
        if math.isinf(start_seq):
            await self._models.answers_for(task).wait_end()
        await self._position.wait_reached(start_seq)
        if answer is not None and answer.refused_by in _REPEATED_REFUSALS:
            await self._position.wait_reached(answered_seq)
            raise ToolError(answer.text, refused_by=answer.refused_by)
        _ANSWERED_SEQ.set(answered_seq)
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
            await self._position.wait_reached(answered_seq)
        if refused is not None:
            raise refused
        return result

    def _start_seq(self, task: TaskRecord, call: ToolCall, answered_seq: float) -> float:
        """Return the position of the first effect of a delegation call."""
        record = self._record
        requested = record.first_request_seqs.get((task.id, call.id))
        if requested is not None:
            return requested
        ids: Any = call.arguments.get("ids", ())
        tasks = [id_ for id_ in ids if isinstance(id_, str)] if ids else []
        match call.arguments.get("action"):
            case "wait":
                return 0
            case "steer":
                messages = [f"m_{task.id}_{call.id}_{id_}" for id_ in tasks]
                steered = [seq for id_, seq in record.steering_seqs.items() if id_ in messages]
                return min(steered, default=answered_seq)
            case "cancel":
                cancelled = [seq for id_ in tasks for seq in record.cancel_seqs_of(TaskId(id_))]
                now = self._position.seq
                return min(
                    (seq for seq in cancelled if now <= seq <= answered_seq), default=answered_seq
                )
            case _:
                return answered_seq


class RecordedIds:
    """Gives the tasks of a replay their recorded ids."""

    def __init__(self, record: RecordedRun) -> None:
        self._record = record
        self._new_ids = map(TaskId, map("t_new{}".format, itertools.count(1)))

    def new_task_id(self, parent: TaskId, call: str) -> TaskId:
        entry = self._record.requests.get((parent, call))
        return next(self._new_ids) if entry is None else entry.value.id


class RecordedTiming:
    """The timing of a replay (`StepTiming`): a wait for tasks returns at its recorded answer.

    Until then more tasks may settle, and the answer lists them too.
    """

    def __init__(self, position: ReplayPosition) -> None:
        self._position = position

    async def before_request(
        self, parent: TaskRecord, agent: str, goal: str, held_since: float | None
    ) -> None:
        await trio.lowlevel.cancel_shielded_checkpoint()

    def fan_out_limit(self, limit: int) -> int:
        return limit

    def watch_process(self, kill: Callable[[], None], /) -> None:
        """Ignore the process: a replay ends with its script."""

    async def before_run(self, task: TaskRecord) -> None:
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def after_wait(self) -> None:
        await self._position.wait_reached(_ANSWERED_SEQ.get())
