"""The difference of two runs, by numberless path.

All tasks with the same path but for its numbers are one `role`: `/editor/researcher` are all
researchers below the editor. So runs with other numbers of tasks can be compared.
"""

import re
from typing import TYPE_CHECKING, Final

import attrs

from orchestrator.delegation.notices import dollars
from orchestrator.delegation.tree.tally import STATUS_INDEX, Tally

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree

NUMBER: Final = re.compile(r"\[[0-9]+\]")


@attrs.frozen
class RoleTotals:
    """The tally of all tasks of one role, without their delegated tasks."""

    tally: Tally = attrs.field(factory=Tally)
    seconds: float = 0.0
    """The seconds of all of them, one after the other."""
    kept: int = 0
    """The number of tasks that a fork has copied from an earlier run."""


@attrs.frozen
class Change:
    """One role in two runs."""

    role: str
    before: RoleTotals
    after: RoleTotals

    @property
    def is_added(self) -> bool:
        return not self.before.tally.tasks

    @property
    def is_removed(self) -> bool:
        return not self.after.tally.tasks

    @property
    def tasks(self) -> int:
        return self.after.tally.tasks - self.before.tally.tasks

    @property
    def failed(self) -> int:
        return self.after.tally.failed - self.before.tally.failed

    @property
    def tokens(self) -> int:
        return self.after.tally.tokens - self.before.tally.tokens

    @property
    def micro_usd(self) -> int:
        """The difference in cost; not to be relied on if `is_lower_bound`."""
        return self.after.tally.micro_usd - self.before.tally.micro_usd

    @property
    def is_lower_bound(self) -> bool:
        """The cost of something is not known, in one run or both."""
        both = (self.before.tally, self.after.tally)
        return any(tally.usage.is_lower_bound for tally in both)

    @property
    def seconds(self) -> float:
        return self.after.seconds - self.before.seconds

    @property
    def is_same(self) -> bool:
        """Nothing has changed but the time it took."""
        one, two = self.before.tally, self.after.tally
        return one - two == Tally()

    def __str__(self) -> str:
        mark = "+" if self.is_added else "-" if self.is_removed else " "
        about = "~" if self.is_lower_bound else ""
        sign = "-" if self.micro_usd < 0 else "+"
        return (
            f"{mark} {self.role}: {self.tasks:+,} tasks, {self.failed:+,} failed,"
            f" {self.tokens:+,} tok, {about}{sign}{dollars(abs(self.micro_usd))},"
            f" {self.seconds:+,.1f} s{f', {self.after.kept:,} kept' if self.after.kept else ''}"
        )


def role_of(path: str) -> str:
    """Return a path without its numbers."""
    return NUMBER.sub("", path)


def diff(before: "Tree", after: "Tree") -> list[Change]:
    """Return every role of two runs, in the order of first occurrence."""
    one, two = role_totals(before), role_totals(after)
    return [
        Change(role, one.get(role, RoleTotals()), two.get(role, RoleTotals()))
        for role in dict.fromkeys([*one, *two])
    ]


def role_totals(tree: "Tree") -> dict[str, RoleTotals]:
    """Return the totals of each role."""
    found: dict[str, RoleTotals] = {}
    for task in tree.descendants(itself=True):
        node = tree[task]
        usage = node.usage
        own = Tally(1, usage.tokens, usage.calls, usage.micro_usd, usage.unpriced, usage.estimated)
        own.status_counts[STATUS_INDEX[node.status]] = 1
        role = role_of(node.path)
        known = found.get(role, RoleTotals())
        known.tally.absorb(own)
        seconds = known.seconds + (node.seconds() or 0.0)
        found[role] = attrs.evolve(known, seconds=seconds, kept=known.kept + node.kept)
    return found
