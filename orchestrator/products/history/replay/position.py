"""The position of a replay in its record, so that steps repeat at their recorded facts."""

import math

import trio


class ReplayPosition:
    """The sequence number that a replay has reached, and the steps that wait for a later one."""

    def __init__(self) -> None:
        self.seq: float = 0
        self._waiting: dict[float, trio.Event] = {}

    async def wait_reached(self, seq: float) -> None:
        """Wait until the replay has reached this fact."""
        await trio.lowlevel.checkpoint()
        if seq > self.seq:
            await self._waiting.setdefault(seq, trio.Event()).wait()

    def advance_to(self, seq: int) -> None:
        self.seq = seq
        if (waiting := self._waiting.pop(seq, None)) is not None:
            waiting.set()

    def finish(self) -> None:
        """Release the steps that wait for facts after the end of the record."""
        self.seq = math.inf
        for waiting in self._waiting.values():
            waiting.set()
