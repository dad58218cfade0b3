"""`with budget(...)`: whatever is asked for inside shares what it allows."""

import secrets
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final

from agents import Budget
from delegation import SHARED_BUDGET_PREFIX, Account, Grant

_GRANTS: Final[ContextVar[tuple[Grant, ...]]] = ContextVar("budgets", default=())
_AS_BEFORE: Final = nullcontext()


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

    Budgets nest, and an inner one only tightens: every one around must have room. A task that
    would go beyond one ends as `OVER_BUDGET`, or as `TIMED_OUT` when its seconds are over, and
    says which; tasks or levels too many are refused, and the model reads why.

    Args:
        usd: what all model calls may cost.
        tokens: what all model calls may read and write.
        calls: how often models may be asked.
        seconds: how long all of it may take, from the first that is asked for.
        tasks: how many tasks may be handed on.
        depth: how many levels of tasks there may be below what is asked for.
        name: what the budget is called where it runs out.
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
    """Let whatever a task begins be paid for by the budgets that pay for the task."""
    grants = [Grant(it.id, it.budget) for it in accounts if it.is_shared]
    # Whoever works for another mostly begins under the same budgets, or under none.
    return _AS_BEFORE if (*grants,) == _GRANTS.get() else _use_grants((*grants,))


@contextmanager
def _use_grants(grants: tuple[Grant, ...]) -> Generator[None]:
    token = _GRANTS.set(grants)
    try:
        yield
    finally:
        _GRANTS.reset(token)


@contextmanager
def use_budget_names(name: Callable[[Budget], str] = _new_name) -> Generator[None]:
    """Let budgets be called by names that are the same when a program runs again.

    Args:
        name: gives a budget its name; by default one that nobody has.
    """
    token = _NAME_BUDGET.set(name)
    try:
        yield
    finally:
        _NAME_BUDGET.reset(token)


def current_grants() -> tuple[Grant, ...]:
    """Return the budgets around whoever asks, the outermost first."""
    return _GRANTS.get()
