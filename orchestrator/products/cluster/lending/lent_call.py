"""One call that is lent by itself, and the text that the model reads about it."""

import math
from typing import Final, assert_never

import msgspec
import trio

from orchestrator.agents import (
    AgentError,
    CallKey,
    DefinitionError,
    RefusedBy,
    Tool,
    ToolCall,
    ToolError,
)
from orchestrator.agents.redaction.redactor import has_redacted
from orchestrator.agents.tools.context import commands_are_walled
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.delegation import TaskRecord
from orchestrator.delegation.events import CallPlaced
from orchestrator.products.cluster.lending.lent import Lent, Loss
from orchestrator.products.cluster.work import ExecutionId, Request, WorkerId
from orchestrator.products.cluster.worker import wire

LATE_SECONDS: Final = 10.0
"""How much later than the worker the writer gives a call up that is over its timeout."""
GONE: Final = "broken off: the worker that ran it is gone, and its effect is unknown"
ENDED_BY_WORKER: Final = (
    "broken off: its worker was stopped during this call, and its effect is unknown"
)
NOT_BEGUN: Final = (
    "not run: it held a secret, which is not recorded, and everything stopped before a worker had"
    " begun it; call it again, with the secret, if it is still wanted"
)
UNREADABLE: Final = (
    "the worker that ran it sent an answer that cannot be read; its effect is unknown"
)


class WorkerCallError(AgentError):
    """A tool failed on its worker with an error that ends the task."""


class LentCall(Lent):
    """The state of one call."""

    def __init__(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord, version: str
    ) -> None:
        """Begin with a call that was sent to no worker; its key is the same in every attempt.

        Raise `ToolError` if its arguments are too long for a worker.
        """
        require_small(tool, call)
        super().__init__(task, call.id, place=tool.place, version=version)
        self.tool = tool
        self.call = call
        self.key = key
        self.walled = commands_are_walled()
        self.deadline = deadline_of(tool)
        self._is_adopted = False

    @property
    def placed(self) -> CallPlaced | None:
        return self.task.placed.get(self.call.id)

    @property
    def may_begin_again(self) -> bool:
        return self.tool.idempotent and self.may_begin

    @property
    def may_begin(self) -> bool:
        return not (self._is_adopted and has_redacted(self.call.arguments))

    def adopt(self, execution: ExecutionId, worker: WorkerId) -> None:
        super().adopt(execution, worker)
        self._is_adopted = True

    def break_off(self, loss: Loss, said: Request | None = None) -> None:
        match loss:
            case Loss.GONE:
                end = wire.Failed(self.id, GONE, RefusedBy.CRASH.value)
            case Loss.STOPPED:
                end = wire.Failed(self.id, ENDED_BY_WORKER, RefusedBy.CRASH.value)
            case Loss.NOT_BEGUN:
                end = wire.Failed(self.id, NOT_BEGUN, RefusedBy.CRASH.value)
            case Loss.RUBBISH:
                end = wire.Failed(self.id, f"{self.tool.name}: {UNREADABLE}")
            case _:
                assert_never(loss)
        self.set_end(end, said)

    def accept(self, execution: ExecutionId, worker: WorkerId) -> None:
        super().accept(execution, worker)
        # The worker has a clock of its own, and tells when it is over.
        self.scope.deadline = self.deadline + LATE_SECONDS

    def wait_again(self, *, is_shown: bool = False) -> None:
        super().wait_again(is_shown=is_shown)
        self.scope.deadline = self.deadline

    @property
    def seconds_left(self) -> float | None:
        return seconds_until(self.deadline)

    async def wait_end(self) -> None:
        """Wait for its end; raise `ToolError` if it is over its timeout."""
        with self.scope:
            await self.ended.wait()
        if self.end is None:
            raise self.not_taken() if self.execution is None else too_late(self.tool)

    def result(self) -> str | ToolResult:
        """Return the answer of the tool: `result_of`."""
        return result_of(self.end, self.tool)

    def not_taken(self) -> ToolError:
        return not_taken(self.tool, self.place)


def require_small(tool: Tool, call: ToolCall) -> None:
    """Refuse arguments that are too long for a worker."""
    if (size := wire.size_of(call.arguments)) > wire.MOST_BYTES:
        raise ToolError(
            f"the arguments of {tool.name} have {size:,} bytes, and a worker is sent at most"
            f" {wire.MOST_BYTES:,}; write long values to a file that both can read"
        )


def deadline_of(tool: Tool) -> float:
    """Return when a call that is made now is over its timeout."""
    return math.inf if tool.timeout is None else trio.current_time() + tool.timeout


def seconds_until(deadline: float) -> float | None:
    """Return the rest of a timeout; None without one."""
    if math.isinf(deadline):
        return None
    return max(0.0, deadline - trio.current_time())


def result_of(end: wire.End | None, tool: Tool) -> str | ToolResult:
    """Return the answer of a tool.

    Raises:
        ToolError: the model reads why.
        WorkerCallError: the tool failed with another error.
    """
    match end:
        case wire.Answered(text=text, parts=parts, evidence=evidence):
            has_more = parts or evidence is not msgspec.UNSET
            return ToolResult(text, parts=parts, evidence=evidence) if has_more else text
        case wire.Failed(text=text, refused_by=refused_by):
            raise ToolError(text, refused_by=_refusal(refused_by))
        case wire.Crashed(text=text):
            raise WorkerCallError(text)
        case wire.Stopped() | wire.Unfit() | None:
            raise DefinitionError(f"{tool.name} has no answer: {end}")
        case _:
            assert_never(end)


def not_taken(tool: Tool, place: str) -> ToolError:
    """Return the text about a call that did not run in time."""
    return ToolError(f"{_in_time(tool)}: no worker at {place!r} has taken it, so it was not run")


def too_late(tool: Tool) -> ToolError:
    """Return the text about a call whose worker does not report its end."""
    return ToolError(
        f"{_in_time(tool)}, nor does its worker; it may still be running, so what it does may"
        " yet happen"
    )


def _in_time(tool: Tool) -> str:
    seconds = tool.timeout or 0
    return f"{tool.name} did not answer within {seconds:g} second{'s' * (seconds != 1)}"


def _refusal(name: str) -> RefusedBy | None:
    known = {it.value: it for it in RefusedBy}
    return known.get(name)
