"""Snapshots: the state of one session, so that it is read without folding all its facts again.

The journal stays the only truth. A snapshot is what the fold of the session's facts gives, up to a
number, and nothing else: without it, opening the session takes longer, and gives the same. Only the
code that wrote it, under the same rules, reads it; any other folds the facts.
"""

from orchestrator.delegation.snapshot.capture import SnapshotCapture
from orchestrator.delegation.snapshot.restore import adopt_session, restore_snapshot
from orchestrator.delegation.snapshot.snapshot import (
    LAYOUT,
    MIN_FACTS,
    Snapshot,
    is_own_layout,
    is_same_state,
    is_snapshot_due,
    snapshot_layout,
)

__all__ = [
    "LAYOUT",
    "MIN_FACTS",
    "Snapshot",
    "SnapshotCapture",
    "adopt_session",
    "is_own_layout",
    "is_same_state",
    "is_snapshot_due",
    "restore_snapshot",
    "snapshot_layout",
]
