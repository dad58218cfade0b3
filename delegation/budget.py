"""Accounts: the usage under each budget, booked for every budget up the chain.

The most that a model call may cost is reserved before the call, and released after it. So however
many tasks run at once, together they never exceed a budget.
"""

from typing import Final, assert_never

import msgspec

from orchestrator.agents import Budget, Usage
from orchestrator.agents.budget import BudgetKind
from orchestrator.delegation.amounts import NOTHING, Amounts
from orchestrator.delegation.errors import DelegationError
from orchestrator.delegation.notices import counted, dollars
from orchestrator.delegation.task import Grant


def _amounts_of(usage: Usage, calls: int) -> Amounts:
    return Amounts(calls=calls, tokens=usage.tokens, micro_usd=usage.micro_usd)


class OverBudgetError(DelegationError):
    """A model call would exceed a budget."""

    def __init__(self, account: "Account", ran_out: BudgetKind, problem: str) -> None:
        super().__init__(f"{account.describe()} {problem}")
        self.account = account
        self.problem = problem
        self.ran_out = ran_out
        """The amount that is used up."""


_KINDS: Final = tuple(BudgetKind)


def _limited_kinds(budget: Budget) -> tuple[BudgetKind, ...]:
    return tuple([kind for kind in _KINDS if getattr(budget, kind) is not None])


class Account:
    """The usage under one budget. Only the fold books on it."""

    __slots__ = (
        *("budget", "depth", "id", "is_common", "is_shared", "kinds", "path"),
        *("started_at", "used"),
    )

    def __init__(self, grant: Grant, *, path: str, depth: int, started_at: float) -> None:
        self.id = grant.id
        self.budget = grant.budget
        self.kinds = _limited_kinds(grant.budget)
        """The kind that the budget limits."""
        self.is_shared = grant.is_shared
        """Other sessions may book on it."""
        self.is_common = grant.is_common
        """Other journals may book on it; this has the usage of one of them."""
        self.path = path
        """The path of the task that it was set for; of several, the first."""
        self.depth = depth
        """The depth of that task."""
        self.started_at = started_at
        """When its seconds began."""
        self.used = NOTHING

    def book(self, usage: Usage) -> None:
        """Book one model call, with all its attempts."""
        self.used += _amounts_of(usage, max(1, usage.calls))

    def charge(self, usage: Usage) -> None:
        """Book the most that a call may have used, which may be no call at all."""
        self.used += _amounts_of(usage, usage.calls)

    def change_budget(self, budget: Budget) -> None:
        """Limit it anew: the newest limits of a name count."""
        self.budget = budget
        self.kinds = _limited_kinds(budget)

    def without_use(self) -> "Account":
        """Return an empty account of the same budget."""
        grant = Grant(self.id, self.budget)
        return Account(grant, path=self.path, depth=self.depth, started_at=self.started_at)

    @property
    def is_standing(self) -> bool:
        """A session has it until a message brings another one."""
        return Grant(self.id, self.budget).is_standing

    @property
    def deadline(self) -> float | None:
        """When its seconds are used up, in seconds since the epoch."""
        seconds = self.budget.seconds
        return None if seconds is None else self.started_at + seconds

    def describe(self) -> str:
        return f"the {self.budget} of {self.path}"


class Reserved(msgspec.Struct):
    """The reservations of the calls under way on one account."""

    amounts: Amounts = NOTHING

    def add(self, quote: Usage) -> None:
        self.amounts += _amounts_of(quote, 1)

    def release(self, quote: Usage) -> None:
        self.amounts -= _amounts_of(quote, 1)


def fits_budget(
    account: Account, reserved: Reserved, quote: Usage, elsewhere: Amounts = NOTHING
) -> bool:
    """Return whether a call fits beside the reservations of other calls; raise `OverBudgetError` if
    it does not fit, even without them.

    `elsewhere` is the usage of a common account in other journals.
    """
    used = account.used if elsewhere is NOTHING else account.used + elsewhere
    for kind in account.kinds:
        if _problem(account.budget, used, kind, reserved.amounts, quote):
            break
    else:
        return True
    for kind in account.kinds:
        if problem := _problem(account.budget, used, kind, NOTHING, quote):
            raise OverBudgetError(account, kind, problem)
    return False


def _problem(  # noqa: PLR0911 (a case a kind)
    budget: Budget, used: Amounts, kind: BudgetKind, reserved: Amounts, quote: Usage
) -> str | None:
    """Return why a call does not fit beside these reservations; None if it does."""
    match kind:
        case BudgetKind.CALLS:
            if _fits(budget.calls, used.calls + reserved.calls + 1):
                return None
            return f"is used up: {counted(used.calls, 'model call')} made"
        case BudgetKind.TOKENS:
            if _fits(budget.tokens, used.tokens + reserved.tokens + quote.tokens):
                return None
            spent = counted(used.tokens, "token") if used.tokens else ""
            return _shortage(spent, f"use {counted(quote.tokens, 'token')}")
        case BudgetKind.USD:
            if budget.usd is not None and quote.unpriced:
                return (
                    "cannot be kept: the price of the next call is unknown; give it with"
                    " open_orchestrator(models=Models(prices=...)), with"
                    " orchestrator.models.with_prices(model, table), or as 'price' of its"
                    " service in models.toml; or limit tokens in place of usd"
                )
            if _fits(_cost(budget), used.micro_usd + reserved.micro_usd + quote.micro_usd):
                return None
            spent = dollars(used.micro_usd) if used.micro_usd else ""
            return _shortage(spent, f"cost {dollars(quote.micro_usd)}")
        case BudgetKind.SECONDS | BudgetKind.DEPTH | BudgetKind.TASKS:
            # A deadline ends the task; `policy.py` counts levels and tasks.
            return None
        case _:
            assert_never(kind)


def _shortage(spent: str, needed: str) -> str:
    """Return that the next call does not fit; `spent` is empty before the first one."""
    if not spent:
        return f"cannot pay for its first call, which may {needed}"
    return f"is used up: {spent}, and the next call may {needed}"


def _cost(budget: Budget) -> int | None:
    return None if budget.usd is None else round(budget.usd * 1_000_000)


def _fits(limit: int | None, amount: int) -> bool:
    return limit is None or amount <= limit
