"""The table of a fold module: each kind of fact, with the function that applies it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from orchestrator.delegation.events import Entry, Event

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.ledger import Ledger


EventT = TypeVar("EventT", bound=Event)
Fold: TypeAlias = Callable[["Ledger", EventT, Entry], None]
"""Applies a fact, the event of an entry, or raises `ImpossibleEventError` and changes nothing."""
FoldRow: TypeAlias = tuple[type[object], Fold[Any]]


def fold_row(kind: type[EventT], fold: Fold[EventT]) -> FoldRow:
    """Return a row of the table; the type checker compares the kind with the function."""
    return kind, fold
