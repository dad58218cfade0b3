"""The progress of a run: the number of ended tasks, and the estimated end of the others.

A fan-out that requests its tasks one by one tells the number to come. The future delegations of an
agent are unknown, so the number of tasks may grow.
"""

from typing import TYPE_CHECKING, Final

import attrs

from orchestrator.delegation.task import Status

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree

UNSETTLED: Final[frozenset[str]] = frozenset(Status)
LEAST_ENDED: Final = 3
"""From how many tasks on there is a pace."""


@attrs.frozen
class Progress:
    """The tasks of a run without its root."""

    ended: int
    known: int
    """How many were asked for, or will be by a fan-out under way."""
    seconds_left: float | None
    """Until all of them have ended at the pace so far; None if it is not known."""


def progress(tree: "Tree", *, now: float) -> Progress:
    """Return how far a run has come."""
    root = tree[tree.root]
    below = tree.tally().unsettled - (root.status in UNSETTLED)
    ended = len(tree) - 1 - below
    known = len(tree) - 1 + tree.to_come
    # In a conversation of several turns, most of the time passes between the turns.
    has_pace = ended >= LEAST_ENDED and len(tree.turns) == 1
    left = known - ended
    pace = max(0.0, now - root.requested) / ended if has_pace else None
    return Progress(ended, known, pace * left if pace is not None and left else None)
