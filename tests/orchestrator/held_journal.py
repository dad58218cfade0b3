"""A journal whose commits a test holds back."""

import trio

from orchestrator import MemoryJournal


class HeldJournal(MemoryJournal):
    """Appends as always; from `hold` to `release` no entry becomes durable."""

    def __init__(self) -> None:
        super().__init__()
        self._durable: int | None = None
        self._released = trio.Event()

    def hold(self) -> None:
        self._durable = len(self.entries)

    def release(self) -> None:
        self._durable = None
        self._released.set()

    async def wait_durable(self, seq: int) -> None:
        if self._durable is not None and seq > self._durable:
            await self._released.wait()
        await trio.lowlevel.checkpoint()
