"""Fixtures for tests of the rules: a ledger that is given facts, and a view of its state."""

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.agents import AssistantMessage, ToolMessage, Transcript, UserMessage
from orchestrator.delegation import (
    Account,
    Children,
    DeliveryCapability,
    Ledger,
    Mode,
    Origin,
    Reason,
    Rules,
    SessionId,
    SessionRecord,
    Slots,
    TaskId,
    TaskRecord,
    TaskRequest,
    Tree,
)
from orchestrator.delegation.events import (
    DoorOpened,
    Entry,
    Event,
    MessageReceived,
    SessionOpened,
    TaskRequested,
    TurnStarted,
)


@pytest.fixture
def rules() -> Rules:
    """The usual limits; a test that needs others is parametrized with them."""
    return Rules()


@pytest.fixture
def ledger(rules: Rules) -> Ledger:
    return Ledger(rules)


@pytest.fixture
def tell(ledger: Ledger) -> Callable[..., None]:
    """Post facts a second apart: fact number 3 happens at 3.0."""

    def tell(*facts: Event) -> None:
        for fact in facts:
            seq = ledger.last_seq + 1
            ledger.fold(Entry(seq, float(seq), ledger.session_of(fact), fact))

    return tell


@pytest.fixture
def begin(ledger: Ledger, tell: Callable[..., None]) -> Callable[..., None]:
    """Open a session of the editor, say "go" to it, and have it begin its first turn."""

    def begin(capability: DeliveryCapability, session: str = "s") -> None:
        id_ = SessionId(session)
        tell(SessionOpened(id_, "editor"))
        if capability is not DeliveryCapability.NONE:
            tell(DoorOpened(id_, capability))
        tell(MessageReceived(id_, "go"))
        tell(TurnStarted(id_, 1, capability, tuple(ledger.sessions[id_].mail)))

    return begin


@pytest.fixture
def requested() -> Callable[..., TaskRequested]:
    """Return the fact that a task was asked for; all that a test does not say is the usual."""

    def requested(
        task: str,
        parent: str = "s",
        *,
        mode: Mode = Mode.JOINED,
        reason: Reason = Reason.ASKED_TO_WAIT,
        session: str = "s",
        call: str = "",
        agent: str = "researcher",
        goal: str = "find it",
        started: bool = False,
        **more: Any,
    ) -> TaskRequested:
        request = TaskRequest(
            id=TaskId(task),
            parent=TaskId(parent),
            origin=Origin(session=SessionId(session), turn=1, capability=DeliveryCapability.PUSH),
            call=call or f"call of {task}",
            agent=agent,
            goal=goal,
            **more,
        )
        detached = mode is Mode.DETACHED
        reason = Reason.CAN_BE_TOLD_LATER if detached else reason
        return TaskRequested(request, mode, reason, started)

    return requested


KEPT_IN = {"tasks", "sessions", "accounts"}


@pytest.fixture
def snapshot() -> Callable[[Ledger], object]:
    """Return all that a ledger knows as plain values, to be compared with another time."""
    return lambda ledger: [
        (name, _plain(known, whole=name in KEPT_IN)) for name, known in vars(ledger).items()
    ]


def _plain(value: object, *, whole: bool = False) -> object:
    # A record is spelled out where the ledger keeps it, and named wherever else it occurs.
    match value:
        case TaskRecord() | SessionRecord() | Account() if not whole:
            return value.id
        case TaskRecord() | SessionRecord() | Account() | Children() | Slots():
            return [(name, _plain(getattr(value, name))) for name in value.__slots__]
        case UserMessage() | AssistantMessage() | ToolMessage():
            # Its name is no part of it, and has to be the same all the same.
            return value, value.id
        case Tree():
            nodes = [(task, value[task].attributes()) for task in value]
            followed = value.turns, value.to_come
            return nodes, list(value.to_networkx().edges(data="kind")), followed
        case dict():
            value = [(key, _plain(known, whole=whole)) for key, known in value.items()]
        case list() | tuple() | Transcript():
            value = [_plain(known) for known in value]
        case _:
            pass
    return value
