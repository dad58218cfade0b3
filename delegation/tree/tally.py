"""The tally of some tasks: the number of each status, and their usage."""

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from orchestrator.agents import Usage
from orchestrator.delegation.task import Ending, Status

STATUSES: Final[tuple[Status | Ending, ...]] = (*Status, *Ending)
STATUS_INDEX: Final[dict[str, int]] = {status: at for at, status in enumerate(STATUSES)}
"""The index of each status in `status_counts`."""


def _group_glyph(status: Status | Ending) -> str:
    """Return the glyph under which a status is counted."""
    match status:
        case Status.WAITING:
            return "!"
        case Status.RUNNING | Status.QUIET | Status.INTERRUPTED:
            return "◐"
        case Status.QUEUED:
            return "·"
        case Ending.FAILED | Ending.TIMED_OUT | Ending.OVER_BUDGET | Ending.LOST:
            return "✗"
        case Ending.CANCELLED | Ending.REFUSED:
            return "⊘"
        case Ending.SUCCEEDED:
            return "✓"
        case _:
            assert_never(status)


def _group(glyph: str) -> frozenset[str]:
    return frozenset(it for it in (*Status, *Ending) if _group_glyph(it) == glyph)


ACTIVE: Final = _group("◐")
"""The task runs, or ran when its process died."""
FAILURES: Final = _group("✗")
"""The task should have succeeded. One that was cancelled or refused should not go on."""
GLYPH_GROUPS: Final[tuple[tuple[str, frozenset[str]], ...]] = tuple(
    (glyph, _group(glyph)) for glyph in "!◐·✗⊘✓"
)
"""The groups of statuses that are counted together, the most urgent first."""

_FAILED: Final = tuple(STATUS_INDEX[status] for status in FAILURES)
_UNSETTLED: Final = tuple(STATUS_INDEX[status] for status in Status)
_WAITING: Final = STATUS_INDEX[Status.WAITING]


class Tally(msgspec.Struct):
    """The counts and the usage of some tasks."""

    tasks: int = 0
    tokens: int = 0
    calls: int = 0
    micro_usd: int = 0
    """Micro-dollars; a lower bound if anything is `unpriced` or `estimated`."""
    unpriced: int = 0
    """Model calls without a known price."""
    estimated: int = 0
    """Model calls that were broken off, so that their tokens are estimates."""
    began: float | None = None
    """When the first of them started; None if none has, or if it is unknown."""
    ended: float | None = None
    """When the last of them ended so far."""
    status_counts: list[int] = msgspec.field(default_factory=lambda: [0] * len(STATUSES))
    """How many have each status, in the order of `STATUSES`."""

    @property
    def counts(self) -> dict[str, int]:
        """How many have each status that any of them has."""
        return {
            status: number
            for status, number in zip(STATUSES, self.status_counts, strict=True)
            if number
        }

    @property
    def waiting(self) -> int:
        return self.status_counts[_WAITING]

    @property
    def failed(self) -> int:
        return sum(self.status_counts[at] for at in _FAILED)

    @property
    def unsettled(self) -> int:
        """How many have not ended."""
        return sum(self.status_counts[at] for at in _UNSETTLED)

    @property
    def usage(self) -> Usage:
        """Their usage; all tokens count as input."""
        return Usage(
            calls=self.calls,
            input_tokens=self.tokens,
            micro_usd=self.micro_usd,
            unpriced=self.unpriced,
            estimated=self.estimated,
        )

    def seconds(self, now: float | None = None) -> float | None:
        """Return the time from the first start to the last end, or until now if one has not ended.

        It is None if none has started, or if one has not ended and `now` is not given.
        """
        end = now if self.unsettled else self.ended
        if self.began is None or end is None:
            return None
        return end - self.began

    def copy(self) -> "Tally":
        return replace(self, status_counts=self.status_counts.copy())

    def absorb(self, other: "Tally") -> None:
        """Add another tally to this one."""
        self.tasks += other.tasks
        self.tokens += other.tokens
        self.calls += other.calls
        self.micro_usd += other.micro_usd
        self.unpriced += other.unpriced
        self.estimated += other.estimated
        self.status_counts = list(map(int.__add__, self.status_counts, other.status_counts))
        if other.began is not None:
            mine = self.began
            self.began = other.began if mine is None else min(mine, other.began)
        if other.ended is not None:
            mine = self.ended
            self.ended = other.ended if mine is None else max(mine, other.ended)

    def __sub__(self, other: "Tally") -> "Tally":
        """Return the tally without some of its tasks; the times of the others are unknown."""
        return Tally(
            self.tasks - other.tasks,
            self.tokens - other.tokens,
            self.calls - other.calls,
            self.micro_usd - other.micro_usd,
            self.unpriced - other.unpriced,
            self.estimated - other.estimated,
            None,
            None,
            [one - two for one, two in zip(self.status_counts, other.status_counts, strict=True)],
        )

    def glyph_counts(self) -> str:
        """Return the counts for people: `✗3 ✓41`."""
        return glyph_counts(self.status_counts)

    def alarms(self) -> str:
        """Return the counts of the tasks that wait, run or have failed."""
        return glyph_counts(self.status_counts, only="!◐✗")


def glyph_counts(counts: Sequence[int], *, only: str = "!◐·✗⊘✓") -> str:
    """Return counts, in the order of `STATUSES`, as text with the most urgent first: `✗3 ✓41`."""
    parts = (
        (glyph, sum(counts[STATUS_INDEX[status]] for status in statuses))
        for glyph, statuses in GLYPH_GROUPS
        if glyph in only
    )
    return " ".join(f"{glyph}{number:,}" for glyph, number in parts if number)
