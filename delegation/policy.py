"""The decision about a request, before anything starts: refuse it, join it or detach it."""

from collections.abc import Sequence
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from typing import TypeAlias

import msgspec
from msgspec import UNSET

from orchestrator.agents import RefusedBy
from orchestrator.agents.budget import BudgetKind
from orchestrator.delegation.budget import Account
from orchestrator.delegation.ledger.ledger import Ledger
from orchestrator.delegation.ledger.task_record import TaskRecord
from orchestrator.delegation.task import DETACHED, JOINED, NO_DELIVERY, Mode, Reason, TaskRequest


class Join(msgspec.Struct, frozen=True, gc=False):
    """Run it within the call that requests it, as soon as a slot is free."""

    reason: Reason


class Detach(msgspec.Struct, frozen=True, gc=False):
    """Run it on its own as soon as a slot is free, and send the session a notice."""

    reason: Reason = Reason.CAN_BE_TOLD_LATER


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """Do not run it; the model reads the reason and goes on."""

    reason: str
    ran_out: BudgetKind | None = None
    """The part of a budget that ran out, if that is the reason."""
    account: str = ""
    """The id of its account."""
    refused_by: RefusedBy | None = None
    """The reason, if not the rules."""


Decision: TypeAlias = Join | Detach | Refuse


def decide(requests: Sequence[TaskRequest], ledger: Ledger) -> Decision:
    """Decide about all requests of one call alike.

    The caller posts them in the same synchronous step, so no two calls pass the same limit.
    """
    request = requests[0]
    parent = ledger.tasks[request.parent]
    owner = _owner(request, ledger)
    mode = DETACHED if isinstance(owner, Detach) else JOINED
    return (
        _refused_by_rules(parent, ledger)
        or (
            _refused_by_budget(requests, parent, ledger)
            if parent.accounts or request.grants
            else None
        )
        or _refused_by_queue(requests, parent, mode, ledger)
        or owner
    )


def in_dependency_order(requests: Sequence[TaskRequest]) -> Sequence[TaskRequest]:
    """Return the requests of one call, each after its dependencies."""
    if not any([request.needs for request in requests]):  # noqa: C419 (twice as fast)
        return requests
    indexes = {request.id: index for index, request in enumerate(requests)}
    # A dependency may have been requested already, before a crash.
    waiting = TopologicalSorter(
        {
            index: [indexes[need] for need in request.needs if need in indexes]
            for index, request in enumerate(requests)
        }
    )
    waiting.prepare()
    ordered: list[TaskRequest] = []
    ready: list[int] = []
    while waiting.is_active():
        for index in waiting.get_ready():
            heappush(ready, index)
        # The first one that could be next, so that requests without dependencies keep their order.
        index = heappop(ready)
        waiting.done(index)
        ordered.append(requests[index])
    return ordered


def _owner(request: TaskRequest, ledger: Ledger) -> Join | Detach:
    if request.is_handoff:
        return Join(Reason.HANDED_OFF)
    if request.background is False:
        return Join(Reason.ASKED_TO_WAIT if request.beside is UNSET else Reason.RUNS_BESIDE)
    if request.origin.capability is NO_DELIVERY:
        return Join(Reason.CANNOT_BE_TOLD_LATER)
    if ledger.rules.detached == 0:
        return Join(Reason.NONE_IN_BACKGROUND)
    return Detach()


def _refused_by_rules(parent: TaskRecord, ledger: Ledger) -> Refuse | None:
    rules = ledger.rules
    if ledger.is_cancelled(parent.id):
        return Refuse("this task was asked to end, and hands nothing on any more")
    if parent.node.level + 1 > rules.depth:
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
    # All requests of one call have the same budgets.
    accounts = [
        *parent.accounts,
        *(
            ledger.accounts.get(grant.id)
            or Account(grant, path=parent.path, depth=parent.depth, started_at=0)
            for grant in requests[0].grants
        ),
    ]
    for account in accounts:
        for kind in account.kinds:
            if problem := _problem(account, kind, parent.depth + 1, len(requests)):
                problem = f"{account.describe()} {problem}"
                return Refuse(problem, ran_out=kind, account=account.id)
    for request in requests:
        if request.chosen is not UNSET:
            # Imported late: most parents give no budgets.
            from orchestrator.delegation.given_budgets import shortage

            if (found := shortage(requests, parent, accounts)) is not None:
                account, kind, problem = found
                problem = f"{account.describe()} {problem}"
                return Refuse(problem, ran_out=kind, account=account.id)
            break
    return None


def _problem(account: Account, kind: BudgetKind, depth: int, count: int) -> str | None:
    """Return why a budget does not allow this number of tasks at this depth; None if it does."""
    match kind:
        case BudgetKind.DEPTH:
            levels = account.budget.depth
            if levels is None or depth - account.depth <= levels:
                return None
            return (
                f"allows {levels} level{'s' * (levels != 1)} of tasks, and this task is at"
                " the bottom: do the work yourself"
            )
        case BudgetKind.TASKS:
            tasks, used = account.budget.tasks, account.used.tasks
            if tasks is None or used + count <= tasks:
                return None
            return (
                f"allows {tasks} tasks; {used} were delegated, and this call asks for"
                f" {count}. None was started"
            )
        case _:
            # The work of a task uses the other amounts, and not its request.
            return None


def _refused_by_queue(
    requests: Sequence[TaskRequest], parent: TaskRecord, mode: Mode, ledger: Ledger
) -> Refuse | None:
    slots = ledger.sessions[parent.session].slots
    # A task with dependencies waits for these first, and not for a slot.
    due = sum([not request.needs for request in requests])  # noqa: C419 (twice as fast)
    waiting = due - min(due, slots.free(parent, mode))
    if not waiting or slots.queued + waiting <= ledger.rules.queue:
        return None
    if slots.is_paused(parent):
        return Refuse(
            f"no new tasks start here for now: a person has paused that. {slots.queued} wait, and"
            f" no more than {ledger.rules.queue} may; no task was started. Go on with what you have"
        )
    return Refuse(
        f"there is no free slot: {slots.in_use} tasks of this tree work now, {slots.queued} wait,"
        f" and no more than {ledger.rules.queue} may wait; no task was started. Ask for fewer,"
        " or again when some have ended"
    )
