"""`with budget(...)`: the runs, sessions and messages that start inside share one budget.

Its account is in one journal: the first one that starts work under it. In another journal it would
be a second budget of the same size, so that is refused.
"""

import inspect
import secrets
from collections.abc import Callable, Generator, Hashable, Iterable
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, TypeVar

from orchestrator.agents import Budget
from orchestrator.delegation import SHARED_BUDGET_PREFIX, Account, Grant
from orchestrator.kernel.errors import SharedBudgetError

P = ParamSpec("P")
T = TypeVar("T")


class _Shared:
    """A budget around some code, and the journal that has its account."""

    __slots__ = ("grant", "journal")

    def __init__(self, grant: Grant, journal: Hashable = None) -> None:
        self.grant = grant
        self.journal = journal

    def granted_in(self, journal: Hashable) -> Grant:
        if self.journal is None:
            self.journal = journal
        elif self.journal != journal:
            raise SharedBudgetError(str(self.grant.budget), self.journal, journal)
        return self.grant


_SHARED: Final[ContextVar[tuple[_Shared, ...]]] = ContextVar("budgets", default=())


def _new_name(_: Budget) -> str:
    return secrets.token_hex(6)


_NAME_BUDGET: Final[ContextVar[Callable[[Budget], str]]] = ContextVar(
    "names of budgets", default=_new_name
)


def _with_parameters_of(other: Callable[P, object]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a function the parameters of another callable, for type checkers and `inspect`."""

    def replace(function: Callable[..., T]) -> Callable[P, T]:
        parameters = list(inspect.signature(other).parameters.values())
        signature = inspect.signature(function).replace(parameters=parameters)
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return replace


@_with_parameters_of(Budget)
@contextmanager
def budget(**amounts: Any) -> Generator[None]:
    """Limit all runs, sessions and messages that start inside, together.

    Budgets nest, and an inner one only tightens: a call has to fit all of them. A task that would
    exceed one ends as `OVER_BUDGET`, or as `TIMED_OUT` when its seconds are over, and its error
    names the budget; tasks or levels beyond the limit are refused, and the model reads why.

    One journal keeps the budget: a run that starts inside in another journal raises
    `SharedBudgetError`.

    Args:
        **amounts: the fields of `Budget`, such as `usd=0.5, tasks=40, name="nightly"`.
    """
    allowed = Budget(**amounts)
    grant = Grant(f"{SHARED_BUDGET_PREFIX}{_NAME_BUDGET.get()(allowed)}", allowed)
    with _use((*_SHARED.get(), _Shared(grant))):
        yield


def is_charged_to(accounts: Iterable[Account]) -> bool:
    """Return whether these accounts pay for work that starts here already, as a child inherits.

    Then a budget of the program stays the same object, which remembers its journal.
    """
    shared = _SHARED.get()
    if not (accounts or shared):
        return True
    return [it.id for it in accounts if it.is_shared] == [it.grant.id for it in shared]


def charge_to(accounts: Iterable[Account], journal: Hashable) -> AbstractContextManager[None]:
    """Charge the work that a task starts to the budgets that pay for the task, in their journal."""
    shared = (account for account in accounts if account.is_shared)
    return _use(tuple(_Shared(Grant(it.id, it.budget), journal) for it in shared))


def use_grants(grants: tuple[Grant, ...]) -> AbstractContextManager[None]:
    """Charge the work that starts in the block to these budgets, and to no others."""
    return _use(tuple([_Shared(grant) for grant in grants]))


class _use:  # noqa: N801 (a function to its callers)
    """Uses these budgets in the block. By hand: `@contextmanager` would double its cost."""

    __slots__ = ("_shared", "_token")

    def __init__(self, shared: tuple[_Shared, ...]) -> None:
        self._shared = shared

    def __enter__(self) -> None:
        self._token = _SHARED.set(self._shared)

    def __exit__(self, *exc: object) -> None:
        _SHARED.reset(self._token)


@contextmanager
def use_budget_names(name: Callable[[Budget], str]) -> Generator[None]:
    """Name the budgets that are opened inside, so that a resumed program finds them again."""
    token = _NAME_BUDGET.set(name)
    try:
        yield
    finally:
        _NAME_BUDGET.reset(token)


def leave_budget_names() -> None:
    """Name the budgets that the rest of this trio task opens by chance: it is another program."""
    _NAME_BUDGET.set(_new_name)


def current_grants(journal: Hashable) -> tuple[Grant, ...]:
    """Return the budgets around the caller, the outermost first, or raise `SharedBudgetError`."""
    shared = _SHARED.get()
    return tuple([it.granted_in(journal) for it in shared]) if shared else ()


def grants_beyond(accounts: Iterable[Account], journal: Hashable) -> tuple[Grant, ...]:
    """Return the budgets around the caller beyond these accounts, or raise `SharedBudgetError`."""
    shared = _SHARED.get()
    if not shared:
        return ()
    known = {account.id for account in accounts}
    return tuple(it.granted_in(journal) for it in shared if it.grant.id not in known)
