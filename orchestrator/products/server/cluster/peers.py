"""Questions to the other servers: a list of everything in memory asks each of them."""

from collections.abc import Awaitable, Callable, Sequence

import trio

from orchestrator.agents import raising_one_error
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.cluster.proxy import Proxy


class Peers:
    """Sends the same request to all other servers."""

    def __init__(self, proxy: Proxy, addresses: Callable[[], Awaitable[Sequence[str]]]) -> None:
        """Ask the servers at the addresses that `addresses` returns."""
        self._proxy = proxy
        self._addresses = addresses

    async def ask(self, call: ApiCall) -> list[bytes]:
        """Return the answers of all other servers that can be reached to the same request."""
        await trio.lowlevel.checkpoint()
        if call.is_forwarded:
            return []
        answers: list[bytes] = []

        async def ask(address: str) -> None:
            answer = await self._proxy.fetch(call, address)
            if answer is not None:
                answers.append(answer)

        with raising_one_error():
            async with trio.open_nursery() as nursery:
                for address in await self._addresses():
                    nursery.start_soon(ask, address)
        return answers
