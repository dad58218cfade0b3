"""The times at which the calls of a queue would be sent first come, first served.

A policy may promise that a run takes at most some times as long as it would take in that order. The
rate of sending is the measured one, so no limit of the provider has to be known. A run may be ahead
of this order: its call comes here when as many calls of the run have been sent here as had ended in
truth when the call came.
"""

from typing import Final

import trio

from orchestrator.agents.models.call_order import Call, RunWork
from orchestrator.agents.models.keyed_heap import KeyedHeap

GAP_WEIGHT: Final = 0.05
"""How much the latest gap between two calls counts."""


class FifoRun:
    """A run, as it would pass first come, first served."""

    __slots__ = ("coming", "ended", "ends_at", "held", "sent", "sent_end_at", "widest")

    def __init__(self, now: float) -> None:
        self.ended = 0
        """Its calls that have ended in truth."""
        self.sent = 0
        """Its calls that would be sent by now, and"""
        self.sent_end_at = now
        """the time at which all of them would have ended."""
        self.coming = 0
        """Its calls that would come next."""
        self.held: KeyedHeap[FifoCall] = KeyedHeap()
        """Its calls that would come after the end of others."""
        self.ends_at = now
        """An estimate of the time at which the run would end."""
        self.widest = 0
        """The most calls of the run that waited at once."""


class FifoCall:
    """A call, as it would pass first come, first served."""

    __slots__ = ("after", "calls_after", "run", "seconds", "times", "work")

    def __init__(self, times: "FifoTimes", run: FifoRun, call: Call) -> None:
        self.times = times
        self.run = run
        self.work = call.run
        self.seconds = call.run.call_seconds
        self.after = max(0.0, call.path - self.seconds)
        """The predicted seconds of the calls that follow it one after the other, and"""
        self.calls_after = self.after / self.seconds
        """their number."""

    def end(self, seconds: float) -> None:
        """Note that it has ended in truth."""
        self.run.ended += 1
        self.seconds = seconds


class FifoTimes:
    """The calls of one queue, as they would pass first come, first served."""

    def __init__(self) -> None:
        self.gap = 0.0
        """The mean seconds between two calls that were sent while others waited."""
        self._coming: KeyedHeap[FifoCall] = KeyedHeap()
        self._free_at = 0.0
        """The time at which all calls so far would have been sent."""

    def __len__(self) -> int:
        return len(self._coming)

    def add(self, call: Call) -> None:
        """Take a call that waits, unless it has waited in another queue."""
        if call.fifo is not None:
            return
        if (run := call.run.fifo) is None:
            run = call.run.fifo = FifoRun(trio.current_time())
        call.fifo = made = FifoCall(self, run, call)
        run.held.put(made, run.ended)
        _release(run)

    def remove(self, call: Call) -> None:
        """Forget a call that was not sent."""
        if (made := call.fifo) is not None:
            call.fifo = None
            made.run.held.remove(made)
            if made.times._coming.remove(made):  # noqa: SLF001 (of the same class)
                made.run.coming -= 1

    def note_gap(self, seconds: float) -> None:
        """Learn the seconds between two calls that were sent while others waited."""
        self.gap += (seconds - self.gap) * GAP_WEIGHT

    def pass_time(self) -> list[RunWork]:
        """Send the calls that would have come by now; return the runs with a new estimate."""
        now = trio.current_time()
        changed = list[RunWork]()
        while (first := self._coming.first()) is not None and first[0] <= now:
            at, _, call = first
            run = call.run
            self._coming.remove(call)
            sent_at = max(at, self._free_at)
            self._free_at = sent_at + self.gap
            run.coming -= 1
            run.sent += 1
            run.sent_end_at = max(run.sent_end_at, sent_at + call.seconds)
            _release(run)
            if not run.coming:
                wait = max(0.0, self._free_at - now)
                run.ends_at = run.sent_end_at + call.calls_after * wait + call.after
            changed.append(call.work)
        return changed

    def expect(self, call: FifoCall) -> float:
        """Let a call come when the sent calls of its run would have ended; estimate the end."""
        at = call.run.sent_end_at
        self._coming.put(call, at)
        wait = max(0.0, self._free_at - trio.current_time())
        return at + (1 + call.calls_after) * wait + call.seconds + call.after


def _release(run: FifoRun) -> None:
    """Let the calls of a run come whose turn it is."""
    while (first := run.held.first()) is not None and first[0] <= run.sent:
        call = first[2]
        run.held.remove(call)
        ends_at = call.times.expect(call)
        run.ends_at = max(ends_at, run.ends_at) if run.coming else ends_at
        run.coming += 1
