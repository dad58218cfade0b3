"""One call that is lent, from its first dispatch to its end: which run of it counts, if any."""

import math
from typing import Final, assert_never

import trio

from agents import (
    AgentError,
    CallKey,
    DefinitionError,
    RefusedBy,
    Tool,
    ToolCall,
    ToolError,
)
from agents.tools.context import commands_are_walled
from delegation import TaskRecord
from orchestrator.execution.worker_wire import (
    MOST_BYTES,
    Answered,
    Crashed,
    End,
    Failed,
    Stopped,
    Unfit,
    dispatch_id,
    size_of,
)
from orchestrator.workers import Dispatch, Request, RunId, WorkerId

LATE_SECONDS: Final = 10.0
"""How much later than the worker the writer gives a call up that is over its timeout."""
FIRST_PAUSE: Final = 1.0
"""The first pause before a call is sent again that a worker has refused."""


class WorkerCallError(AgentError):
    """A tool failed on its worker with an error that ends the task."""


class LentCall:
    """The state of one call."""

    def __init__(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord, version: str
    ) -> None:
        """Begin with a call that was sent to no worker yet.

        Args:
            tool: what is called.
            call: how it is called.
            key: the same in every attempt.
            task: whose call it is.
            version: the fingerprint of its agent.

        Raises:
            ToolError: its arguments are too long for a worker.
        """
        _require_small(tool.name, "the arguments of {}", size_of(call.arguments))
        self.tool = tool
        self.call = call
        self.key = key
        self.task = task
        self.version = version
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
        self.pause = FIRST_PAUSE
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

    async def wait_end(self) -> None:
        """Wait for its end.

        Raises:
            ToolError: it is over its timeout.
        """
        with self.scope:
            await self.ended.wait()
        if self.end is None:
            raise self.not_taken() if self.run is None else self._too_late()

    def result(self) -> str:
        """Return what the tool has answered.

        Raises:
            ToolError: the model reads why.
            WorkerCallError: the tool failed with another error.
        """
        match end := self.end:
            case Answered(text=text):
                return text
            case Failed(text=text, refused_by=refused_by):
                raise ToolError(text, refused_by=_refusal(refused_by))
            case Crashed(text=text):
                raise WorkerCallError(text)
            case Stopped() | Unfit() | None:
                raise DefinitionError(f"{self.tool.name} has no answer: {end}")
            case _:
                assert_never(end)

    def not_taken(self) -> ToolError:
        return ToolError(
            f"{self._in_time()}: no worker at {self.tool.place!r} has taken it, so it was not run"
        )

    def _too_late(self) -> ToolError:
        return ToolError(
            f"{self._in_time()}, nor does its worker; it may still be running, so what it does may"
            " yet happen"
        )

    def _in_time(self) -> str:
        seconds = self.tool.timeout or 0
        return (
            f"{self.tool.name} did not answer within {seconds:g} second"
            f"{'s' * (seconds != 1)}"
        )


def _require_small(tool: str, what: str, size: int) -> None:
    if size > MOST_BYTES:
        raise ToolError(
            f"{what.format(tool)} have {size:,} bytes, and a worker is sent at most"
            f" {MOST_BYTES:,}; write what is long to a file that both can read"
        )


def _refusal(name: str) -> RefusedBy | None:
    known = {it.value: it for it in RefusedBy}
    return known.get(name)
