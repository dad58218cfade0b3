"""Accounts: the usage under each budget, booked for every budget up the chain.

The most that a model call may cost is reserved before the call, and released after it. So however
many tasks run at once, together they never exceed a budget.
"""

import attrs

from agents import Budget, Usage
from delegation.errors import DelegationError
from delegation.notices import counted, dollars
from delegation.task import Grant


class OverBudgetError(DelegationError):
    """A model call would exceed a budget."""

    def __init__(
        self, account: "Account", ran_out: str, problem: str, *, partial: str = ""
    ) -> None:
        super().__init__(f"{account.describe()} {problem}")
        self.account = account
        self.partial = partial
        """The text of the model until then."""
        self.ran_out = ran_out
        """The amount that is used up: `usd`, `tokens`, `calls`."""


class Account:
    """The usage under one budget. Only the fold books on it."""

    __slots__ = (
        "budget",
        "calls",
        "cost",
        "depth",
        "id",
        "is_shared",
        "path",
        "started_at",
        "tasks",
        "tokens",
    )

    def __init__(
        self, grant: Grant, *, path: str, depth: int, started_at: float
    ) -> None:
        self.id = grant.id
        self.budget = grant.budget
        self.is_shared = grant.is_shared
        """Other sessions may book on it."""
        self.path = path
        """The path of the task that it was set for; of several, the first."""
        self.depth = depth
        """The depth of that task."""
        self.started_at = started_at
        """When its seconds began."""
        self.calls = 0
        self.tokens = 0
        self.cost = 0
        """Micro-dollars."""
        self.tasks = 0

    def book(self, usage: Usage) -> None:
        """Book one model call, with all its attempts."""
        self.calls += max(1, usage.calls)
        self.tokens += usage.tokens
        self.cost += usage.cost

    def without_use(self) -> "Account":
        """Return an empty account of the same budget."""
        grant = Grant(self.id, self.budget)
        return Account(
            grant, path=self.path, depth=self.depth, started_at=self.started_at
        )

    @property
    def deadline(self) -> float | None:
        """When its seconds are used up, in seconds since the epoch."""
        seconds = self.budget.seconds
        return None if seconds is None else self.started_at + seconds

    def describe(self) -> str:
        return f"the {self.budget} of {self.path}"


@attrs.define
class Reserved:
    """The reservations of the calls under way on one account."""

    calls: int = 0
    tokens: int = 0
    cost: int = 0

    def add(self, quote: Usage) -> None:
        self.calls += 1
        self.tokens += quote.tokens
        self.cost += quote.cost

    def release(self, quote: Usage) -> None:
        self.calls -= 1
        self.tokens -= quote.tokens
        self.cost -= quote.cost


def fits_budget(account: Account, reserved: Reserved, quote: Usage) -> bool:
    """Return whether a call fits beside the reservations of other calls.

    Raises:
        OverBudgetError: it does not fit, even without them.
    """
    _require_left(account, quote)
    budget = account.budget
    return (
        _fits(budget.calls, account.calls + reserved.calls + 1)
        and _fits(budget.tokens, account.tokens + reserved.tokens + quote.tokens)
        and _fits(_cost(budget), account.cost + reserved.cost + quote.cost)
    )


def _require_left(account: Account, quote: Usage) -> None:
    budget = account.budget
    if not _fits(budget.calls, account.calls + 1):
        problem = f"is used up: {counted(account.calls, 'model call')} made"
        raise OverBudgetError(account, "calls", problem)
    if not _fits(budget.tokens, account.tokens + quote.tokens):
        problem = (
            f"is used up: {counted(account.tokens, 'token')}, and the next call may use"
            f" {quote.tokens}"
        )
        raise OverBudgetError(account, "tokens", problem)
    if budget.usd is None:
        return
    if quote.unpriced:
        problem = (
            "cannot be kept: the price of the next call is unknown; give it with"
            " open_orchestrator(prices=...), or agents.models.prices.priced(model, table)"
        )
        raise OverBudgetError(account, "usd", problem)
    if not _fits(_cost(budget), account.cost + quote.cost):
        problem = (
            f"is used up: {dollars(account.cost)}, and the next call may cost"
            f" {dollars(quote.cost)}"
        )
        raise OverBudgetError(account, "usd", problem)


def _cost(budget: Budget) -> int | None:
    return None if budget.usd is None else round(budget.usd * 1_000_000)


def _fits(limit: int | None, amount: int) -> bool:
    return limit is None or amount <= limit
