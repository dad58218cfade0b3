"""`with budget(...)`: the runs, sessions and messages that start inside share one budget.

Its account is in one journal: the first one that starts work under it. In another journal it would
be a second budget of the same size, so that is refused. A budget with the name of a common account
(`shared=`) is kept by all journals at one address.
"""

import inspect
import secrets
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, TypeVar

from orchestrator.agents import Budget
from orchestrator.agents.budget import BlockBudget
from orchestrator.delegation import SHARED_BUDGET_PREFIX, Account, Grant
from orchestrator.kernel.errors import SharedBudgetError
from orchestrator.kernel.journal.facts import Facts

P = ParamSpec("P")
T = TypeVar("T")


class _Shared:
    """A budget around some code, and the journal or the address that has its account."""

    __slots__ = ("common", "grant", "kept_at")

    def __init__(
        self, grant: Grant, facts: Facts | None = None, common: BlockBudget | None = None
    ) -> None:
        self.grant = grant
        self.common = common
        """The budget of a common account, whose grant depends on the time."""
        self.kept_at = None if facts is None else self._place_in(facts)

    def _place_in(self, facts: Facts) -> object:
        if self.grant.is_common and (store := facts.account_store) is not None:
            return store.address
        return facts.journal_identity

    def granted_in(self, facts: Facts) -> Grant:
        place = self._place_in(facts)
        if self.kept_at is None:
            self.kept_at = place
        elif self.kept_at != place:
            raise SharedBudgetError(str(self.grant.budget), self.kept_at, place)
        if self.common is None:
            return self.grant
        # Imported late: few budgets are common.
        from orchestrator.kernel.common_budgets import common_grant

        return common_grant(self.common, facts.clock())


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


@_with_parameters_of(BlockBudget)
@contextmanager
def budget(**amounts: Any) -> Generator[None]:
    """Limit all runs, sessions and messages that start inside, together.

    Budgets nest, and an inner one only tightens: a call has to fit all of them. A task that would
    exceed one ends as `OVER_BUDGET`, or as `TIMED_OUT` when its seconds are over, and its error
    names the budget; tasks or levels beyond the limit are refused, and the model reads why.

    One journal keeps the budget: a run that starts inside in another journal raises
    `SharedBudgetError`. With `shared="NAME"` all processes that use the same journal address have
    one budget of that name: a folder of SQLite files, or a database. It limits `usd`, `tokens` and
    `calls`, for ever or `every="day"` or `"month"` anew, by the calendar of `zone`. A run is paid
    by the day on which it starts.

    Args:
        **amounts: the fields of `Budget`, such as `usd=0.5, tasks=40, name="nightly"`, and
            `shared`, `every` and `zone`.
    """
    if {"shared", "every", "zone"} & amounts.keys():
        # Imported late: few budgets are common.
        from orchestrator.kernel.common_budgets import common_grant, require_common

        block = BlockBudget(**amounts)
        require_common(block)
        opened = _Shared(common_grant(block, None), common=block)
    else:
        allowed = Budget(**amounts)
        grant = Grant(f"{SHARED_BUDGET_PREFIX}{_NAME_BUDGET.get()(allowed)}", allowed)
        opened = _Shared(grant)
    with _use((*_SHARED.get(), opened)):
        yield


def is_charged_to(accounts: Iterable[Account]) -> bool:
    """Return whether these accounts pay for work that starts here already, as a child inherits.

    Then a budget of the program stays the same object, which remembers its journal.
    """
    shared = _SHARED.get()
    if not (accounts or shared):
        return True
    return [it.id for it in accounts if it.is_shared] == [it.grant.id for it in shared]


def charge_to(accounts: Iterable[Account], facts: Facts | None) -> AbstractContextManager[None]:
    """Charge the work that a task starts to the budgets that pay for the task, in their journal."""
    shared = (account for account in accounts if account.is_shared)
    return _use(tuple(_Shared(Grant(it.id, it.budget), facts) for it in shared))


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


def current_grants(facts: Facts) -> tuple[Grant, ...]:
    """Return the budgets around the caller, the outermost first, or raise `SharedBudgetError`."""
    shared = _SHARED.get()
    return tuple([it.granted_in(facts) for it in shared]) if shared else ()


def grants_beyond(accounts: Iterable[Account], facts: Facts) -> tuple[Grant, ...]:
    """Return the budgets around the caller beyond these accounts, or raise `SharedBudgetError`."""
    shared = _SHARED.get()
    if not shared:
        return ()
    known = {account.id for account in accounts}
    return tuple(
        grant
        for it in shared
        if it.grant.id not in known and (grant := it.granted_in(facts)).id not in known
    )
