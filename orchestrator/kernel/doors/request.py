"""The door of requests: it also runs turns whose client waits for the answer.

* the client waits for its response   NONE   nothing is delivered later, so every task is joined
* the client does not wait            POLL or PUSH, see `doors/kept.py`

No route chooses a capability: it calls a method of this door, or of the door in `kept.py`.
"""

from collections.abc import Mapping
from typing import Any

import trio

from orchestrator.agents import Agent
from orchestrator.delegation import (
    DelegationError,
    DeliveryCapability,
    Outcome,
    SessionId,
    SessionRecord,
)
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.kernel.doors import kept
from orchestrator.kernel.doors.inbound import InboundRequest
from orchestrator.kernel.doors.one_shot import open_one_turn, take_only_turn
from orchestrator.kernel.errors import OrchestratorError
from orchestrator.kernel.journal.session_summary import is_over
from orchestrator.kernel.sessions import Sessions


class RequestDoor(kept.KeptDoor):
    """Opens the sessions of requests, whether they end with the request or outlive it."""

    def __init__(
        self,
        sessions: Sessions,
        agents: Mapping[str, Agent[Any]],
        nursery: trio.Nursery,
        pushes: Mapping[str, kept.Push] = kept.NO_PUSHES,
        restore: kept.Restore = kept.as_defined,
        *,
        kinds: Mapping[SessionKind, kept.Push] = kept.NO_KINDS,
    ) -> None:
        """Serve agents; the arguments are the same as for `KeptDoor`."""
        super().__init__(sessions, agents, nursery, pushes, restore, kinds=kinds)
        self._shared: dict[SessionId, _SharedTurn] = {}
        """The turns under way that several clients may wait for."""

    def require_model(self, agent: Agent[Any]) -> None:
        """Raise `DefinitionError` unless the model of an agent can be called here."""
        self._sessions.registry.models.model_of(agent)

    def note_pruned(self) -> None:
        """Tell subscribers to the list of runs that another of its journals has deleted some."""
        self._sessions.facts.note_pruned()

    def open_one_turn(self, request: InboundRequest, id_: SessionId | None = None) -> SessionRecord:
        """Open a session that ends with its request, and begin its turn.

        `run_turn` takes the turn within the request, `start_turn` beside it.
        """
        return open_one_turn(self._sessions, request, id_)

    async def run_turn(self, session: SessionRecord) -> Outcome:
        """Take the only turn of a session. Cancelling this cancels its tree."""
        return (await take_only_turn(self._sessions, session)).outcome

    async def share_turn(self, session: SessionRecord) -> None:
        """Wait for the only turn of a session, with all others who wait for it.

        The first one begins it. When the last one has left, its tree is cancelled.
        """
        # No checkpoint before the turn has an owner: one that is never taken would never end.
        shared = self._shared.get(session.id)
        if shared is None:
            if is_over(session):
                await self.wait_over(session)
                return
            shared = self._shared[session.id] = _SharedTurn()
            self._nursery.start_soon(self._run_shared_turn, session, shared)
        await shared.wait()

    async def _run_shared_turn(  # noqa: ASYNC910 (the turn that it takes checkpoints)
        self, session: SessionRecord, shared: "_SharedTurn"
    ) -> None:
        try:
            with shared.scope:
                await self.run_turn(session)
        except (OrchestratorError, DelegationError) as exc:
            shared.error = exc
        finally:
            del self._shared[session.id]
            shared.has_ended.set()

    async def wait_unless_shared(self, session: SessionRecord) -> None:
        """Wait until a turn has ended whose last waiter has left."""
        await trio.lowlevel.checkpoint()
        shared = self._shared.get(session.id)
        if shared is not None and shared.scope.cancel_called:
            await shared.has_ended.wait()

    def start_turn(self, session: SessionRecord) -> None:
        """Take the only turn of a session, also after its client has hung up."""
        self._nursery.start_soon(self.run_turn, session)

    async def cancel_waiting_runs(self) -> None:
        """Cancel the runs whose clients wait for the answer, so that they get an outcome."""
        await trio.lowlevel.checkpoint()
        waiting = [
            session.root.id
            for session in self._sessions.read.records.sessions.values()
            if session.kind is not SessionKind.PROGRAM
            and session.root.is_running
            and session.turn is not None
            and session.turn.capability is DeliveryCapability.NONE
        ]
        if waiting:
            await self._sessions.delegator.cancel(waiting)


class _SharedTurn:
    """The only turn of a session, and who waits for it."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.has_ended = trio.Event()
        self.error: Exception | None = None
        self._waiting = 0

    async def wait(self) -> None:
        """Wait for its end. The last one who leaves before that cancels it."""
        self._waiting += 1
        try:
            await self.has_ended.wait()
        finally:
            self._waiting -= 1
            if not self._waiting and not self.has_ended.is_set():
                self.scope.cancel(reason="every client that waited for it has hung up")
                # When the request has ended, no task of its tree runs any more.
                with trio.CancelScope(shield=True):
                    await self.has_ended.wait()
        if self.error is not None:
            raise self.error
