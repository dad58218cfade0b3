"""Budgets that a parent gives to its tasks: together at most the rest of the budgets above them.

Each budget is kept anyway, call by call. This check tells a parent at once that its plan is too
large. Imported late: most parents give no budgets.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import UNSET

from orchestrator.agents import Budget
from orchestrator.agents.budget import BudgetKind
from orchestrator.delegation.amounts import Amounts
from orchestrator.delegation.budget import Account
from orchestrator.delegation.ledger.task_record import TaskRecord
from orchestrator.delegation.notices import counted, dollars
from orchestrator.delegation.task import TaskRequest

GIVEN_KINDS: Final = (BudgetKind.CALLS, BudgetKind.TOKENS, BudgetKind.USD)
"""The kinds that tasks share out; the seconds of all of them pass at the same time."""


def shortage(
    requests: Sequence[TaskRequest], parent: TaskRecord, accounts: Iterable[Account]
) -> tuple[Account, BudgetKind, str] | None:
    """Return the account that cannot pay for the budgets of new tasks, the kind, and why.

    The unused part of the budget of a running child is not left for its new siblings.
    """
    running = [it for it in parent.children.unsettled.values() if it.request is not None]
    for kind in GIVEN_KINDS:
        wanted = sum(_given(request, kind) for request in requests)
        if not wanted:
            continue
        held = sum(_unused(child, kind) for child in running)
        for account in accounts:
            limit = limit_of(account.budget, kind)
            if limit is None:
                continue
            rest = max(0, limit - amount_of(account.used, kind) - held)
            if wanted > rest:
                left, asked = in_words(rest, kind), in_words(wanted, kind)
                problem = f"has {left} left, not the {asked} of this call"
                return account, kind, problem
    return None


def _given(request: TaskRequest, kind: BudgetKind) -> int:
    if request.chosen is UNSET or request.chosen.budget is None:
        return 0
    return limit_of(request.chosen.budget, kind) or 0


def _unused(child: TaskRecord, kind: BudgetKind) -> int:
    assert child.request is not None, "a root is no child"
    given = _given(child.request, kind)
    own = next((it for it in child.accounts if it.id == child.id), None)
    return 0 if not given or own is None else max(0, given - amount_of(own.used, kind))


def limit_of(budget: Budget, kind: BudgetKind) -> int | None:
    """Return the limit of a budget, in the units of accounts."""
    if kind is BudgetKind.USD:
        return None if budget.usd is None else round(budget.usd * 1_000_000)
    return budget.tokens if kind is BudgetKind.TOKENS else budget.calls


def amount_of(amounts: Amounts, kind: BudgetKind) -> int:
    """Return one of the amounts of an account."""
    if kind is BudgetKind.USD:
        return amounts.micro_usd
    return amounts.tokens if kind is BudgetKind.TOKENS else amounts.calls


def in_words(amount: int, kind: BudgetKind) -> str:
    """Return an amount for people."""
    if kind is BudgetKind.USD:
        return dollars(amount)
    return counted(amount, "token" if kind is BudgetKind.TOKENS else "model call")
