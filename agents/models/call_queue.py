"""The queue of model calls for one provider, in the order of a policy.

Owners share the provider, and the keys of an owner share its part. A run of a key is chosen by the
policy, and then one of its calls.
Each step takes the logarithm of the waiting calls. A cancelled wait leaves nothing behind.
"""

import math
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from orchestrator.agents.models.call_order import Call, Policy, RunWork, path_step
from orchestrator.agents.models.call_shares import Member, Shares
from orchestrator.agents.models.fifo_times import FifoTimes
from orchestrator.agents.models.keyed_heap import KeyedHeap

PLACED_SECONDS: Final = 1.0
"""How long the places in displays may be old."""
WATCHED_CALLS: Final = 1_000
"""After a call that had to wait, the policy learns from this number of calls, whether they wait or
not. Before that it has nothing to order, and no call is described to it."""
SHORT_SHARE: Final = 0.1
"""A run with less than this share of the work of an overdue run passes it."""
OVERDUE_EVERY: Final = 4
"""Of these calls of a key at least one is of an overdue run, if there is one."""
T = TypeVar("T")


class _Waiter:
    """A call that waits."""

    __slots__ = ("call", "number", "run", "wake", "wakes_at")

    def __init__(self, call: Call, number: int, run: "_WaitingRun") -> None:
        self.call = call
        self.number = number
        self.run = run
        self.wake = trio.Event()
        self.wakes_at = math.inf
        """When it looks again whether it may begin."""


class _Owner(Member):
    """The keys of one owner with waiting runs."""

    __slots__ = ("keys",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.keys: Shares[_Key] = Shares(lambda key: _Key(key, self))


class _Key(Member):
    """The waiting runs of one key."""

    __slots__ = ("overdue", "owner", "runs", "sent")

    def __init__(self, name: str, owner: _Owner) -> None:
        super().__init__(name)
        self.owner = owner
        self.runs: KeyedHeap[_WaitingRun] = KeyedHeap()
        self.overdue: KeyedHeap[_WaitingRun] = KeyedHeap()
        """The same runs, by the time at which each becomes overdue."""
        self.sent = 0


class _WaitingRun:
    """A run with calls that wait."""

    __slots__ = ("calls", "key", "oldest", "run")

    def __init__(self, run: RunWork, key: _Key) -> None:
        self.run = run
        self.key = key
        self.calls: KeyedHeap[_Waiter] = KeyedHeap()
        self.oldest: KeyedHeap[_Waiter] = KeyedHeap()


class CallQueue:
    """Calls that wait until they are first, and until the provider has a place for them."""

    def __init__(self, policy: Policy, ready_at: Callable[[Call], float]) -> None:
        """Order calls by a policy; `ready_at` returns the time at which a call may begin."""
        self.policy = policy
        self._ready_at = ready_at
        self._owners: Shares[_Owner] = Shares(_Owner)
        self._runs: dict[RunWork, _WaitingRun] = {}
        self.waiters: Final[dict[Call, _Waiter]] = {}
        self._number = 0
        self.watched = 0
        """How many of the next calls the policy learns from."""
        self._fifo = FifoTimes() if policy.stretch(1) < math.inf else None
        self._last_sent = math.inf
        self._places: dict[Call, int] = {}
        self._placed_at = -math.inf

    def __len__(self) -> int:
        return len(self.waiters)

    def must_wait(self, call: Call) -> bool:
        """Return whether a call would have to wait now."""
        return bool(self.waiters) or self._ready_at(call) > trio.current_time()

    def watches(self, call: Call) -> bool:
        """Count a new call, and return whether the policy has to know about it."""
        if self.must_wait(call):
            self.watched = WATCHED_CALLS
        elif self.watched:
            self.watched -= 1
        else:
            return False
        return True

    async def wait_turn(
        self, call: Call, begin: Callable[[], T], check: Callable[[], None] | None = None
    ) -> T:
        """Wait until a call may begin, and begin it in the same step.

        `check` raises if the first call should not wait any longer.
        """
        waiter = self._add(call)
        try:
            while True:
                waiter.wakes_at = math.inf
                if self._first() is waiter:
                    if check is not None:
                        check()
                    waiter.wakes_at = self._ready_at(call)
                    if waiter.wakes_at <= trio.current_time():
                        break
                else:
                    # Another call may have become first by the time that has passed.
                    self.changed()
                waiter.wake = trio.Event()
                with trio.move_on_at(waiter.wakes_at):
                    await waiter.wake.wait()
                await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            self._remove(waiter)
            if self._fifo is not None:
                self._fifo.remove(call)
            self.changed()
            raise
        begun = begin()
        self._count_sent(waiter)
        self._remove(waiter)
        self.changed()
        # It has begun: a cancellation from now on is for the call itself.
        await trio.lowlevel.cancel_shielded_checkpoint()
        return begun

    def changed(self, run: RunWork | None = None) -> None:
        """Let the first call look again: the limits, or the work of a run, have changed."""
        if run is not None and (waiting := self._runs.get(run)) is not None:
            self._place(waiting)
        first = self._first()
        # A call that will look at the right time sleeps on.
        if first is not None and self._ready_at(first.call) != first.wakes_at:
            first.wake.set()

    def place_text(self, call: Call) -> str:
        """Return the place of a waiting call, for people."""
        now = trio.current_time()
        # All places at once, and not for every line of a display.
        if now >= self._placed_at + PLACED_SECONDS or call not in self._places:
            ordered = sorted(self.waiters.values(), key=self._display_key)
            self._places = {it.call: place for place, it in enumerate(ordered, 1)}
            self._placed_at = now
        place = min(self._places[call], len(self.waiters))
        text = f"{_ordinal(place)} of {len(self.waiters)}"
        first = self._first()
        if place == 1 or first is None:
            return text
        is_own = first.run is self.waiters[call].run
        return f"{text}, behind {'calls of its run' if is_own else self.policy.behind}"

    def _display_key(self, waiter: _Waiter) -> tuple[object, ...]:
        return (self._run_key(waiter.run), self._call_key(waiter))

    def _add(self, call: Call) -> _Waiter:
        self._number += 1
        run = call.run
        if (waiting := self._runs.get(run)) is None:
            waiting = self._runs[run] = _WaitingRun(run, self._key_of(run))
        waiter = self.waiters[call] = _Waiter(call, self._number, waiting)
        call.waits_in = self
        waiting.calls.put(waiter, self._call_key(waiter))
        waiting.oldest.put(waiter, waiter.number)
        if self._fifo is not None:
            self._fifo.add(call)
            self._pass_time(self._fifo)
        self._place(waiting)
        return waiter

    def _key_of(self, run: RunWork) -> _Key:
        """Return the key of a run, which shares the provider from now on."""
        shares = self.policy.shares_owners
        owner = self._owners.enter(run.owner if shares else "")
        return owner.keys.enter(run.key if shares else "")

    def _remove(self, waiter: _Waiter) -> None:
        waiting = waiter.run
        key = waiting.key
        del self.waiters[waiter.call]
        self._places.pop(waiter.call, None)
        waiter.call.waits_in = None
        waiting.calls.remove(waiter)
        waiting.oldest.remove(waiter)
        if len(waiting.calls):
            self._place(waiting)
            return
        del self._runs[waiting.run]
        key.runs.remove(waiting)
        key.overdue.remove(waiting)
        if not len(key.runs):
            owner = key.owner
            owner.keys.leave(key)
            if not len(owner.keys.waiting):
                self._owners.leave(owner)

    def _place(self, waiting: _WaitingRun) -> None:
        waiting.key.runs.put(waiting, self._run_key(waiting))
        if self._fifo is not None:
            waiting.key.overdue.put(waiting, self._overdue_at(waiting, self._fifo))

    def _overdue_at(self, waiting: _WaitingRun, fifo: FifoTimes) -> float:
        """Return the latest time at which a run must be the first one to end in time."""
        run, first = waiting.run, waiting.calls.first()
        assert first is not None, "a waiting run has a call"
        assert run.fifo is not None, "the times know it"
        waits = len(waiting.calls)
        run.fifo.widest = widest = max(run.fifo.widest, waits)
        ends_by = run.begun + self.policy.stretch(widest) * (run.fifo.ends_at - run.begun)
        return ends_by - first[2].call.path - waits * fifo.gap

    def _pass_time(self, fifo: FifoTimes) -> None:
        for run in fifo.pass_time():
            if (waiting := self._runs.get(run)) is not None:
                self._place(waiting)

    def _run_key(self, waiting: _WaitingRun) -> tuple[bool, float, int]:
        number = _oldest(waiting).number
        order = self.policy.order(waiting.run, number)
        return (waiting.run.background and self.policy.shares_owners, order, number)

    def _call_key(self, waiter: _Waiter) -> tuple[int, str, float, int]:
        if not self.policy.prefers_path:
            return (0, "", 0.0, waiter.number)
        call = waiter.call
        return (path_step(call), call.prefix, call.left, waiter.number)

    def _first(self) -> _Waiter | None:
        """Return the call that is sent next."""
        if (owner := self._owners.first()) is None:
            return None
        key = owner.keys.first()
        assert key is not None, "an owner who waits has a key"
        first, overdue = key.runs.first(), key.overdue.first()
        assert first is not None, "a key that waits has a run"
        run = first[2]
        if overdue is not None and overdue[0] <= trio.current_time():
            is_due = key.sent % OVERDUE_EVERY == OVERDUE_EVERY - 1
            if is_due or not _may_pass(run.run, overdue[2].run):
                run = overdue[2]
        call = run.calls.first()
        assert call is not None, "a waiting run has a call"
        return call[2]

    def _count_sent(self, waiter: _Waiter) -> None:
        key, run, now = waiter.run.key, waiter.run.run, trio.current_time()
        key.sent += 1
        if self._fifo is not None:
            if now >= self._last_sent:
                self._fifo.note_gap(now - self._last_sent)
            self._pass_time(self._fifo)
        self._last_sent = now if len(self.waiters) > 1 else math.inf
        seconds = run.call_seconds / run.share
        key.owner.keys.serve(key, seconds)
        self._owners.serve(key.owner, seconds)


def _may_pass(run: RunWork, overdue: RunWork) -> bool:
    """Return whether a run is sent before one that is overdue: it is short, or has a caller."""
    if run.background != overdue.background:
        return overdue.background
    return run.remaining <= SHORT_SHARE * overdue.remaining


def _oldest(waiting: _WaitingRun) -> _Waiter:
    oldest = waiting.oldest.first()
    assert oldest is not None, "a waiting run has a call"
    return oldest[2]


def _ordinal(number: int) -> str:
    if number % 100 in {11, 12, 13}:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
