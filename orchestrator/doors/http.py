"""The HTTP door: the only place that decides what can be delivered after a request.

* the client waits for its response   NONE   nothing is delivered later, so every task is joined
* the client polls for it             POLL   tasks detach, and the session ends with its tree
* a webhook is registered             PUSH   the same, and the webhook is called

No route chooses a capability: it calls one of the methods below. The capability ends with the
request, or with the session that the request opened.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs
import trio

from agents import Agent, MessageId
from delegation import (
    DelegationError,
    DeliveryCapability,
    Outcome,
    Receipt,
    Reply,
    SessionId,
    SessionRecord,
    TaskId,
)
from delegation.events import SteeringOrigin
from orchestrator.budget_scope import current_grants
from orchestrator.doors.door import Door
from orchestrator.doors.inbound import (
    InboundRequest,
    agent_with_client_tools,
    open_inbound_session,
    post_message,
)
from orchestrator.doors.lifecycle import (
    close_session,
    connect_door,
    disconnect_door,
    open_new_session,
)
from orchestrator.doors.one_shot import open_one_turn, take_only_turn
from orchestrator.errors import ClosedError, OrchestratorError, UnknownIdError
from orchestrator.services import Services

Push: TypeAlias = Callable[[SessionRecord, Reply], Awaitable[None]]
"""Sends a reply to the webhook, or raises."""
NO_PUSHES: Final[Mapping[str, Push]] = {}

PUSHED: Final = "webhook"
"""The label of a session whose replies go to the webhook that there was when it began."""
KIND: Final = "http"
"""The label of every session of this door: `run`, `response`, `chat` or `session`."""
STEERED_BY: Final = "outside"
CONVERSATION: Final = "session"
"""The kind that stays open until the client closes it; any other ends with its request."""


class HttpDoor:
    """Opens sessions for requests, and supervises those that outlive their request."""

    def __init__(
        self,
        services: Services,
        agents: Mapping[str, Agent[Any]],
        nursery: trio.Nursery,
        pushes: Mapping[str, Push] = NO_PUSHES,
    ) -> None:
        """Serve agents.

        Args:
            services: the parts of the orchestrator.
            agents: the agents, by their names.
            nursery: owns the sessions that outlive their request.
            pushes: send the replies of sessions to a webhook, by the owner of the session.
        """
        self._services = services
        self._agents = agents
        self._nursery = nursery
        self._pushes = pushes
        self._supervised: set[SessionId] = set()
        """The sessions that this door is connected to."""
        self._shared: dict[SessionId, _SharedTurn] = {}
        """The turns under way that several clients may wait for."""

    def open_one_turn(
        self, request: InboundRequest, id_: SessionId | None = None
    ) -> SessionRecord:
        """Open a session that ends with its request, and begin its turn.

        `run_turn` takes the turn within the request, `start_turn` beside it.
        """
        return open_one_turn(self._services, request, id_)

    async def run_turn(self, session: SessionRecord) -> Outcome:
        """Take the only turn of a session. Cancelling this cancels its tree."""
        return (await take_only_turn(self._services, session)).outcome

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

    def open_background(
        self, request: InboundRequest, id_: SessionId | None = None
    ) -> SessionRecord:
        """Open a session that outlives its request, and ends with its tree."""
        if request.owner in self._pushes:
            labels = {**request.labels, PUSHED: "true"}
            request = attrs.evolve(request, labels=labels)
        session = open_inbound_session(self._services, request, id_)
        self._supervise(session, agent_with_client_tools(request))
        return session

    def open_conversation(
        self,
        agent: Agent[Any],
        labels: Mapping[str, str],
        id_: SessionId | None = None,
        *,
        owner: str = "",
    ) -> SessionRecord:
        """Open a session that stays open until the client closes it: `receive` its messages."""
        pushed = {PUSHED: "true"} if owner in self._pushes else {}
        session = open_new_session(
            self._services,
            agent,
            id_,
            labels={**labels, **pushed, KIND: CONVERSATION},
            owner=owner,
        )
        # Until its first message it has nothing to do; `receive` registers the agent again.
        self._services.registry.unregister_session(session.id)
        return session

    def receive(self, session: SessionRecord, request: InboundRequest) -> int:
        """Post a message to a session, and return the sequence number of the fact."""
        self._services.book.admission.require_running()
        if session.closed:
            raise ClosedError(f"session {session.id!r} was closed for good")
        is_supervised = session.id in self._supervised
        if not is_supervised:
            # Before the first fact: an agent whose model is not available leaves no trace.
            self._services.registry.require_models(request.agent)
        grants = current_grants(self._services.book.journal_identity)
        seq = post_message(self._services, request, session.id, grants)
        if not is_supervised:
            self._supervise(session, request.agent)
        return seq

    async def resume_sessions(self) -> list[SessionRecord]:
        """Go on with the sessions that an earlier process has left unfinished.

        Returns those that wait for an agent that is not here. A task whose folder is on another
        machine ends with that reason, which its parent and its client read: none waits for ever.
        """
        await trio.lowlevel.checkpoint()
        without_agent: list[SessionRecord] = []
        book = self._services.book
        unfinished = [id_ for id_ in book.ledger.sessions if id_ in book.cache.active]
        untaken = [*book.cache.untaken] if self._pushes else []
        for id_ in (*unfinished, *untaken):
            await book.cache.load(id_)
            session = book.ledger.sessions[id_]
            is_over = session.has_nothing_pending and not (
                session.undelivered or session.may_be_told_later
            )
            if not session.labels.get(KIND) or session.closed or is_over:
                continue
            if session.awaits_resume:
                continue  # its client is gone
            if id_ in book.cache.untaken and self._push_of(session) is None:
                continue  # its client polls for what it has not taken
            agent = self._agents.get(session.root.agent)
            if agent is None:
                without_agent.append(session)
            else:
                self._supervise(session, agent)
        return without_agent

    async def find(self, session: str) -> SessionRecord:
        """Return a session, idle ones included, unless its owner has deleted it."""
        id_ = SessionId(session)
        await self._services.book.cache.load(id_)
        record = self._services.book.ledger.sessions.get(id_)
        if record is None or record.deleted:
            raise UnknownIdError(f"there is no run or session {session!r}")
        return record

    async def wait_over(self, session: SessionRecord) -> None:
        """Wait until a session has nothing left to do, and its facts are durable."""
        await trio.lowlevel.checkpoint()
        book = self._services.book
        while not is_over(session):
            if book.closed:
                raise ClosedError("the server has stopped")
            await book.wakeups.wait_session_changed(session.id)
        await book.wait_durable()

    def take_reply(self, reply: Reply) -> int:
        """Post that the client has a reply, and return the sequence number of the fact."""
        self._services.deliveries.mark_delivered(reply)
        return self._services.book.ledger.last_seq

    async def steer(
        self, task: TaskId, text: str, *, id_: MessageId, seconds: float
    ) -> Receipt:
        """Send a message to a running task, and wait up to `seconds` until it has read it."""
        receipts = await self._services.delegator.steer(
            {task: id_},
            text,
            by=STEERED_BY,
            origin=SteeringOrigin.OUTSIDE,
            seconds=seconds,
        )
        return receipts[task]

    async def cancel_waiting_runs(self) -> None:
        """Cancel the runs whose clients wait for the answer, so that they get an outcome."""
        await trio.lowlevel.checkpoint()
        waiting = [
            session.root.id
            for session in self._services.book.ledger.sessions.values()
            if session.labels.get(KIND)
            and session.root.is_running
            and session.turn is not None
            and session.turn.capability is DeliveryCapability.NONE
        ]
        if waiting:
            await self._services.delegator.cancel(waiting)

    async def close(self, session: SessionRecord, *, deleted: bool = False) -> None:
        """End a session for good, and return when all its tasks are settled."""
        await close_session(self._services, session, deleted=deleted)

    def _supervise(self, session: SessionRecord, agent: Agent[Any]) -> None:
        """Connect a door to a session for as long as there is something to do in it."""
        push = self._push_of(session)
        door = (
            _PollDoor(self._services, session)
            if push is None
            else _PushDoor(self._services, session, push)
        )
        connect_door(self._services, session, agent, door)
        self._supervised.add(session.id)
        self._nursery.start_soon(self._supervise_until_over, session, door)

    def _push_of(self, session: SessionRecord) -> Push | None:
        """Return how the replies of a session are pushed; None if its client polls for them."""
        is_pushed = PUSHED in session.labels
        return self._pushes.get(session.owner) if is_pushed else None

    async def _supervise_until_over(self, session: SessionRecord, door: Door) -> None:
        book, deliveries = self._services.book, self._services.deliveries
        try:
            await deliveries.deliver(session)
            while not (
                is_over(session)
                and deliveries.has_delivered_all(session)
                # A notice that comes later, or never, would find no door.
                and (session.closed or not session.may_be_told_later)
            ):
                await book.wakeups.wait_session_changed(session.id)
        finally:
            self._supervised.remove(session.id)
            disconnect_door(self._services, session, door)


def is_over(session: SessionRecord) -> bool:
    """Return whether a session has nothing left to do, or waits until it is resumed."""
    if session.closed or session.awaits_resume:
        return True
    return session.has_nothing_pending and session.turns > 0


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
                # When the request has ended, nothing of its tree runs any more.
                with trio.CancelScope(shield=True):
                    await self.has_ended.wait()
        if self.error is not None:
            raise self.error


class _PollDoor:
    """The door of a session whose client polls for its replies."""

    capability = DeliveryCapability.POLL

    def __init__(self, services: Services, session: SessionRecord) -> None:
        self._deliveries = services.deliveries
        self._session = session

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        # A reply of a conversation stays in the inbox until the client takes it.
        if self._session.labels.get(KIND) != CONVERSATION:
            self._deliveries.mark_delivered(reply)

    def disconnect(self) -> None:
        """Do nothing: no caller waits here."""


class _PushDoor:
    """The door of a session whose replies go to a webhook."""

    capability = DeliveryCapability.PUSH

    def __init__(self, services: Services, session: SessionRecord, push: Push) -> None:
        self._deliveries = services.deliveries
        self._session = session
        self._push = push

    async def deliver(self, reply: Reply) -> None:
        await self._push(self._session, reply)
        self._deliveries.mark_delivered(reply)

    def disconnect(self) -> None:
        """Do nothing: no caller waits here."""
