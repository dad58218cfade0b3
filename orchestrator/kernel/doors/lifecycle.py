"""How a session is opened, connected to a door, and closed: one way, for every kind of door.

    session = open_new_session(services, agent)              # or, to go on with an old one:
    session = await reopen_session(services, agent, id_)
    connect_door(services, session, agent, door)             # replies go to `door.deliver`
    await services.deliveries.deliver(session)               # those that no earlier door took
    post_message(services, request, session.id)              # in `doors/inbound.py`; any number
    disconnect_door(services, session, door)                 # its turn and its tasks run on
    await close_session(services, session)                   # it ends for good

The agent of a session is registered before its first fact, and stays so for as long as the session
has a door, a turn or an unfinished task (`release_agents`). No door unregisters it.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from orchestrator.agents import Agent
from orchestrator.delegation import DeliveryCapability, Encoded, SessionId, SessionRecord
from orchestrator.delegation.events import (
    DoorClosed,
    DoorOpened,
    EarlierMessage,
    Entry,
    SessionClosed,
    SessionOpened,
    TaskSettled,
    TurnEnded,
)
from orchestrator.kernel.budget_scope import current_grants
from orchestrator.kernel.doors.door import Door
from orchestrator.kernel.errors import ClosedError, SessionOpenError, UnknownIdError
from orchestrator.kernel.execution.workspace.settings import elsewhere
from orchestrator.kernel.services import Services

NO_STRINGS: Final[Mapping[str, str]] = {}
_LAST_FACTS: Final = (DoorClosed, TaskSettled, TurnEnded)
"""The facts after which a session may need its agent no more."""


def open_new_session(
    services: Services,
    agent: Agent[Any],
    id_: SessionId | None = None,
    *,
    history: tuple[EarlierMessage, ...] = (),
    labels: Mapping[str, str] = NO_STRINGS,
    owner: str = "",
    attended: bool = False,
    deps: object = None,
) -> SessionRecord:
    """Register an agent, and open a session with it. Connect a door or begin a turn at once.

    Args:
        services: the parts of the orchestrator.
        agent: the agent that takes the session's turns.
        id_: the session's id, where the caller has chosen it.
        history: the messages of a conversation that took place elsewhere.
        labels: strings by which the client finds the session again.
        owner: whose the session is; "" is the operator's.
        attended: a person answers approval questions, whatever the door can deliver.
        deps: what the program gives to the tools and instructions of the tree.

    Raises:
        ClosedError: the orchestrator is stopping.
        SharedBudgetError: a budget around this is kept in another journal.
    """
    services.book.admission.require_running()
    id_ = services.new_session_id() if id_ is None else id_
    # Before the first fact: an agent whose model is not available leaves no trace.
    services.registry.register_session(id_, agent, deps)
    try:
        services.book.post(
            SessionOpened(
                id_,
                agent.name,
                agent.budget,
                current_grants(services.book.journal_identity),
                attended=attended,
                history=history,
                labels=labels,
                owner=owner,
            )
        )
    except BaseException:
        services.registry.unregister_session(id_)
        raise
    return services.book.ledger.sessions[id_]


async def reopen_session(services: Services, agent: Agent[Any], id_: SessionId) -> SessionRecord:
    """Load a session that has no door, to connect another one.

    Raises:
        UnknownIdError: there is no such session, or it has another agent.
        SessionOpenError: it has a door, or its caller waits inside its only turn, or its workspace
            is on another machine.
        ClosedError: it was closed for good, or the orchestrator is stopping.
    """
    services.book.admission.require_running()
    await services.book.cache.load(id_)
    session = services.book.ledger.sessions.get(id_)
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
    require_files_here(services, session)
    return session


def require_files_here(services: Services, session: SessionRecord) -> None:
    """Refuse to go on with a session whose workspace is on another machine.

    Raises:
        SessionOpenError: it is.
    """
    if why := elsewhere(session, services.machine.settings.host):
        raise SessionOpenError(f"session {session.id!r} cannot go on here: {why}")


def connect_door(
    services: Services,
    session: SessionRecord,
    agent: Agent[Any],
    door: Door,
    *,
    deps: object = None,
) -> None:
    """Send the replies of a session to a door from now on, and wake it if it has mail.

    Await `services.deliveries.deliver(session)` next: no earlier door may have taken its replies.
    """
    services.registry.register_session(session.id, agent, deps)
    services.deliveries.attach(session.id, door)
    services.book.post(DoorOpened(session.id, door.capability))


def disconnect_door(services: Services, session: SessionRecord, door: Door) -> None:
    """Take a session's door away. Its turn and its tasks run on; replies wait for the next door."""
    door.disconnect()
    services.deliveries.detach(session.id)
    if not services.book.closed:
        services.book.post(DoorClosed(session.id))


async def close_session(
    services: Services, session: SessionRecord, *, deleted: bool = False
) -> None:
    """End a session for good: cancel what runs in it, and drop its unread mail.

    Returns when that is durable.

    Args:
        services: the parts of the orchestrator.
        session: the session.
        deleted: no client may find it any more.
    """
    if not session.closed or (deleted and not session.deleted):
        services.book.post(SessionClosed(session.id, tuple(session.mail), deleted=deleted))
    services.deliveries.disconnect(session.id)
    await services.delegator.cancel([session.root.id, *session.unsettled_detached])
    await services.machine.end_commands_of(session.root.id, "its session was closed")
    await services.book.wait_durable()


@contextmanager
def release_agents(services: Services) -> Generator[None]:
    """Unregister the agent of each session once nothing of it can run any more.

    It follows the facts: a task may outlive its door by hours, and the door does not wait for it.
    """

    def release(entry: Entry, _encoded: Encoded) -> None:
        session = services.book.ledger.sessions.get(entry.session)
        # An interrupted turn is resumed by the next door, which registers the agent again.
        if session is None or session.root.is_running:
            return
        if session.door is None and not session.unsettled_detached:
            services.registry.unregister_session(session.id)

    with services.book.subscribers.subscribe_kinds(release, _LAST_FACTS):
        yield
