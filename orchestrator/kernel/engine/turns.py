"""The turns of sessions: started or resumed, and taken one at a time for each session."""

from collections.abc import Coroutine
from typing import Any

from msgspec import UNSET, UnsetType

from orchestrator.agents import UserMessage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    Origin,
    SessionRecord,
    readable_characters,
)
from orchestrator.delegation.events import TurnResumed, TurnStarted
from orchestrator.kernel.engine.delegator import OrchestratorDelegator
from orchestrator.kernel.engine.deliveries import Deliveries
from orchestrator.kernel.engine.task_runner import TaskRunner
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.outcomes import PROCESS_DIED, TaskEnd
from orchestrator.kernel.journal.bookkeeper import Bookkeeper


class Turns:
    """Begins and takes the turns of all sessions."""

    def __init__(
        self,
        book: Bookkeeper,
        registry: AgentRegistry,
        runner: TaskRunner,
        delegator: OrchestratorDelegator,
        deliveries: Deliveries,
    ) -> None:
        self._book = book
        self._registry = registry
        self._runner = runner
        self._delegator = delegator
        self._deliveries = deliveries

    def begin(
        self,
        session: SessionRecord,
        capability: DeliveryCapability,
        *,
        paused: float = 0.0,
        accepts_changes: bool = False,
    ) -> bool:
        """Post that a session resumes its interrupted turn, or starts a new one.

        The fact that starts a turn also reads its mail. Returns whether there is a turn to take: an
        interrupted one may be lost, by `Agent.on_restart`. Budgets do not count the `paused`
        seconds. With `accepts_changes`, programs may request other tasks than before the crash.
        """
        if session.turn is not None:
            accepts_changes = accepts_changes or self._delegator.accepts_all_changes
            return self._resume(session, session.turn.number, capability, paused, accepts_changes)
        agent = self._registry.agent_of(session.root)
        mail = session.next_mail if len(session.mail) > 1 else tuple(session.mail)
        trace: str | UnsetType = UNSET
        for seq in mail:
            context = session.envelopes[seq].context
            # A notice has the context of the task: its caller may have left long ago.
            if "traceparent" in context and isinstance(session.mail[seq], UserMessage):
                trace = context["traceparent"] or UNSET
        self._book.post(
            TurnStarted(
                session.id,
                session.turns + 1,
                capability,
                mail,
                readable_characters(agent, session.root.transcript),
                agent.version or UNSET,
                trace,
            )
        )
        return True

    def _resume(
        self,
        session: SessionRecord,
        turn: int,
        capability: DeliveryCapability,
        paused: float,
        accepts_changes: bool,
    ) -> bool:
        on_restart = self._registry.on_restart(session.root)
        settlement = self._runner.settlement
        if on_restart == "lose":
            settlement.settle(session.root, PROCESS_DIED)
            return False
        afresh = on_restart == "restart"
        if afresh:
            settlement.settle_descendants(session.root, Ending.LOST)
        self._book.post(TurnResumed(session.id, turn, capability, afresh, paused, accepts_changes))
        return True

    async def take(self, session: SessionRecord) -> TaskEnd:
        """Take the started turn, and return its durable end."""
        end = await self._turn_of(session)
        # An outcome that a crash could still undo is not returned.
        await self._book.wait_durable()
        return end

    async def take_and_deliver(self, session: SessionRecord) -> None:
        """Take the started turn, and deliver its reply."""
        await self._turn_of(session)
        await self._deliveries.deliver(session)

    def _turn_of(self, session: SessionRecord) -> Coroutine[Any, Any, TaskEnd]:
        turn = session.turn
        assert turn is not None, "a turn is posted before it is taken"
        origin = Origin(session=session.id, turn=turn.number, capability=turn.promises)
        return self._runner.run(session.root, origin, self._delegator)
