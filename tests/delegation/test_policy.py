"""May this be delegated, and who then owns it?"""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from orchestrator.agents import Budget
from orchestrator.delegation import (
    Decision,
    DeliveryCapability,
    Detach,
    Ending,
    Grant,
    Join,
    Ledger,
    Mode,
    Outcome,
    Reason,
    Refuse,
    Rules,
    SessionId,
    TaskId,
    TaskRequest,
    decide,
    in_dependency_order,
)
from orchestrator.delegation.events import (
    CancelRequested,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnStarted,
)

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

NONE, POLL, PUSH = DeliveryCapability
S = SessionId("s")
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
        **more: Any,
    ) -> TaskRequest:
        id_ = more.pop("id", "new")
        request = requested(id_, parent, background=background, **more).request
        origin = replace(request.origin, capability=capability)
        return replace(request, origin=origin)

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
    verdict: Decision,
) -> None:
    begin(PUSH)

    assert decide([request_of(capability, background)], ledger) == verdict


def test_the_turn_decides_and_not_the_door(
    ledger: Ledger, begin: Tell, request_of: Callable[..., TaskRequest]
) -> None:
    """The origin travels by value: a door that opens later changes nothing."""
    begin(NONE)

    assert decide([request_of(PUSH)], ledger) == LATER


@pytest.mark.parametrize("capability", DeliveryCapability)
@pytest.mark.parametrize("background", [None, True, False])
@pytest.mark.parametrize(
    ("rules", "parent", "reason"),
    [
        (Rules(depth=0), "s", "delegation may go 0 levels deep"),
        (Rules(depth=1), "a", "delegation may go 1 level deep"),
        (Rules(depth=2), "b", "delegation may go 2 levels deep"),
        (Rules(depth=1), "s", ""),
        (Rules(depth=2), "a", ""),
        (Rules(depth=3), "b", ""),
    ],
)
def test_a_task_at_the_depth_limit_delegates_no_task(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
    *,
    capability: DeliveryCapability,
    background: bool | None,
    parent: str,
    reason: str,
) -> None:
    """The limit holds for joined and detached alike, and 0 means none at all."""
    begin(PUSH)
    tell(requested("a"), TaskStarted(TaskId("a")), requested("b", parent="a"))
    verdict = decide([request_of(capability, background, parent)], ledger)

    if not reason:
        assert not isinstance(verdict, Refuse)
        return
    assert isinstance(verdict, Refuse)
    assert verdict.reason.startswith(reason)
    assert "do the work yourself" in verdict.reason


@pytest.mark.parametrize("rules", [Rules(live_children=0), Rules(live_tasks=0)])
@pytest.mark.parametrize("background", [None, True, False])
def test_a_task_is_refused_when_the_rules_allow_no_running_task(
    ledger: Ledger, begin: Tell, request_of: Callable[..., TaskRequest], background: bool | None
) -> None:
    """A limit of 0 would make it wait for ever."""
    begin(PUSH)
    refused = decide([request_of(PUSH, background)], ledger)

    assert isinstance(refused, Refuse)
    assert refused.reason.startswith("the rules allow no task to run at all")


@pytest.mark.parametrize("rules", [Rules(detached=0)])
@pytest.mark.parametrize(
    ("capability", "background", "reason"),
    [
        (PUSH, None, Reason.NONE_IN_BACKGROUND),
        (PUSH, True, Reason.NONE_IN_BACKGROUND),
        (POLL, True, Reason.NONE_IN_BACKGROUND),
        (PUSH, False, Reason.ASKED_TO_WAIT),
        (NONE, True, Reason.CANNOT_BE_TOLD_LATER),
    ],
)
def test_a_task_is_joined_when_the_rules_allow_no_background_task(
    ledger: Ledger,
    begin: Tell,
    request_of: Callable[..., TaskRequest],
    *,
    capability: DeliveryCapability,
    background: bool | None,
    reason: Reason,
) -> None:
    """The work is done all the same, and the answer says why it was waited for."""
    begin(PUSH)

    assert decide([request_of(capability, background)], ledger) == Join(reason)


FULL = [
    pytest.param(Rules(live_children=2, queue=0), id="of one parent"),
    pytest.param(Rules(live_tasks=2, queue=0), id="of the tree"),
    pytest.param(Rules(detached=2, queue=0), id="in the background"),
]


@pytest.mark.parametrize("rules", FULL)
def test_without_a_queue_a_task_without_a_slot_is_refused(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
) -> None:
    begin(PUSH)
    request = request_of(PUSH)
    tell(requested("a", mode=Mode.DETACHED))
    assert decide([request], ledger) == LATER

    tell(requested("b", mode=Mode.DETACHED))
    refused = decide([request], ledger)
    assert isinstance(refused, Refuse)
    assert refused.reason.startswith(
        "there is no free slot: 2 tasks of this tree work now, 0 wait, and no more than 0 may wait"
    )

    tell(TaskStarted(TaskId("a")), TaskSettled(TaskId("a"), Outcome(Ending.FAILED)))
    assert decide([request], ledger) == LATER


@pytest.mark.parametrize("rules", [Rules(detached=1, queue=0)])
def test_a_joined_task_takes_no_detached_slot(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
) -> None:
    """Each limit is its own number."""
    begin(PUSH)
    tell(requested("a", mode=Mode.DETACHED), requested("b"))

    assert decide([request_of(PUSH, background=False)], ledger) == WAIT
    assert isinstance(decide([request_of(PUSH)], ledger), Refuse)


@pytest.mark.parametrize("rules", [Rules(live_tasks=1, queue=2)])
@pytest.mark.parametrize(("asked", "is_let_in"), [(2, True), (3, False)])
def test_a_batch_is_admitted_whole_or_refused(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
    *,
    asked: int,
    is_let_in: bool,
) -> None:
    """Half a batch would be truncated in silence."""
    begin(PUSH)
    batch = [request_of(PUSH, id=f"t{place}") for place in range(asked)]
    assert decide(batch, ledger) == LATER

    tell(requested("a", mode=Mode.DETACHED))
    verdict = decide(batch, ledger)
    assert isinstance(verdict, Refuse) is not is_let_in
    if isinstance(verdict, Refuse):
        assert "no task was started" in verdict.reason


@pytest.mark.parametrize("rules", [Rules(live_tasks=1, queue=2)])
def test_the_queue_admits_its_exact_limit(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
) -> None:
    begin(PUSH)
    for task in "abc":
        assert decide([request_of(PUSH)], ledger) == LATER
        tell(requested(task, mode=Mode.DETACHED))
    refused = decide([request_of(PUSH)], ledger)
    assert isinstance(refused, Refuse)
    assert "1 tasks of this tree work now, 2 wait, and no more than 2" in refused.reason

    tell(TaskSettled(TaskId("c"), Outcome(Ending.CANCELLED)))
    assert decide([request_of(PUSH)], ledger) == LATER


@pytest.mark.parametrize("rules", [Rules(live_tasks=1, queue=0)])
def test_a_waiting_parent_lends_its_slot_to_its_child(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
) -> None:
    """Else a chain of two would wait for itself."""
    begin(PUSH)
    tell(requested("a"), TaskStarted(TaskId("a")))
    below = request_of(NONE, parent="a")

    assert decide([below], ledger) == CANNOT
    assert isinstance(decide([below, below], ledger), Refuse)

    tell(requested("b", parent="a"))
    assert isinstance(decide([below], ledger), Refuse)


@pytest.mark.parametrize("rules", [Rules(live_tasks=1, queue=0)])
def test_a_task_with_dependencies_does_not_count_as_queued(
    ledger: Ledger, begin: Tell, request_of: Callable[..., TaskRequest]
) -> None:
    """A chain is let in as a whole: one of it runs, and the next has its place."""
    begin(PUSH)
    first = request_of(PUSH, id="x")
    second = request_of(PUSH, id="y", needs=(first.id,))
    third = request_of(PUSH, id="z", needs=(second.id,))

    assert decide([first, second, third], ledger) == LATER


def two_tasks_at_most(where: str) -> dict[str, Any]:
    """Return a budget in one of the places where it can be set."""
    grant = Grant("g", Budget(tasks=2, name="small"))
    return {"budget": grant.budget} if where == "own" else {"grants": (grant,)}


@pytest.mark.parametrize("where", ["own", "grants"])
def test_a_budget_of_tasks_holds_for_all_below(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
    *,
    where: str,
) -> None:
    """Of its own budget it is no task itself; of one that it is asked for under, it is one."""
    begin(PUSH)
    tell(requested("a", **two_tasks_at_most(where)), TaskStarted(TaskId("a")))
    below = [request_of(NONE, parent="a", id=f"t{place}") for place in range(3)]
    left = 2 if where == "own" else 1
    path = "/editor/researcher[1]" if where == "own" else "/editor"
    assert decide(below[:left], ledger) == CANNOT

    refused = decide(below[: left + 1], ledger)
    assert isinstance(refused, Refuse)
    assert refused.reason == (
        f"the budget 'small' (tasks=2) of {path} allows 2 tasks; {2 - left} were delegated,"
        f" and this call asks for {left + 1}. None was started"
    )

    for place in range(left):
        tell(requested(f"t{place}", parent="a"))
    assert isinstance(decide(below[-1:], ledger), Refuse)
    assert decide([request_of(PUSH)], ledger) == LATER, "it is not the session's"


@pytest.mark.parametrize("is_known", [False, True])
def test_a_granted_budget_limits_the_call_that_brings_it(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
    *,
    is_known: bool,
) -> None:
    """Also for the first call that hears of it."""
    begin(PUSH)
    grants = (Grant("g", Budget(tasks=1)),)
    if is_known:
        tell(requested("a", grants=grants))
    request = request_of(PUSH, grants=grants)

    verdicts = [decide([request], ledger), decide([request, request], ledger)]
    assert [isinstance(it, Refuse) for it in verdicts] == [is_known, True]


@pytest.mark.parametrize(
    ("depth", "parent", "is_refused"),
    [(0, "a", True), (1, "a", False), (1, "b", True), (2, "b", False), (0, "s", False)],
)
def test_a_budget_of_depth_counts_from_where_it_was_set(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
    *,
    depth: int,
    parent: str,
    is_refused: bool,
) -> None:
    begin(PUSH)
    tell(requested("a", budget=Budget(depth=depth)), TaskStarted(TaskId("a")))
    if depth:
        tell(requested("b", parent="a"), TaskStarted(TaskId("b")))
    verdict = decide([request_of(NONE, parent=parent)], ledger)

    assert isinstance(verdict, Refuse) is is_refused
    if isinstance(verdict, Refuse):
        assert verdict.reason == (
            f"the budget (depth={depth}) of /editor/researcher[1] allows"
            f" {depth} level{'' if depth == 1 else 's'} of tasks, and this task is at the"
            " bottom: do the work yourself"
        )


def test_a_budget_of_zero_tasks_refuses_every_task(
    ledger: Ledger, tell: Tell, request_of: Callable[..., TaskRequest]
) -> None:
    """0 means none at all, for a session as for anybody else."""
    tell(SessionOpened(S, "editor", Budget(tasks=0)), TurnStarted(S, 1, PUSH, ()))

    refused = decide([request_of(PUSH)], ledger)
    assert isinstance(refused, Refuse)
    assert refused.reason.startswith("the budget (tasks=0) of /editor allows 0 tasks")


def test_a_request_uses_no_money_tokens_calls_or_seconds(
    ledger: Ledger, tell: Tell, request_of: Callable[..., TaskRequest]
) -> None:
    """They are used by the work of a task."""
    nothing = Budget(usd=0, tokens=0, calls=0, seconds=0)
    tell(SessionOpened(S, "editor", nothing), TurnStarted(S, 1, PUSH, ()))

    assert not isinstance(decide([request_of(PUSH)], ledger), Refuse)


def test_tasks_are_requested_after_their_dependencies(
    request_of: Callable[..., TaskRequest],
) -> None:
    """A fact can only name tasks that exist."""
    a, b, c, d = (
        request_of(PUSH, id=id_, needs=tuple(map(TaskId, needs)))
        for id_, needs in (("a", "bc"), ("b", "c"), ("c", "x"), ("d", ""))
    )

    assert [it.id for it in in_dependency_order([d, b])] == ["d", "b"]
    ordered = [it.id for it in in_dependency_order([a, b, c, d])]
    assert sorted(ordered) == ["a", "b", "c", "d"]
    assert ordered.index(c.id) < ordered.index(b.id) < ordered.index(a.id)
    assert in_dependency_order([d]) == [d]


@pytest.mark.parametrize("cancelled", ["s", "a"])
@pytest.mark.parametrize("background", [None, True, False])
def test_a_cancelled_task_delegates_no_task(
    ledger: Ledger,
    begin: Tell,
    tell: Tell,
    requested: Asked,
    request_of: Callable[..., TaskRequest],
    *,
    cancelled: str,
    background: bool | None,
) -> None:
    """The child would outlive the cancel; this holds for all descendants."""
    begin(PUSH)
    tell(requested("a"), TaskStarted(TaskId("a")), CancelRequested(TaskId(cancelled)))
    request = request_of(PUSH, background, parent="a")

    refused = decide([request], ledger)
    assert isinstance(refused, Refuse)
    assert "was asked to end" in refused.reason


def test_deciding_leaves_the_ledger_unchanged(
    ledger: Ledger,
    begin: Tell,
    request_of: Callable[..., TaskRequest],
    snapshot: Callable[[Ledger], object],
) -> None:
    begin(PUSH)
    before = snapshot(ledger)

    decide([request_of(PUSH)], ledger)
    assert snapshot(ledger) == before
