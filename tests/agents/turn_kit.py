"""Hosts of turns without an orchestrator: in memory, and with durability that a test decides."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from orchestrator.agents import ToolCall, UserMessage
from orchestrator.agents.models.model import ModelEvent
from orchestrator.agents.turn_host import Step


class MemoryHost:
    """A host for a turn outside of an orchestrator: it appends the steps to a list.

    Every call is approved, nothing is durable, nothing steers the turn.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def record(self, step: Step, consumes: Sequence[int] = (), *, ends_turn: bool = False) -> Step:
        self.steps.append(step)
        return step

    async def before_record(self, step: Step) -> None:
        await trio.lowlevel.checkpoint()

    async def before_instructed(self, instructions: str) -> None:
        await trio.lowlevel.checkpoint()

    async def before_resume(self, unanswered: Sequence[ToolCall]) -> Sequence[ToolCall]:
        await trio.lowlevel.checkpoint()
        return ()

    def may_have_begun(self, call: ToolCall) -> bool:
        return False

    async def before_model_call(self) -> Sequence[UserMessage]:
        await trio.lowlevel.checkpoint()
        return ()

    async def before_tool(self, call: ToolCall, *, durable: bool) -> None:
        await trio.lowlevel.checkpoint()

    def emit(self, event: ModelEvent) -> None:
        pass


class ApprovalCheck(Protocol):
    async def wait_approved(self, call: ToolCall) -> None: ...

    def is_pending(self, call: ToolCall) -> bool: ...


class TestHost(MemoryHost):
    """Waits for `ready` where a journal would be waited for."""

    __test__ = False

    def __init__(
        self,
        *,
        record: Callable[[Step], Step] | None = None,
        ready: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
        approvals: ApprovalCheck | None = None,
    ) -> None:
        super().__init__()
        self._record = record
        self._ready = ready
        self._approvals = approvals

    def record(self, step: Step, consumes: Sequence[int] = (), *, ends_turn: bool = False) -> Step:
        if self._record is not None:
            return self._record(step)
        return super().record(step, consumes)

    async def before_resume(self, unanswered: Sequence[ToolCall]) -> Sequence[ToolCall]:
        check = self._approvals
        held = [call for call in unanswered if check is not None and check.is_pending(call)]
        await self._ready()
        return held

    async def before_model_call(self) -> Sequence[UserMessage]:
        await self._ready()
        return ()

    async def before_tool(self, call: ToolCall, *, durable: bool) -> None:
        await trio.lowlevel.checkpoint()
        if self._approvals is not None:
            await self._approvals.wait_approved(call)
        if durable:
            await self._ready()
