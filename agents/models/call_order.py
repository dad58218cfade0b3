"""The order of model calls that wait for one provider: calls, the work of their runs, policies."""

import enum
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.nearest_name import did_you_mean

if TYPE_CHECKING:
    from orchestrator.agents.models.fifo_times import FifoCall, FifoRun

CALL_SECONDS: Final = 2.5
"""The seconds of a call whose kind is unknown. Only ratios of predictions matter."""
STRETCH: Final = 8.0
"""How many times as long as first come, first served a run may take, and"""
WIDE_STRETCH: Final = 1.6
"""the same of a wide run: its work is known, and need not be guessed."""
WIDE: Final = 4
"""The calls of a wide run that wait, or have waited, at once."""
STEPS: Final = 4
"""Paths count as equally long within a fourth of a doubling: predictions are not more exact."""


class RunWork:
    """The model calls of one run: the seconds it has used, and a prediction of the rest."""

    __slots__ = (
        "background", "begun", "call_seconds", "calls", "consumed", "fifo", "id", "in_flight",
        "key", "open", "owner", "share", "to_come", "unseen",
    )  # fmt: skip

    def __init__(
        self,
        id: str = "",  # noqa: A002 (the word of the domain)
        owner: str = "",
        begun: float = 0.0,
        *,
        background: bool = False,
    ) -> None:
        self.id = id
        self.owner = owner
        self.key = ""
        """The key of its caller: the keys of an owner divide the owner's part."""
        self.share = 1.0
        """The weight of its calls: a call with a share of 3 counts a third."""
        self.begun = begun
        """The time of its first call."""
        self.background = background
        """It has no caller who waits: a job of the clock, or a detached task."""
        self.consumed = 0.0
        """The seconds of its ended calls."""
        self.calls = 0
        """Its ended calls."""
        self.open = 0
        """Its calls that wait or are under way."""
        self.in_flight = 0
        self.to_come = 0
        """Its requested tasks that have not made a call."""
        self.call_seconds = CALL_SECONDS
        """The mean seconds of its calls."""
        self.unseen: float | None = None
        """The predicted seconds of calls that no open task has asked for; None without history."""
        self.fifo: FifoRun | None = None
        """The run, as it would pass first come, first served."""

    @property
    def remaining(self) -> float:
        """The predicted seconds of all calls that it has not ended.

        Without history a run that has used much is expected to use more: half of it again.
        """
        unseen = self.consumed / 2 if self.unseen is None else self.unseen
        return (self.open + self.to_come) * self.call_seconds + unseen


class AllowedUnit(enum.StrEnum):
    """The things that a provider counts."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"


class Allowance(msgspec.Struct, frozen=True, gc=False):
    """The requests or tokens that a provider allows, as it said with an answer."""

    unit: AllowedUnit
    limit: int
    remaining: int
    per_second: float
    """How fast the remaining amount grows back to the limit."""


class WaitingCalls(Protocol):
    """A queue, as a display sees it."""

    def place_text(self, call: "Call") -> str:
        """Return the place of a waiting call: `3rd of 40, behind shorter runs`."""
        ...


class Call:
    """One model call that waits for its provider, or is under way."""

    __slots__ = (
        "_is_open",
        "_sent_at",
        "caller",
        "fifo",
        "left",
        "note_allowance",
        "path",
        "prefix",
        "provider",
        "run",
        "tokens",
        "waits_in",
    )

    def __init__(
        self, run: RunWork, *, path: float = 0.0, left: float = 0.0, prefix: str = ""
    ) -> None:
        """Count a call as open."""
        self.run = run
        run.open += 1
        self.path = path
        """The predicted seconds from here to the end of the run, along the tasks that wait for this
        one: its parent, and the tasks that need it."""
        self.left = left
        """The predicted seconds of its own task."""
        self.prefix = prefix
        """Calls with the same prefix share a provider's cache, and stand next to each other."""
        self.tokens = 0
        """About the tokens that it will use."""
        self.provider = ""
        """The name of the provider, for displays."""
        self.caller: Caller | None = None
        """Learns its seconds, if its task has described it."""
        self.waits_in: WaitingCalls | None = None
        """Its queue, while it waits."""
        self.note_allowance: Callable[[Allowance], None] | None = None
        """Tells the pace of the provider how much it still allows."""
        self.fifo: FifoCall | None = None
        """The call, as it would pass first come, first served."""
        self._sent_at: float | None = None
        self._is_open = True

    @property
    def wait_text(self) -> str:
        """Its place in a queue, for people; empty if it does not wait."""
        if self.waits_in is None:
            return ""
        return f"waiting for {self.provider or 'its model'}: {self.waits_in.place_text(self)}"

    def send(self, at: float) -> None:
        """Count it as sent; of several queues the last one counts."""
        if self._sent_at is None:
            self.run.in_flight += 1
        self._sent_at = at

    def end(self, at: float) -> float | None:
        """Count it as ended, and return its seconds at the provider; None if it was counted before.

        A call that was not sent has used no time.
        """
        if not self._is_open:
            return None
        self._is_open = False
        self.run.open -= 1
        if self._sent_at is None:
            return 0.0
        seconds = at - self._sent_at
        self.run.in_flight -= 1
        self.run.calls += 1
        self.run.consumed += seconds
        if self.fifo is not None:
            self.fifo.end(seconds)
        return seconds


class Caller(Protocol):
    """Describes the model calls of a task to a queue; without one each call is a run of its own."""

    def queued_call(self, size: int) -> Call:
        """Return the next call of the task, which counts as open; `size` is its characters."""
        ...

    def ended_call(self, size: int, seconds: float) -> None:
        """Learn the seconds of a call of this size at its provider."""
        ...

    def has_siblings(self) -> bool:
        """Return whether other tasks begin with the same prefix; the same for all its calls."""
        ...


class Policy(Protocol):
    """Decides which of the waiting calls is sent next."""

    @property
    def name(self) -> str:
        """The name in settings and displays."""
        ...

    @property
    def behind(self) -> str:
        """The calls before a waiting one, for displays: `shorter runs`."""
        ...

    @property
    def shares_owners(self) -> bool:
        """Owners and keys get shares of the provider, and callers precede the background."""
        ...

    @property
    def prefers_path(self) -> bool:
        """Within a run the call with the longest path is first; otherwise the oldest."""
        ...

    def stretch(self, widest: int) -> float:
        """Return how many times as long as first come, first served a run may take.

        A run that must be first to keep to it is first. `widest` is the most calls of the run that
        waited at once. Infinite, for one call: no promise for any run.
        """
        ...

    def order(self, run: RunWork, oldest: int) -> float:
        """Return the place of a run among all runs: the least is first.

        `oldest` is the number of its oldest waiting call, in the order of arrival.
        """
        ...


class _Fifo:
    name: Final = "fifo"
    behind: Final = "earlier calls"
    shares_owners: Final = False
    prefers_path: Final = False

    def stretch(self, widest: int) -> float:
        del widest
        return math.inf

    def order(self, run: RunWork, oldest: int) -> float:
        del run
        return oldest


class _Fair:
    """The run with the fewest calls under way is first."""

    name: Final = "fair"
    behind: Final = "runs with fewer calls"
    shares_owners: Final = True
    prefers_path: Final = False

    def stretch(self, widest: int) -> float:
        del widest
        return math.inf

    def order(self, run: RunWork, oldest: int) -> float:
        del oldest
        return run.in_flight


class _Shortest:
    """The run with the least predicted work is first, unless it would keep another too long."""

    name: Final = "shortest"
    behind: Final = "shorter runs"
    shares_owners: Final = True
    prefers_path: Final = True

    def stretch(self, widest: int) -> float:
        return STRETCH if widest < WIDE else WIDE_STRETCH

    def order(self, run: RunWork, oldest: int) -> float:
        del oldest
        return run.remaining


FIFO: Final[Policy] = _Fifo()
SHORTEST: Final[Policy] = _Shortest()
POLICIES: Final[Mapping[str, Policy]] = {it.name: it for it in (SHORTEST, _Fair(), FIFO)}


def policy_named(policy: str | Policy) -> Policy:
    """Return a policy by its name; raise `DefinitionError` for an unknown one."""
    if not isinstance(policy, str):
        return policy
    if policy not in POLICIES:
        raise DefinitionError(
            f"there is no policy {policy!r} for model calls; {did_you_mean(policy, POLICIES)}"
        )
    return POLICIES[policy]


def path_step(call: Call) -> int:
    """Return the place of a call by its path: the longest path has the least number."""
    return -round(math.log2(1 + call.path) * STEPS)
