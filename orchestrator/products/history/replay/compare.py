"""Compares a replay with its record, and finds the first difference.

Each task is compared step by step: its request, the answers of its model and tools, its outcome.
Times are not compared, and neither is the order of steps between tasks.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, cast

import attrs
import msgspec

from orchestrator.delegation import Cause, Ledger, Outcome, SessionId, Status, TaskId
from orchestrator.delegation.events import Entry, in_parts
from orchestrator.products.history.replay.index import RunIndex
from orchestrator.products.history.replay.record import DELEGATION_TOOLS, RecordedRun
from orchestrator.products.history.replay.steps import Step

SECONDS_TOLERANCE: Final = 0.01
"""The largest difference, in seconds, between equal durations: durations are rounded."""
STOPPED: Final = frozenset(
    {*(Cause.ASKED, Cause.CALLER_GONE, Cause.BEFORE_START), *(Cause.SESSION_CLOSED, Cause.SHUTDOWN)}
)
"""Causes that count as the same: a task that is stopped as it starts may have started."""
WITHOUT_ERROR: Final = STOPPED | {Cause.STALLED, Cause.CHILD, Cause.DEPENDENCY}
"""Causes whose error is not compared. The error states how long a task was silent, lists errors
raised while the task stopped, or repeats the error of another task, whose own end is compared.
"""


@attrs.frozen
class Difference:
    """The first step of a task that differs from the record."""

    path: str
    """The path of the task, such as `/editor/researcher[3]`."""
    step: int
    """The number of the step: 1 is the request."""
    recorded: str
    replayed: str

    def __str__(self) -> str:
        return (
            f"{self.path}, step {self.step}\nrecorded: {self.recorded}\nreplayed: {self.replayed}"
        )


@attrs.frozen(kw_only=True)
class ReplayResult:
    """The result of a replay."""

    run: SessionId
    tasks: int
    """The number of tasks that were the same, the root included."""
    steps: int
    """The number of steps that were the same."""
    difference: Difference | None
    is_whole: bool = True
    """Whether the record has the end of the run; if not, later steps are not compared."""

    @property
    def is_same(self) -> bool:
        return self.difference is None


NOTHING: Final = "nothing"


_STATUS: Final[Mapping[str, str]] = {Status.QUIET: Status.RUNNING}


@attrs.frozen
class Equivalence:
    """Compares steps, without durations and notes."""

    ignored_keys: frozenset[str] = frozenset()
    """The keys in the answers of delegation tools that are not compared."""

    def same_steps(self, one: Step, other: Step) -> bool:
        if (one.what, one.tool) != (other.what, other.tool):
            return False
        if one.outcome is not None and other.outcome is not None:
            return _comparable(one.outcome) == _comparable(other.outcome)
        return self.same_texts(one.detail, other.detail, by=one.tool)

    def same_texts(self, recorded: str, replayed: str, *, by: str = "") -> bool:
        """Return whether two texts are equivalent; `by` is the tool that answered, if one did."""
        if recorded == replayed:
            return True
        if by in DELEGATION_TOOLS:
            try:
                answers = msgspec.json.decode(recorded), msgspec.json.decode(replayed)
            except msgspec.DecodeError:
                pass
            else:
                return self._same_values(*answers)
        return False

    def _same_values(  # noqa: PLR0911 (one for each)
        self, one: Any, other: Any, key: str = ""
    ) -> bool:
        match one, other:
            case _ if key in self.ignored_keys:
                return True
            case _ if key == "error":
                # The error of another task, whose own end is compared.
                return bool(one) == bool(other)
            case dict(), dict():
                ones = cast("dict[str, Any]", one)
                others = cast("dict[str, Any]", other)
                return ones.keys() == others.keys() and all(
                    self._same_values(value, others[name], name) for name, value in ones.items()
                )
            case list(), list():
                pairs = zip_longest(cast("Any", one), cast("Any", other))
                return all(self._same_values(*pair) for pair in pairs)
            case ((int() | float()), (int() | float())) if key == "seconds":
                return abs(one - other) <= SECONDS_TOLERANCE
            case str(), str():
                # Whether a task was quiet depends on streamed words, which are not recorded.
                if key == "status":
                    one, other = _STATUS.get(one, one), _STATUS.get(other, other)
                return bool(one == other)
            case _:
                return bool(one == other)


# A queue position changes all the time. A note is a sentence about a task, whose own steps are
# compared.
STRICT: Final = Equivalence(frozenset({"position", "note"}))
# The usage and the time of copied facts belong to the original run.
FOR_FORKS: Final = Equivalence(STRICT.ignored_keys | {"tokens", "cost_usd", "seconds"})


def equivalence_for(record: RecordedRun) -> Equivalence:
    return FOR_FORKS if record.copied_messages else STRICT


def _comparable(outcome: Outcome) -> Outcome:
    """Return an outcome without the parts that may differ between a run and its replay."""
    cause = Cause.ASKED if outcome.cause in STOPPED else outcome.cause
    error = "" if outcome.cause in WITHOUT_ERROR else outcome.error
    return Outcome(
        outcome.ending,
        outcome.output,
        error,
        kind=outcome.kind,
        schema_errors=outcome.schema_errors,
        cause=cause,
    )


def compare(
    record: RecordedRun,
    replayed: Sequence[tuple[Entry, float]],
    ledger: Ledger,
    unrecorded_waits: Mapping[TaskId, str],
) -> ReplayResult:
    """Return how much of a run is the same in a replay with positions, and the first difference."""
    index = RunIndex(record.run)
    for entry, position in replayed:
        for part in in_parts([entry]):
            # The replay goes on until it needs a fact that the record does not have.
            if record.is_whole or record.has_fact(part.event):
                index.add(part, position)
    index.end_steps()
    before, after = record.steps, index.steps
    tasks = steps = 0
    found: list[tuple[float, bool, Difference]] = []
    for task in {**before, **after}:
        was, now = before.get(task, []), list(after.get(task, ()))
        if task in unrecorded_waits:
            now.append(Step(unrecorded_waits[task], "", was[-1].position if was else 0))
        same = _common_steps(was, now, equivalence_for(record))
        steps += same
        if same == len(was) == len(now):
            tasks += 1
            continue
        one, other = _at(was, same), _at(now, same)
        ledgers = (record.ledger, ledger)
        path = next(it.tasks[task].path for it in ledgers if task in it.tasks)
        difference = Difference(path, same + 1, str(one or NOTHING), str(other or NOTHING))
        position = min(step.position for step in (one, other) if step is not None)
        # A missing step is the consequence of another difference.
        found.append((position + (other is None), other is None, difference))
    first = min(found, key=lambda it: it[:2])[2] if found else None
    return ReplayResult(
        run=record.run, tasks=tasks, steps=steps, difference=first, is_whole=record.is_whole
    )


def _common_steps(was: Sequence[Step], now: Sequence[Step], equivalence: Equivalence) -> int:
    """Return the number of equal steps at the beginning."""
    for at, (one, other) in enumerate(zip(was, now, strict=False)):
        if not equivalence.same_steps(one, other):
            return at
    return min(len(was), len(now))


def _at(steps: Sequence[Step], index: int) -> Step | None:
    return steps[index] if index < len(steps) else None
