"""May this be delegated, and who then owns it? Pure rules, decided before anything starts."""

from collections.abc import Sequence
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from typing import TypeAlias

import attrs

from agents import RefusedBy
from delegation.budget import Account
from delegation.ledger.ledger import Ledger
from delegation.ledger.records import TaskRecord
from delegation.task import DeliveryCapability, Mode, Reason, TaskRequest


@attrs.frozen
class Join:
    """Run it within the call that asks, as soon as there is room."""

    reason: Reason


@attrs.frozen
class Detach:
    """Run it on its own as soon as there is room, and tell the session later."""

    reason: Reason = Reason.CAN_BE_TOLD_LATER


@attrs.frozen
class Refuse:
    """Do not run it; the model reads the reason and goes on."""

    reason: str
    ran_out: str = ""
    """What a budget has no more of, if that is the reason: `tasks` or `depth`."""
    account: str = ""
    """The id of its account."""
    refused_by: RefusedBy | None = None
    """What refuses it, if not the rules."""


Decision: TypeAlias = Join | Detach | Refuse


def decide(requests: Sequence[TaskRequest], ledger: Ledger) -> Decision:
    """Decide what is asked for in one call, all of it alike.

    It is posted in the same synchronous step, so no two calls pass the same limit.
    """
    request = requests[0]
    parent = ledger.tasks[request.parent]
    owner = _owner(request, ledger)
    mode = Mode.DETACHED if isinstance(owner, Detach) else Mode.JOINED
    return (
        _refused_in_kind(parent, ledger)
        or _refused_by_budget(requests, parent, ledger)
        or _refused_by_queue(requests, parent, mode, ledger)
        or owner
    )


def in_dependency_order(requests: Sequence[TaskRequest]) -> Sequence[TaskRequest]:
    """Return the requests of one call, each behind those that it needs."""
    if not any(request.needs for request in requests):
        return requests
    places = {request.id: place for place, request in enumerate(requests)}
    # What it needs may have been asked for already, before a crash.
    waiting = TopologicalSorter(
        {
            place: [places[need] for need in request.needs if need in places]
            for place, request in enumerate(requests)
        }
    )
    waiting.prepare()
    ordered: list[TaskRequest] = []
    ready: list[int] = []
    while waiting.is_active():
        for place in waiting.get_ready():
            heappush(ready, place)
        # The first of those that could be next: whoever needs nothing keeps its place.
        place = heappop(ready)
        waiting.done(place)
        ordered.append(requests[place])
    return ordered


def _owner(request: TaskRequest, ledger: Ledger) -> Join | Detach:
    if request.background is False:
        return Join(Reason.ASKED_TO_WAIT)
    if request.origin.capability is DeliveryCapability.NONE:
        return Join(Reason.CANNOT_BE_TOLD_LATER)
    if ledger.rules.detached == 0:
        return Join(Reason.NONE_IN_BACKGROUND)
    return Detach()


def _refused_in_kind(parent: TaskRecord, ledger: Ledger) -> Refuse | None:
    rules = ledger.rules
    if ledger.is_cancelled(parent.id):
        return Refuse("this task was asked to end, and hands nothing on any more")
    if parent.depth + 1 > rules.depth:
        return Refuse(
            f"delegation may go {rules.depth} level{'s' * (rules.depth != 1)} deep, and"
            " this task is at the bottom: do the work yourself"
        )
    if rules.live_children == 0 or rules.live_tasks == 0:
        return Refuse("the rules allow no task to run at all: do the work yourself")
    return None


def _refused_by_budget(
    requests: Sequence[TaskRequest], parent: TaskRecord, ledger: Ledger
) -> Refuse | None:
    # Of one call, all are asked for under the same budgets.
    accounts = [
        *parent.accounts,
        *(
            ledger.accounts.get(grant.id)
            or Account(grant, path=parent.path, depth=parent.depth, started_at=0)
            for grant in requests[0].grants
        ),
    ]
    for account in accounts:
        depth, tasks = account.budget.depth, account.budget.tasks
        if depth is not None and parent.depth + 1 - account.depth > depth:
            return Refuse(
                f"{account.describe()} allows {depth} level{'s' * (depth != 1)} of tasks,"
                " and this task is at the bottom: do the work yourself",
                ran_out="depth",
                account=account.id,
            )
        if tasks is not None and account.tasks + len(requests) > tasks:
            return Refuse(
                f"{account.describe()} allows {tasks} tasks; {account.tasks} were handed on,"
                f" and this call asks for {len(requests)}. None was started",
                ran_out="tasks",
                account=account.id,
            )
    return None


def _refused_by_queue(
    requests: Sequence[TaskRequest], parent: TaskRecord, mode: Mode, ledger: Ledger
) -> Refuse | None:
    room = ledger.sessions[parent.session].slots
    # Whoever needs another waits for that one first, and not for room.
    asked = sum(not request.needs for request in requests)
    waiting = asked - min(asked, room.free(parent, mode))
    if not waiting or room.queued + waiting <= ledger.rules.queue:
        return None
    return Refuse(
        f"there is no room: {room.in_use} tasks of this tree work now, {room.queued} wait,"
        f" and no more than {ledger.rules.queue} may wait; none was started. Ask for fewer,"
        " or again when some have ended"
    )
