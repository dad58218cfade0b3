"""`with budget(...)`: the runs, sessions and messages begun inside share one budget."""

import secrets
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final

from agents import Budget
from delegation import SHARED_BUDGET_PREFIX, Account, Grant

_GRANTS: Final[ContextVar[tuple[Grant, ...]]] = ContextVar("budgets", default=())
_UNCHANGED: Final = nullcontext()


def _new_name(_: Budget) -> str:
    return secrets.token_hex(6)


_NAME_BUDGET: Final[ContextVar[Callable[[Budget], str]]] = ContextVar(
    "names of budgets", default=_new_name
)


@contextmanager
def budget(
    *,
    usd: float | None = None,
    tokens: int | None = None,
    calls: int | None = None,
    seconds: float | None = None,
    tasks: int | None = None,
    depth: int | None = None,
    name: str = "",
) -> Generator[None]:
    """Bound what the runs, sessions and messages that are begun inside may use together.

    Budgets nest, and an inner one only tightens: a call has to fit all of them. A task that would
    exceed one ends as `OVER_BUDGET`, or as `TIMED_OUT` when its seconds are over, and its error
    names the budget; tasks or levels too many are refused, and the model reads why.

    Args:
        usd: what all model calls may cost.
        tokens: the input and output tokens of all model calls.
        calls: the number of model calls.
        seconds: how long all of it may take, from the first request on.
        tasks: how many tasks may be delegated.
        depth: how many levels of tasks may be below a run or session.
        name: what errors call the budget.
    """
    allowed = Budget(
        usd=usd,
        tokens=tokens,
        calls=calls,
        seconds=seconds,
        tasks=tasks,
        depth=depth,
        name=name,
    )
    grant = Grant(f"{SHARED_BUDGET_PREFIX}{_NAME_BUDGET.get()(allowed)}", allowed)
    with _use_grants((*_GRANTS.get(), grant)):
        yield


def charge_to(accounts: Iterable[Account]) -> AbstractContextManager[None]:
    """Charge what a task begins to the budgets that pay for the task."""
    grants = [Grant(it.id, it.budget) for it in accounts if it.is_shared]
    # A child mostly begins under the budgets of its parent, or under none.
    return _UNCHANGED if (*grants,) == _GRANTS.get() else _use_grants((*grants,))


@contextmanager
def _use_grants(grants: tuple[Grant, ...]) -> Generator[None]:
    token = _GRANTS.set(grants)
    try:
        yield
    finally:
        _GRANTS.reset(token)


@contextmanager
def use_budget_names(name: Callable[[Budget], str] = _new_name) -> Generator[None]:
    """Name the budgets that are opened inside, so that a resumed program finds them again.

    Args:
        name: names a budget; by default at random.
    """
    token = _NAME_BUDGET.set(name)
    try:
        yield
    finally:
        _NAME_BUDGET.reset(token)


def current_grants() -> tuple[Grant, ...]:
    """Return the budgets around the caller, the outermost first."""
    return _GRANTS.get()


def grants_beyond(accounts: Iterable[Account]) -> tuple[Grant, ...]:
    """Return the budgets around the caller that have none of these accounts."""
    grants = _GRANTS.get()
    if not grants:
        return grants
    known = {account.id for account in accounts}
    return tuple(grant for grant in grants if grant.id not in known)
