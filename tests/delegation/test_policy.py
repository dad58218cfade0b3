"""May this be delegated, and who then owns it?"""

from collections.abc import Callable
from typing import TypeAlias

import attrs
import pytest

from delegation import (
    DeliveryCapability,
    Detach,
    Join,
    Ledger,
    Reason,
    Refuse,
    Rules,
    TaskId,
    TaskRequest,
    Verdict,
    decide,
)
from delegation.events import CancelRequested, TaskRequested, TaskStarted

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

NONE, POLL, PUSH = DeliveryCapability
WAIT = Join(Reason.ASKED_TO_WAIT)
CANNOT = Join(Reason.CANNOT_BE_TOLD_LATER)
LATER = Detach(Reason.CAN_BE_TOLD_LATER)


@pytest.fixture
def request_of(requested: Asked) -> Callable[..., TaskRequest]:
    """Return what is asked for with a given capability and a given wish."""

    def request_of(
        capability: DeliveryCapability,
        background: bool | None = None,
        parent: str = "s",
    ) -> TaskRequest:
        request = requested("new", parent).request
        origin = attrs.evolve(request.origin, capability=capability)
        return attrs.evolve(request, origin=origin, background=background)

    return request_of


@pytest.mark.parametrize(
    ("capability", "background", "verdict"),
    [
        (NONE, None, CANNOT),
        (NONE, True, CANNOT),
        (NONE, False, WAIT),
        (POLL, None, LATER),
        (POLL, True, LATER),
        (POLL, False, WAIT),
        (PUSH, None, LATER),
        (PUSH, True, LATER),
        (PUSH, False, WAIT),
    ],
)
def test_a_task_is_detached_if_the_session_can_be_told_later(
    ledger: Ledger,
    begin: Tell,
    request_of: Callable[..., TaskRequest],
    *,
    capability: DeliveryCapability,
    background: bool | None,
    verdict: Verdict,
) -> None:
    """A promise is only made to somebody who can be reached; anybody may ask to wait."""
    begin(PUSH)

    assert decide(request_of(capability, background), ledger, Rules()) == verdict


def test_the_turn_decides_and_not_the_door(
    ledger: Ledger, begin: Tell, request_of: Callable[..., TaskRequest]
) -> None:
    """The origin travels by value: what it says holds, whatever is open by now."""
    begin(NONE)

    assert decide(request_of(PUSH), ledger, Rules()) == LATER


@pytest.mark.parametrize("capability", DeliveryCapability)
@pytest.mark.parametrize("background", [None, True, False])
@pytest.mark.parametrize(
    ("depth", "parent", "reason"),
    [
        (0, "s", "delegation may go 0 levels deep"),
        (1, "a", "delegation may go 1 level deep"),
        (2, "b", "delegation may go 2 levels deep"),
    ],
)
def test_at_the_bottom_nothing_is_handed_on(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
    *,
    capability: DeliveryCapability,
    background: bool | None,
    depth: int,
    parent: str,
    reason: str,
) -> None:
    """The limit holds for joined and detached alike, and 0 means none at all."""
    begin(PUSH)
    tell(requested("a"), TaskStarted(TaskId("a")), requested("b", parent="a"))
    request = request_of(capability, background, parent)

    refused = decide(request, ledger, Rules(depth=depth))
    assert isinstance(refused, Refuse)
    assert refused.reason.startswith(reason)
    assert "do the work yourself" in refused.reason
    assert not isinstance(decide(request, ledger, Rules(depth=depth + 1)), Refuse)


@pytest.mark.parametrize("cancelled", ["s", "a"])
@pytest.mark.parametrize("background", [None, True, False])
def test_who_was_asked_to_end_hands_nothing_on(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
    *,
    cancelled: str,
    background: bool | None,
) -> None:
    """Nor does anybody below: what it asked for would outlive the cancel."""
    begin(PUSH)
    tell(requested("a"), TaskStarted(TaskId("a")), CancelRequested(TaskId(cancelled)))
    request = request_of(PUSH, background, parent="a")

    refused = decide(request, ledger, Rules())
    assert isinstance(refused, Refuse)
    assert "was asked to end" in refused.reason


def test_deciding_changes_nothing(
    ledger: Ledger,
    begin: Tell,
    request_of: Callable[..., TaskRequest],
    snapshot: Callable[[Ledger], object],
) -> None:
    """Only a fact does, and that is posted by whoever asked for the verdict."""
    begin(PUSH)
    before = snapshot(ledger)

    decide(request_of(PUSH), ledger, Rules())
    assert snapshot(ledger) == before
