"""The door of requests: it also runs turns whose client waits for the answer.

* the client waits for its response   NONE   nothing is delivered later, so every task is joined
* the client does not wait            POLL or PUSH, see `doors/kept.py`

No route chooses a capability: it calls a method of this door, or of the door in `kept.py`.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from orchestrator.agents import Agent, raising_one_error
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

LEFT: Final = "every client that waited for it has hung up"


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
        if session.id not in self._shared and is_over(session):
            await self.wait_over(session)
            return
        async with self._hold_turn(session) as shared:
            await shared.wait()

    async def share_turn_until_asked(
        self, session: SessionRecord, answer: Callable[[], Awaitable[None]]
    ) -> None:
        """Wait for the only turn of a session, or for its next question to a person.

        `answer` answers earlier questions. The turn goes on after a question, and is cancelled when
        all questions are closed and no one has come back to wait for it.
        """
        if session.id not in self._shared and is_over(session):
            await self.wait_over(session)
            return
        read = self._sessions.read
        async with self._hold_turn(session) as shared:
            with raising_one_error():
                # Owns a wait for the end of the turn.
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(shared.cancel_at_end, nursery.cancel_scope)
                    await answer()
                    while not read.open_questions(session.id):
                        await read.wait_session_changed(session.id)
                    nursery.cancel_scope.cancel(reason="a person is asked")
            if shared.has_ended.is_set():
                await shared.wait()

    @asynccontextmanager
    async def _hold_turn(self, session: SessionRecord) -> AsyncGenerator["_SharedTurn"]:
        """Keep the only turn of a session going; the first one begins it, the last one ends it."""
        # No checkpoint before the turn has an owner: one that is never taken would never end.
        shared = self._shared.get(session.id)
        if shared is None:
            shared = self._shared[session.id] = _SharedTurn()
            self._nursery.start_soon(self._run_shared_turn, session, shared)
        shared.waiting += 1
        is_asked = False
        try:
            yield shared
            is_asked = bool(self._sessions.read.open_questions(session.id))
        finally:
            shared.waiting -= 1
            if not shared.waiting and not shared.has_ended.is_set():
                if is_asked:
                    self._nursery.start_soon(self._cancel_unless_asked, session, shared)
                else:
                    # When the request has ended, no task of its tree runs any more.
                    shared.scope.cancel(reason=LEFT)
                    with trio.CancelScope(shield=True):
                        await shared.has_ended.wait()

    async def _cancel_unless_asked(self, session: SessionRecord, shared: "_SharedTurn") -> None:
        """Cancel a turn that no one waits for as soon as it has no open question."""
        read = self._sessions.read
        await trio.lowlevel.checkpoint()
        while not shared.waiting and not shared.has_ended.is_set():
            if not read.open_questions(session.id):
                shared.scope.cancel(reason=LEFT)
                return
            await read.wait_session_changed(session.id)

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
    """The only turn of a session, and the number of callers that wait for it."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.has_ended = trio.Event()
        self.error: Exception | None = None
        self.waiting = 0

    async def wait(self) -> None:
        """Wait for its end."""
        await self.has_ended.wait()
        if self.error is not None:
            raise self.error

    async def cancel_at_end(self, scope: trio.CancelScope) -> None:
        """Cancel a scope when it has ended."""
        await self.has_ended.wait()
        scope.cancel(reason="the turn has ended")
