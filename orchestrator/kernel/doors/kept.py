"""The door of sessions that outlive the request that opened them.

* the client polls for the replies   POLL   tasks detach, and the session ends with its tree
* the replies are pushed             PUSH   the same, and a function takes each reply to its reader

The capability ends with the session. A request over HTTP or MCP, from a chat platform or by a
schedule, is an `InboundRequest` for one of the methods below: it chooses no capability.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, ParamSpec, Protocol, TypeAlias

import attrs
import trio
from msgspec.structs import replace

from orchestrator.agents import Agent, MessageId
from orchestrator.delegation import (
    DeliveryCapability,
    Receipt,
    Reply,
    SessionId,
    SessionRecord,
    TaskId,
)
from orchestrator.delegation.events import (
    EarlierMessage,
    KindChanged,
    MetadataChanged,
    SessionOpened,
    SteeringOrigin,
    change_state,
)
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import SessionState, StoredStates, store_states
from orchestrator.kernel.budget_scope import current_grants
from orchestrator.kernel.doors import inbound, lifecycle
from orchestrator.kernel.doors.door import Door
from orchestrator.kernel.doors.door_state import DoorState
from orchestrator.kernel.doors.one_shot import require_resumable
from orchestrator.kernel.errors import ClosedError, UnknownIdError
from orchestrator.kernel.journal.session_summary import is_over
from orchestrator.kernel.sessions import Sessions

Push: TypeAlias = Callable[[SessionRecord, Reply], Awaitable[None]]
"""Sends a reply to its reader, or raises."""
NO_PUSHES: Final[Mapping[str, Push]] = {}
NO_KINDS: Final[Mapping[SessionKind, Push]] = {}
P = ParamSpec("P")
Restore: TypeAlias = Callable[[SessionRecord, Agent[Any]], Agent[Any]]
"""Returns the agent of a session as it was when the session was opened, with the tools that its
client gave it."""


def as_defined(session: SessionRecord, agent: Agent[Any]) -> Agent[Any]:
    """Return that sessions have their agents as they are defined."""
    del session
    return agent


STEERED_BY: Final = "outside"


@attrs.frozen(kw_only=True)
class KeptOpen:
    """The values that differ in the copy of a session that outlives its request."""

    capability: DeliveryCapability
    """The capability of the turn that continues."""
    owner: str
    kind: SessionKind
    metadata: Mapping[str, str]
    states: StoredStates


class SessionCopy(Protocol):
    """The facts that a session begins with (`CopiedRun` implements it)."""

    def post(
        self, sessions: Sessions, agent: Agent[Any], id_: SessionId, *, kept_open: KeptOpen
    ) -> SessionRecord:
        """Post all of them as a new session, without a checkpoint."""
        ...


class KeptDoor:
    """Opens sessions that outlive their request, and supervises them until they are over."""

    def __init__(
        self,
        sessions: Sessions,
        agents: Mapping[str, Agent[Any]],
        nursery: trio.Nursery,
        pushes: Mapping[str, Push] = NO_PUSHES,
        restore: Restore = as_defined,
        *,
        kinds: Mapping[SessionKind, Push] = NO_KINDS,
    ) -> None:
        """Serve agents by their names; the nursery owns the sessions that outlive their request.

        `pushes` send replies by the owner of a session, `kinds` by its kind. `restore` adds the
        tools of its client to the agent of an unfinished session.
        """
        self._sessions = sessions
        self._agents = agents
        self._nursery = nursery
        self._pushes = pushes
        self._restore = restore
        self._kinds = kinds
        self._supervised: set[SessionId] = set()
        """The sessions that this door is connected to."""

    def open_background(
        self, request: inbound.InboundRequest, id_: SessionId | None = None
    ) -> SessionRecord:
        """Open a session that outlives its request, and ends with its tree.

        A session with tools of its client ends as soon as it calls one, so its tasks are joined.
        """
        if request.tools:
            request = replace(request, async_delivery=False)
        pushed = self._is_pushed(request.owner, request.kind)
        session = inbound.open_inbound_session(self._sessions, request, id_, pushed=pushed)
        self._supervise(session, inbound.with_client_tools(request.agent, request.tools))
        return session

    def _is_pushed(self, owner: str, kind: SessionKind) -> bool:
        """Return whether the replies of a new session go to the webhook of its owner."""
        return owner in self._pushes and kind not in self._kinds

    def open_conversation(
        self,
        agent: Agent[Any],
        id_: SessionId | None = None,
        *,
        kind: SessionKind = SessionKind.CONVERSATION,
        owner: str = "",
        metadata: Mapping[str, str] = lifecycle.NO_STRINGS,
        states: tuple[SessionState, ...] = (),
        history: tuple[EarlierMessage, ...] = (),
        language_model: str = "",
    ) -> SessionRecord:
        """Open a session that stays open until the client closes it: `receive` its messages."""
        session = lifecycle.open_new_session(
            self._sessions,
            agent,
            id_,
            kind=kind,
            metadata=metadata,
            states=(
                *states,
                *inbound.door_states(language_model, pushed=self._is_pushed(owner, kind)),
            ),
            owner=owner,
            history=history,
        )
        # Until its first message it has nothing to do; `receive` registers the agent again.
        self._sessions.registry.unregister_session(session.id)
        return session

    def new_session_id(self) -> SessionId:
        """Return an id for a session that is opened next."""
        return self._sessions.new_session_id()

    def open_record(
        self,
        id_: SessionId | None = None,
        *,
        owner: str = "",
        metadata: Mapping[str, str] = lifecycle.NO_STRINGS,
        states: tuple[SessionState, ...] = (),
    ) -> SessionRecord:
        """Open a session without an agent: it keeps metadata and states."""
        sessions = self._sessions
        sessions.facts.require_running()
        id_ = self.new_session_id() if id_ is None else id_
        kind = SessionKind.RECORD
        sessions.facts.post(
            SessionOpened(
                id_,
                kind.value,
                kind=kind,
                owner=owner,
                metadata=metadata,
                states=store_states(states),
            )
        )
        return sessions.read.records.sessions[id_]

    def change_metadata(self, session: SessionRecord, metadata: Mapping[str, str]) -> None:
        """Replace the notes that the client of a session keeps with it."""
        self._sessions.facts.require_running()
        self._sessions.facts.post(MetadataChanged(session.id, metadata))

    def change_state(
        self,
        session: SessionRecord,
        kind: Callable[P, SessionState],
        /,
        *args: P.args,
        **changes: P.kwargs,
    ) -> None:
        """Change fields of a state that a product keeps in a session."""
        self._sessions.facts.require_running()
        self._sessions.facts.post(change_state(session.id, kind, *args, **changes))

    def receive(self, session: SessionRecord, request: inbound.InboundRequest) -> int:
        """Post a message to a session, and return the sequence number of the fact."""
        self._sessions.facts.require_running()
        if session.closed:
            raise ClosedError(f"session {session.id!r} was closed for good")
        is_supervised = session.id in self._supervised
        if not is_supervised:
            # Before the first fact: an agent whose model is not available leaves no trace.
            self._sessions.registry.require_models(request.agent)
        grants = current_grants(self._sessions.facts)
        seq = inbound.post_message(self._sessions, request, session.id, grants)
        if not is_supervised:
            self._supervise(session, request.agent)
        return seq

    async def seconds_interrupted(self, session: SessionRecord) -> float:
        """Return for how many seconds nothing has happened in a session."""
        last = await self._sessions.read.last_time(session.id)
        return 0.0 if last is None else max(0.0, self._sessions.read.now() - last)

    def resume(
        self,
        session: SessionRecord,
        agent: Agent[Any],
        *,
        kind: SessionKind,
        paused: float,
        accepts_changes: bool = False,
    ) -> None:
        """Continue a run whose process died, like a run that outlives its request.

        The next process continues it by itself, and people can be asked for approvals. `kind` is
        its kind from now on, if no request had opened it. Budgets do not count the `paused`
        seconds. With `accepts_changes`, its program may have changed. Raise `NotInterruptedError`
        if it has ended, still runs, or is a conversation, `ChangedProgramError` if its agent has
        another version, and `SessionOpenError` if its workspace is on another machine.
        """
        sessions = self._sessions
        sessions.facts.require_running()
        accepts_changes = accepts_changes or sessions.delegator.accepts_all_changes
        require_resumable(session, agent, accepts_changes=accepts_changes)
        lifecycle.require_files_here(sessions, session)
        sessions.registry.require_models(agent)
        if session.kind is SessionKind.PROGRAM:
            sessions.facts.post(KindChanged(session.id, kind))
        door = self._supervise(session, agent)
        if sessions.turns.begin(
            session, door.capability, paused=paused, accepts_changes=accepts_changes
        ):
            self._nursery.start_soon(sessions.turns.take_and_deliver, session)
        else:
            # Its agent does not go on after a crash.
            self._nursery.start_soon(sessions.deliveries.deliver, session)

    def open_copy(
        self,
        copied: "SessionCopy",
        agent: Agent[Any],
        id_: SessionId | None,
        *,
        owner: str,
        kind: SessionKind,
        metadata: Mapping[str, str],
        states: tuple[SessionState, ...],
        language_model: str,
    ) -> SessionRecord:
        """Open a session with facts of another one, which outlives its request, and continue it."""
        sessions = self._sessions
        sessions.facts.require_running()
        pushed = self._is_pushed(owner, kind)
        kept_open = KeptOpen(
            capability=DeliveryCapability.POLL,
            owner=owner,
            kind=kind,
            metadata=metadata,
            states=store_states((*states, *inbound.door_states(language_model, pushed=pushed))),
        )
        id_ = self.new_session_id() if id_ is None else id_
        session = copied.post(sessions, agent, id_, kept_open=kept_open)
        running = [task.id for task in session.unsettled_detached.values() if task.is_running]
        is_in_turn = session.turn is not None
        self._supervise(session, agent)
        for task in running:
            self._nursery.start_soon(sessions.delegator.run_child, task)
        if is_in_turn:
            self._nursery.start_soon(sessions.turns.take_and_deliver, session)
        return session

    async def resume_sessions(self, *, kind: SessionKind | None = None) -> list[SessionRecord]:
        """Continue the sessions that an earlier process has left unfinished.

        With a `kind`, only the sessions of that kind.

        Returns the sessions that wait for an agent that is not here. A task whose folder is on
        another machine ends with that reason, which its parent and its client read, instead of
        waiting for ever.
        """
        await trio.lowlevel.checkpoint()
        without_agent: list[SessionRecord] = []
        unfinished = [
            id_
            for id_ in self._sessions.read.records.sessions
            if id_ in self._sessions.read.active_sessions
        ]
        untaken = [*self._sessions.read.untaken_sessions] if self._pushes or self._kinds else []
        for id_ in (*unfinished, *untaken):
            await self._sessions.facts.load(id_)
            session = self._sessions.read.records.sessions[id_]
            is_over = session.has_nothing_pending and not (
                session.undelivered or session.may_be_told_later
            )
            if session.kind is SessionKind.PROGRAM or kind not in {None, session.kind}:
                continue
            if session.closed or is_over:
                continue
            if id_ in self._supervised:
                continue  # it was opened meanwhile
            if session.kind is SessionKind.CHAT and session.kind not in self._kinds:
                continue  # a poll would take its replies from their reader
            if session.awaits_resume:
                continue  # its client is gone
            if id_ in self._sessions.read.untaken_sessions and self._push_of(session) is None:
                continue  # its client polls for what it has not taken
            agent = self.agent_for(session)
            if agent is None:
                without_agent.append(session)
            else:
                self._supervise(session, agent)
        return without_agent

    def agent_for(self, session: SessionRecord) -> Agent[Any] | None:
        """Return the agent of a session, with its client's additions; None if it is not here."""
        agent = self._agents.get(session.root.agent)
        if agent is None:
            return None
        model = session.state(DoorState).language_model
        return self._restore(session, inbound.with_language_model(agent, model))

    def stays_open(self, session: SessionRecord) -> bool:
        """Return whether a session stays open after its request: a message may come at any time."""
        kind = session.kind
        stays = kind in {SessionKind.PROGRAM, SessionKind.CONVERSATION}
        return stays or kind in self._kinds

    async def find(self, session: str) -> SessionRecord:
        """Return a session, idle ones included, unless its owner has deleted it."""
        id_ = SessionId(session)
        await self._sessions.facts.load(id_)
        record = self._sessions.read.records.sessions.get(id_)
        if record is None or record.deleted:
            raise UnknownIdError(f"there is no run or session {session!r}")
        return record

    async def wait_over(self, session: SessionRecord) -> None:
        """Wait until a session has nothing left to do, and its facts are durable."""
        await trio.lowlevel.checkpoint()
        while not is_over(session):
            if self._sessions.read.is_closed:
                raise ClosedError("the server has stopped")
            await self._sessions.read.wait_session_changed(session.id)
        await self._sessions.facts.wait_durable()

    def take_reply(self, reply: Reply) -> int:
        """Post that the client has a reply, and return the sequence number of the fact."""
        self._sessions.deliveries.mark_delivered(reply)
        return self._sessions.read.records.last_seq

    async def steer(self, task: TaskId, text: str, *, id_: MessageId, seconds: float) -> Receipt:
        """Send a message to a running task, and wait up to `seconds` until it has read it."""
        receipts = await self._sessions.delegator.steer(
            {task: id_}, text, by=STEERED_BY, origin=SteeringOrigin.OUTSIDE, seconds=seconds
        )
        return receipts[task]

    async def close(self, session: SessionRecord, *, deleted: bool = False) -> None:
        """End a session for good, and return when all its tasks are settled."""
        await lifecycle.close_session(self._sessions, session, deleted=deleted)

    def _supervise(self, session: SessionRecord, agent: Agent[Any]) -> Door:
        """Connect a door to a session for as long as there is something to do in it."""
        push = self._push_of(session)
        door = (
            _PollDoor(self._sessions, session)
            if push is None
            else _PushDoor(self._sessions, session, push)
        )
        lifecycle.connect_door(self._sessions, session, agent, door)
        self._supervised.add(session.id)
        self._nursery.start_soon(self._supervise_until_over, session, door)
        return door

    def _push_of(self, session: SessionRecord) -> Push | None:
        """Return the function that pushes the replies of a session; None if its client polls."""
        of_kind = self._kinds.get(session.kind)
        if of_kind is not None or not session.state(DoorState).pushed:
            return of_kind
        return self._pushes.get(session.owner)

    async def _supervise_until_over(self, session: SessionRecord, door: Door) -> None:
        deliveries = self._sessions.deliveries
        try:
            await deliveries.deliver(session)
            while not (
                is_over(session)
                and deliveries.has_delivered_all(session)
                # A notice that comes later, or never, would find no door.
                and (session.closed or not session.may_be_told_later)
            ):
                await self._sessions.read.wait_session_changed(session.id)
        finally:
            self._supervised.remove(session.id)
            lifecycle.disconnect_door(self._sessions, session, door)


class _PollDoor:
    """The door of a session whose client polls for its replies."""

    capability = DeliveryCapability.POLL

    def __init__(self, sessions: Sessions, session: SessionRecord) -> None:
        self._deliveries = sessions.deliveries
        self._session = session

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        # A reply of a conversation stays in the inbox until the client takes it.
        if self._session.kind is not SessionKind.CONVERSATION:
            self._deliveries.mark_delivered(reply)

    def disconnect(self) -> None:
        """Do nothing: no caller waits here."""


class _PushDoor:
    """The door of a session whose replies go to a webhook."""

    capability = DeliveryCapability.PUSH

    def __init__(self, sessions: Sessions, session: SessionRecord, push: Push) -> None:
        self._deliveries = sessions.deliveries
        self._session = session
        self._push = push

    async def deliver(self, reply: Reply) -> None:
        await self._push(self._session, reply)
        self._deliveries.mark_delivered(reply)

    def disconnect(self) -> None:
        """Do nothing: no caller waits here."""
