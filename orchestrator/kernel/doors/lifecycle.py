"""The life of a session: opened, connected to a door, and closed in one way for every kind of door.

    session = open_new_session(sessions, agent)              # or, to continue an old one:
    session = await reopen_session(sessions, agent, id_)
    connect_door(sessions, session, agent, door)             # replies go to `door.deliver`
    await sessions.deliveries.deliver(session)               # those that no earlier door took
    post_message(sessions, request, session.id)              # in `doors/inbound.py`; any number
    disconnect_door(sessions, session, door)                 # its turn and its tasks run on
    await close_session(sessions, session)                   # it ends for good

The agent of a session is registered before its first fact, and stays registered as long as the
session has a door, a turn or an unfinished task (`release_agents`). No door unregisters it.
"""

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from orchestrator.agents import Agent
from orchestrator.delegation import DeliveryCapability, Encoded, SessionId, SessionRecord, events
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import SessionState, store_states
from orchestrator.kernel.budget_scope import current_grants
from orchestrator.kernel.doors.door import Door
from orchestrator.kernel.errors import ClosedError, SessionOpenError, UnknownIdError
from orchestrator.kernel.execution.workspace.settings import elsewhere
from orchestrator.kernel.sessions import Sessions

NO_STRINGS: Final[Mapping[str, str]] = {}
_LAST_FACTS: Final = (events.DoorClosed, events.TaskSettled, events.TurnEnded)
"""The facts after which a session may need its agent no more."""


def open_new_session(
    sessions: Sessions,
    agent: Agent[Any],
    id_: SessionId | None = None,
    *,
    kind: SessionKind = SessionKind.PROGRAM,
    history: tuple[events.EarlierMessage, ...] = (),
    metadata: Mapping[str, str] = NO_STRINGS,
    states: Collection[SessionState] = (),
    owner: str = "",
    attended: bool = False,
    deps: object = None,
    first: events.MessageReceived | None = None,
) -> SessionRecord:
    """Register an agent, and open a session with it. Connect a door or start a turn at once.

    `history` took place elsewhere. The owner "" is the operator. `attended`: a person answers
    approval questions, whatever the door can deliver. `first` is posted in the same step.
    Raise `ClosedError` if the orchestrator is stopping, and `SharedBudgetError` if a budget around
    this is kept in another journal.
    """
    sessions.facts.require_running()
    id_ = sessions.new_session_id() if id_ is None else id_
    # Before the first fact: an agent whose model is not available leaves no trace.
    sessions.registry.register_session(id_, agent, deps)
    try:
        opened = events.SessionOpened(
            id_,
            agent.name,
            agent.budget,
            current_grants(sessions.facts),
            attended=attended,
            history=history,
            owner=owner,
            kind=kind,
            metadata=metadata,
            states=store_states(states),
        )
        if first is None:
            sessions.facts.post(opened)
        else:
            sessions.facts.post(opened, first)
    except BaseException:
        sessions.registry.unregister_session(id_)
        raise
    return sessions.read.records.sessions[id_]


async def reopen_session(sessions: Sessions, agent: Agent[Any], id_: SessionId) -> SessionRecord:
    """Load a session that has no door, to connect another one.

    Raises:
        UnknownIdError: there is no such session, or it has another agent.
        SessionOpenError: it has a door, or its caller waits inside its only turn, or its workspace
            is on another machine.
        ClosedError: it was closed for good, or the orchestrator is stopping.
    """
    sessions.facts.require_running()
    await sessions.facts.load(id_)
    session = sessions.read.records.sessions.get(id_)
    if session is None:
        raise UnknownIdError(f"there is no session {id_!r}")
    if session.closed:
        raise ClosedError(f"session {id_!r} was closed for good")
    if session.door is not None:
        raise SessionOpenError(f"session {id_!r} is open already")
    turn = session.turn
    is_awaited = turn is not None and turn.capability is DeliveryCapability.NONE
    if is_awaited and not session.is_interrupted:
        raise SessionOpenError(f"run {id_!r} is under way, and its caller waits for it")
    if session.root.agent != agent.name:
        raise UnknownIdError(
            f"session {id_!r} talks to agent {session.root.agent!r}, not to {agent.name!r}"
        )
    require_files_here(sessions, session)
    return session


def require_files_here(sessions: Sessions, session: SessionRecord) -> None:
    """Raise `SessionOpenError` if the workspace of a session is on another machine."""
    if why := elsewhere(session, sessions.machine.settings.host):
        raise SessionOpenError(f"session {session.id!r} cannot go on here: {why}")


def connect_door(
    sessions: Sessions,
    session: SessionRecord,
    agent: Agent[Any],
    door: Door,
    *,
    deps: object = None,
) -> None:
    """Send the replies of a session to a door from now on, and wake it if it has mail.

    Await `sessions.deliveries.deliver(session)` next: no earlier door may have taken its replies.
    """
    sessions.registry.register_session(session.id, agent, deps)
    sessions.deliveries.attach(session.id, door)
    sessions.facts.post(events.DoorOpened(session.id, door.capability))


def disconnect_door(sessions: Sessions, session: SessionRecord, door: Door) -> None:
    """Take a session's door away. Its turn and its tasks run on; replies wait for the next door."""
    door.disconnect()
    sessions.deliveries.detach(session.id)
    if not sessions.read.is_closed:
        sessions.facts.post(events.DoorClosed(session.id))


async def close_session(
    sessions: Sessions, session: SessionRecord, *, deleted: bool = False
) -> None:
    """End a session for good, durably: cancel its running tasks, and drop its unread mail."""
    if not session.closed or (deleted and not session.deleted):
        sessions.facts.post(events.SessionClosed(session.id, tuple(session.mail), deleted=deleted))
    sessions.deliveries.disconnect(session.id)
    await sessions.delegator.cancel([session.root.id, *session.unsettled_detached])
    await sessions.machine.end_commands_of(session.root.id, "its session was closed")
    await sessions.facts.wait_durable()


@contextmanager
def release_agents(sessions: Sessions) -> Generator[None]:
    """Unregister the agent of each session when its last task has ended.

    It follows the facts: a task may outlive its door by hours, and the door does not wait for it.
    """
    records = sessions.read.records.sessions

    def release(entry: events.Entry, _encoded: Encoded) -> None:
        session = records.get(entry.session)
        # An interrupted turn is resumed by the next door, which registers the agent again.
        if session is None or session.root.is_running:
            return
        if session.door is None and not session.unsettled_detached:
            sessions.registry.unregister_session(session.id)

    with sessions.read.subscribe(release, kinds=_LAST_FACTS):
        yield
