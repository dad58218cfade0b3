"""Snapshots: the state of one session, so that it is read without folding all its facts again.

The journal stays the only truth. A snapshot is the fold of the session's facts up to a number:
without it, opening the session takes longer and gives the same state. Only the code that wrote it,
under the same rules, reads it; any other code folds the facts.
"""

# The imports are the list of its names.
# pyright: reportUnusedImport=false

from orchestrator.delegation.snapshot.snapshot import (
    LAYOUT,
    MIN_FACTS,
    MIN_FACTS_LEFT,
    Snapshot,
    is_own_layout,
    is_same_state,
    is_snapshot_due,
    snapshot_layout,
)
