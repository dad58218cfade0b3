"""A host whose durability and approvals a test decides."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from orchestrator.agents import ToolCall, UserMessage
from orchestrator.agents.turn_host import MemoryHost, Step


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

    def record(self, step: Step, consumes: Sequence[int] = ()) -> Step:
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
