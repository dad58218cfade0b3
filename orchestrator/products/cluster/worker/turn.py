"""A turn at a worker: its calls run here, one context for all, until the writer ends the turn.

It asks which calls are due, and begins no call twice: a writer may give one again that it does not
know of. The loop of the agent, its model and its budgets stay with the writer.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import trio

from orchestrator.agents import Agent, DefinitionError, ToolError, raising_one_error
from orchestrator.ports.execution import EXPECTED_ERRORS, describe_error, without_cancellations
from orchestrator.products.cluster.worker import wire
from orchestrator.products.cluster.worker.calls import WorkerCalls
from orchestrator.products.cluster.worker.context import TurnContext

SILENT_SECONDS: Final = 3600.0
"""How long a worker keeps a turn without a word of its writer, due every ten minutes."""


class WorkerTurn:
    """One turn, from its begin to its end."""

    def __init__(
        self,
        calls: WorkerCalls,
        work: wire.TurnWork,
        id_: str,
        lineage: Sequence[Agent[Any]],
        *,
        ask: Callable[[int, wire.Question], Awaitable[wire.Reply | None]],
        stood_still: Callable[[], bool],
    ) -> None:
        """Begin with no call; `stood_still` if the writer may have given this worker up."""
        self._calls = calls
        self._work = work
        self._id = id_
        self._lineage = lineage
        self._ask = ask
        self._stood_still = stood_still
        self._last_number = wire.END
        self._begun: set[str] = set()
        self._unacknowledged: set[str] = set()
        """The calls that it has begun, and whose answers no writer has recorded."""

    async def take(self, stop: trio.CancelScope) -> wire.End:
        """Run calls until the writer ends the turn, by a cancel of `stop`."""
        context: TurnContext | None = None
        try:
            async with self._calls.contexts.open_turn(self._work, self._lineage) as context:
                # Its commands are not cancelled with it: they end when the context closes.
                with stop:
                    await self._run_calls(context)
        except (Exception, BaseExceptionGroup) as exc:  # noqa: BLE001 (a bulkhead)
            why = describe_error(without_cancellations(exc))
            if context is None:
                return await self._not_opened(exc, why)
            context.note = f"its worker could not end it well: {why}"
        return wire.Stopped(self._id, await self._calls.redacted(context.note))

    async def _not_opened(self, exc: BaseException, why: str) -> wire.End:
        why = await self._calls.redacted(why)
        if isinstance(exc, DefinitionError | ToolError):
            # This machine has not what the agent needs; another one may have it.
            return wire.Unfit(self._id, why)
        return wire.Crashed(self._id, why, expected=isinstance(exc, EXPECTED_ERRORS))

    async def _run_calls(self, context: TurnContext) -> None:
        with raising_one_error():
            # This nursery owns the calls of the turn.
            async with trio.open_nursery() as running:
                while (due := await self._next_calls()) is not None:
                    for call in due:
                        # A worker that stood still asks again whether it has the turn.
                        if call.call not in self._begun and not self._stood_still():
                            self._begun.add(call.call)
                            self._unacknowledged.add(call.call)
                            running.start_soon(self._run, context, call)
                running.cancel_scope.cancel(reason="the turn has ended")

    async def _next_calls(self) -> Sequence[wire.DueCall] | None:
        """Return the calls that are due; None if the turn is not this worker's any more."""
        reply = None
        with trio.move_on_after(SILENT_SECONDS):
            question = wire.Next(self._id, tuple(sorted(self._unacknowledged)))
            reply = await self._ask(self._number(), question)
        return reply.calls if isinstance(reply, wire.Calls) else None

    async def _run(self, context: TurnContext, due: wire.DueCall) -> None:
        agent = self._lineage[-1]
        end = await self._calls.run_in(context, due, self._id, agent)
        await self._ask(self._number(), wire.CallEnded(self._id, due.call, end))
        self._unacknowledged.discard(due.call)

    def _number(self) -> int:
        self._last_number += 1
        return self._last_number
