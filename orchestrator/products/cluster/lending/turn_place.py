"""The place of one turn that is lent: adopts it, begins it with its first call, and ends it."""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from orchestrator.agents import Agent, CallId, CallKey, Tool, ToolCall, unanswered_calls
from orchestrator.agents.redaction.redactor import has_redacted
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.delegation import TaskRecord
from orchestrator.ports.execution import fingerprint
from orchestrator.ports.journals import Bookkeeper
from orchestrator.products.cluster.lending.lender import Lender
from orchestrator.products.cluster.lending.lent_call import not_taken
from orchestrator.products.cluster.lending.lent_turn import LentTurn, TurnCall
from orchestrator.products.cluster.worker.wire import Stopped


class LentTurnPlace:
    """The place of one turn, as a `PlacedTurn`: the worker of its first call runs all of them."""

    has_effects = True
    resumes_calls = True

    def __init__(
        self,
        book: Bookkeeper,
        opened_lender: Callable[[], Awaitable[Lender]],
        task: TaskRecord,
        agent: Agent[Any],
    ) -> None:
        self._book = book
        self._opened_lender = opened_lender
        self._task = task
        self._agent = agent
        self._lent: LentTurn | None = None
        self._lack_secrets = {
            call.id for call in unanswered_calls(task.transcript) if has_redacted(call.arguments)
        }
        """The calls that a crash has interrupted, and whose secrets are not recorded."""
        self.note = ""

    @property
    def place(self) -> "LentTurnPlace":
        return self

    def takes(self, tool: Tool, task: TaskRecord) -> bool:
        return not tool.runs_at_caller

    def past_checks(self, task: TaskRecord) -> None:
        return None

    def open_turn(self, task: TaskRecord, agent: Agent[Any]) -> None:
        return None

    async def adopt(self) -> None:
        """Go on with the execution that an earlier writer has accepted, if there is one."""
        await trio.lowlevel.checkpoint()
        placed = self._task.placed_turn
        if placed is not None and placed.execution:
            self._begin(await self._opened_lender(), placed.call)

    async def run(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord
    ) -> str | ToolResult:
        turn_call = TurnCall(tool, call, key, lacks_secret=call.id in self._lack_secrets)
        # A call that a crash could still undo is given to no worker.
        await self._book.wait_durable()
        lender: Lender | None = None
        with trio.move_on_at(turn_call.deadline):
            lender = await self._opened_lender()
        if lender is None:
            raise not_taken(tool, self._agent.place)
        lent = self._lent or self._begin(lender, call.id)
        lent.add(turn_call)
        try:
            lender.give(lent)
            return await lent.wait_answer(turn_call)
        finally:
            lent.remove(turn_call)
            lender.ends.add_call(task.id, turn_call)

    def _begin(self, lender: Lender, call: CallId) -> LentTurn:
        placed = self._task.placed_turn
        lent = self._lent = LentTurn(
            self._task,
            call if placed is None else placed.call,
            place=self._agent.place,
            version=fingerprint(self._agent),
        )
        lender.begin(lent)
        return lent

    async def leave(self, *, is_left_to_next: bool) -> None:
        """Return when the turn has ended at its worker, or the next writer has it."""
        await trio.lowlevel.checkpoint()
        if self._lent is None:
            return
        lender = await self._opened_lender()
        await lender.leave(self._lent, is_left_to_next=is_left_to_next)
        if isinstance(self._lent.end, Stopped):
            self.note = self._lent.end.note
