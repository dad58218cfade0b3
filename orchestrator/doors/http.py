"""The HTTP door: the only place where a request is given what it can be told later.

* It waits for its response   NONE   nobody listens afterwards, so everything is joined
* It comes back for it        POLL   children detach, and the session ends with its tree
* There is a webhook          PUSH   the same, and whoever registered it is called

No route says which: it calls one of the methods below, and the capability ends with the request or
with the session that it opened.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import trio

from agents import Agent
from delegation import (
    DeliveryCapability,
    Outcome,
    Reply,
    SessionId,
    SessionRecord,
)
from delegation.events import DoorClosed, DoorOpened, SessionOpened
from orchestrator.budget_scope import current_grants
from orchestrator.doors.inbound import (
    InboundRequest,
    open_inbound_session,
    post_message,
)
from orchestrator.doors.lifecycle import close_for_good
from orchestrator.doors.one_shot import begin_only_turn, take_only_turn
from orchestrator.errors import ClosedError, UnknownIdError
from orchestrator.services import Services

Push: TypeAlias = Callable[[SessionRecord, Reply], Awaitable[None]]
"""Tells somebody of a reply, or raises."""

KIND: Final = "http"
"""The label of every session that came in here: `run`, `response`, `chat` or `session`."""
CONVERSATION: Final = "session"
"""The kind that goes on until somebody closes it; any other ends with what it was asked."""


class HttpDoor:
    """Lets requests in, and looks after the sessions that outlive theirs."""

    def __init__(
        self,
        services: Services,
        agents: Mapping[str, Agent[Any]],
        nursery: trio.Nursery,
        push: Push | None = None,
    ) -> None:
        self._services = services
        self._agents = agents
        self._nursery = nursery
        self._push = push
        self._supervised: set[SessionId] = set()
        """The sessions that somebody looks after now."""

    def open_one_turn(
        self, request: InboundRequest, id_: SessionId | None = None
    ) -> SessionRecord:
        """Open a session that ends with its request: `take` its turn, or leave that to `start`.

        Its turn has begun with it: no crash can leave a session that somebody else takes up.
        """
        session = open_inbound_session(
            self._services, request, id_ or self._services.new_session_id()
        )
        begin_only_turn(self._services, session)
        return session

    async def run_turn(self, session: SessionRecord) -> Outcome:
        """Take the only turn of a session. Whoever cancels this cancels its tree."""
        return await take_only_turn(self._services, session)

    def start_turn(self, session: SessionRecord) -> None:
        """Take the only turn of a session, also if whoever asked hangs up."""
        self._nursery.start_soon(self.run_turn, session)

    def open_background(
        self, request: InboundRequest, id_: SessionId | None = None
    ) -> SessionRecord:
        """Open a session that outlives its request, and ends with its tree."""
        session = open_inbound_session(
            self._services, request, id_ or self._services.new_session_id()
        )
        self._supervise(session)
        return session

    def open_conversation(
        self,
        agent: Agent[Any],
        labels: Mapping[str, str],
        id_: SessionId | None = None,
    ) -> SessionRecord:
        """Open a session that somebody will `tell` things."""
        book = self._services.book
        book.require_accepting()
        id_ = id_ or self._services.new_session_id()
        self._services.registry.register_session(id_, agent)
        try:
            book.post(
                SessionOpened(
                    id_,
                    agent.name,
                    agent.budget,
                    current_grants(),
                    labels={**labels, KIND: CONVERSATION},
                )
            )
        finally:
            self._services.registry.unregister_session(id_)
        return book.ledger.sessions[id_]

    def receive(self, session: SessionRecord, request: InboundRequest) -> int:
        """Let a session have a message, and return the number of the fact that says so."""
        self._services.book.require_accepting()
        if session.closed:
            raise ClosedError(f"session {session.id!r} was closed for good")
        if session.id not in self._supervised:
            self._services.registry.register_session(session.id, request.agent)
        seq = post_message(self._services, request, session.id)
        if session.id not in self._supervised:
            self._supervise(session)
        return seq

    def resume_sessions(self) -> list[SessionRecord]:
        """Go on with the sessions that an earlier process has left unfinished.

        Returns those that wait for an agent that is not here.
        """
        left: list[SessionRecord] = []
        for session in list(self._services.book.ledger.sessions.values()):
            is_left = not session.has_nothing_pending or (
                self._push and session.undelivered
            )
            agent = self._agents.get(session.root.agent)
            if not session.labels.get(KIND) or session.closed or not is_left:
                continue
            if agent is None:
                left.append(session)
                continue
            self._services.registry.register_session(session.id, agent)
            self._supervise(session)
        return left

    async def find(self, session: str) -> SessionRecord:
        """Return a session, which may be at rest, unless its owner has deleted it."""
        id_ = SessionId(session)
        await self._services.book.load_session(id_)
        record = self._services.book.ledger.sessions.get(id_)
        if record is None or record.deleted:
            raise UnknownIdError(f"there is no run or session {session!r}")
        return record

    async def wait_over(self, session: SessionRecord) -> None:
        """Wait until nothing of a session is left to be done, and all of that is durable."""
        await trio.lowlevel.checkpoint()
        book = self._services.book
        while not is_over(session):
            if book.closed:
                raise ClosedError("the server has stopped")
            await book.wait_session_changed(session.id)
        await book.wait_durable()

    async def close(self, session: SessionRecord, *, deleted: bool = False) -> None:
        """End a session for good, and return when all of it has ended."""
        await close_for_good(self._services, session, deleted=deleted)
        await self._services.book.wait_durable()

    def _supervise(self, session: SessionRecord) -> None:
        """Look after a session as long as there is something to do in it."""
        door = (
            _PollDoor(self._services, session)
            if self._push is None
            else _PushDoor(self._services, session, self._push)
        )
        self._supervised.add(session.id)
        self._services.turns.attach(session.id, door)
        self._services.book.post(DoorOpened(session.id, door.capability))
        self._nursery.start_soon(self._supervise_until_over, session)

    async def _supervise_until_over(self, session: SessionRecord) -> None:
        book, turns = self._services.book, self._services.turns
        try:
            await turns.deliver(session)
            while not (is_over(session) and turns.has_delivered_all(session)):
                await book.wait_session_changed(session.id)
        finally:
            self._supervised.remove(session.id)
            turns.detach(session.id)
            self._services.registry.unregister_session(session.id)
            if not book.closed:
                book.post(DoorClosed(session.id))


def is_over(session: SessionRecord) -> bool:
    """Tell whether nothing of a session is left to be done."""
    return session.closed or (session.has_nothing_pending and session.turns > 0)


class _PollDoor:
    """The door of a session that somebody comes back for."""

    capability = DeliveryCapability.POLL

    def __init__(self, services: Services, session: SessionRecord) -> None:
        self._turns = services.turns
        self._session = session

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        # That of a conversation waits in the inbox until somebody has taken it.
        if self._session.labels.get(KIND) != CONVERSATION:
            self._turns.mark_delivered(reply)

    def disconnect(self) -> None:
        """Do nothing: nobody waits here."""


class _PushDoor:
    """The door of a session whose replies somebody else is told."""

    capability = DeliveryCapability.PUSH

    def __init__(self, services: Services, session: SessionRecord, push: Push) -> None:
        self._turns = services.turns
        self._session = session
        self._push = push

    async def deliver(self, reply: Reply) -> None:
        await self._push(self._session, reply)
        self._turns.mark_delivered(reply)

    def disconnect(self) -> None:
        """Do nothing: nobody waits here."""
