"""The value `Snapshot`: which code can read it, when the next is due, whether two are the same."""

from typing import Final

import msgspec

from orchestrator.delegation.events.codec import VERSION as FACTS_VERSION
from orchestrator.delegation.ledger.session_record import SessionRecord
from orchestrator.delegation.rules import Rules
from orchestrator.delegation.task import SHARED_BUDGET_PREFIX, SessionId

LAYOUT: Final = 1
"""Raise it with any change of the fold, of its records or of this package: then no snapshot from
before is read."""
MIN_FACTS: Final = 2_000
"""How many facts a reader folds again rather than write a snapshot for the next reader."""
MIN_FACTS_LEFT: Final = 20_000
"""How many facts of a conversation are left to the next reader when it leaves the memory."""
SHARE: Final = 8
"""A snapshot is due when an eighth of the facts has come since the last one. A smaller part makes
the session open faster, and snapshots cost more."""

_OWN_LAYOUT: Final = f"{LAYOUT}.{FACTS_VERSION}"


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """The stored state of a session after one of its facts."""

    session: SessionId
    seq: int
    """The number of the last fact that is folded in it."""
    layout: str
    """The code and the rules of its writer."""
    state: bytes


def snapshot_layout(rules: Rules) -> str:
    """Return the layout of the snapshots that this code reads under these rules."""
    # The other rules are not known to the fold.
    slots = f"{rules.live_tasks}/{rules.live_children}/{rules.detached}"
    return f"{_OWN_LAYOUT} {slots}"


def is_own_layout(snapshot: Snapshot) -> bool:
    """Return whether this code made a snapshot, under whatever rules."""
    return snapshot.layout.startswith(f"{_OWN_LAYOUT} ")


def is_snapshot_due(session: SessionRecord, least: int = MIN_FACTS) -> bool:
    """Return whether many facts have come since the last snapshot of a session."""
    new = session.facts - session.facts_in_snapshot
    return new >= least and new * SHARE >= session.facts


def is_same_state(one: Snapshot, two: Snapshot) -> bool:
    """Return whether two snapshots hold the same state of a session."""
    return one.seq == two.seq and _comparable(one) == _comparable(two)


def _comparable(snapshot: Snapshot) -> bytes:
    from orchestrator.delegation.snapshot.stored_state import decode_state, encode_state

    state = decode_state(snapshot.state)
    for account in state.accounts:
        # Where and when a budget was set that several sessions share, only the first of them knows.
        if account.id.startswith(SHARED_BUDGET_PREFIX):
            account.path, account.depth, account.at = "", 0, 0
    return encode_state(state)
