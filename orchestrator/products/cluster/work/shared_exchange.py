"""One exchange for all journals that a process writes, opened when the first of them lends."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from orchestrator.agents import raising_one_error
from orchestrator.products.cluster.work.exchange import Exchange


class SharedExchange:
    """An exchange that many use, and one task holds open."""

    def __init__(self, open_exchange: Callable[[], AbstractAsyncContextManager[Exchange]]) -> None:
        """Share an exchange, which connects when the first user is there."""
        self._open_exchange = open_exchange
        # Its users are cancelled first, and need it until they have left.
        self._holding = trio.CancelScope(shield=True)
        self._needed = trio.Event()
        self._opened = trio.Event()
        self._exchange: Exchange | None = None

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Hold it open for its users, who leave before the block ends."""
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hold)
                try:
                    yield
                finally:
                    self._holding.cancel(reason="its users have left")

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Exchange]:
        """Use it, as long as the block lasts."""
        self._needed.set()
        await self._opened.wait()
        assert self._exchange is not None, "it is opened"
        yield self._exchange

    async def _hold(self) -> None:
        await trio.lowlevel.checkpoint()
        with self._holding:
            await self._needed.wait()
            async with self._open_exchange() as self._exchange:
                self._opened.set()
                await trio.sleep_forever()
