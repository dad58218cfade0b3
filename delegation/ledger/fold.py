"""The fold: applies each fact to the ledger.

A fact that contradicts the facts before it is refused, and changes nothing: every handler checks
first and changes then. Work per fact is O(depth), whatever the ledger holds.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from orchestrator.delegation.errors import ImpossibleEventError
from orchestrator.delegation.events import Entry
from orchestrator.delegation.ledger import (
    fold_approvals,
    fold_jobs,
    fold_places,
    fold_processes,
    fold_sessions,
    fold_tasks,
)
from orchestrator.delegation.ledger.fold_table import Fold
from orchestrator.delegation.ledger.session_record import SessionRecord

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.ledger import Ledger


FOLDS: Final[Mapping[type[object], Fold[Any]]] = dict(
    [
        *fold_tasks.FOLDS,
        *fold_approvals.FOLDS,
        *fold_processes.FOLDS,
        *fold_places.FOLDS,
        *fold_sessions.FOLDS,
        *fold_jobs.FOLDS,
    ]
)
"""How each kind of fact is applied."""


def fold_entry(ledger: "Ledger", entry: Entry) -> SessionRecord | None:
    """Apply one fact and return its session, or raise `ImpossibleEventError` and change nothing."""
    event = entry.event
    # Numbers may be missing: facts of idle sessions are not folded.
    if entry.seq <= ledger.last_seq:
        raise ImpossibleEventError(entry, f"{ledger.last_seq} is the last number")
    FOLDS[type(event)](ledger, event, entry)
    ledger.last_seq = entry.seq
    session = ledger.sessions.get(entry.session)
    if session is not None:
        session.facts += 1
    return session
