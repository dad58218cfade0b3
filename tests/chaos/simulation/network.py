"""The network between simulated servers and their clients: ASGI, with delays and holes."""

import random
from typing import Any, Final

import httpx2
import trio
from starlette.types import ASGIApp, Message

CLIENT: Final = "client"
"""The host of clients."""
DELAYS: Final = (0.0005, 0.001, 0.005, 0.05)
TCP_SECONDS: Final = 20.0
"""How long a peer waits for a host that says nothing."""


class Network:
    """Carries requests to servers, by the names of their hosts."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.apps: dict[str, ASGIApp] = {}
        """The applications that listen, by host."""
        self._ends: dict[str, trio.Event] = {}
        self._cut: set[frozenset[str]] = set()
        self._changed = trio.Event()

    def cut(self, one: str, other: str) -> None:
        """Carry nothing between two hosts, and close no connection."""
        self._cut.add(frozenset({one, other}))

    def mend(self, one: str, other: str) -> None:
        self._cut.discard(frozenset({one, other}))
        self._changed.set()
        self._changed = trio.Event()

    async def request(self, source: str, target: str, request: httpx2.Request) -> httpx2.Response:
        """Return the answer of a server.

        Raises:
            httpx2.ConnectError: no server listens there.
            httpx2.ConnectTimeout: the way is cut.
            httpx2.ReadError: the server, or the way, went away in the midst of the request.
        """
        with trio.move_on_after(3) as connecting:
            await self._carry(source, target)
        if connecting.cancelled_caught:
            raise httpx2.ConnectTimeout("no answer")
        app = self.apps.get(target)
        if app is None:
            raise httpx2.ConnectError("refused")
        sent = await request.aread()
        answer = _Answer()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_with, self.life(target), nursery.cancel_scope)
            await app(_scope(request), answer.receiver(sent), answer.send)
            nursery.cancel_scope.cancel()
        if not answer.is_complete:
            raise httpx2.ReadError("the connection was closed")
        with trio.move_on_after(TCP_SECONDS) as waited:
            await self._carry(target, source)
        if waited.cancelled_caught:
            raise httpx2.ReadError("no answer")
        body = httpx2.ByteStream(answer.body)
        return httpx2.Response(answer.status, headers=answer.headers, stream=body, request=request)

    def life(self, host: str) -> trio.Event:
        """Return the event of the end of a host's process."""
        return self._ends.setdefault(host, trio.Event())

    def end_life(self, host: str) -> None:
        """Close the connections of a process that was killed."""
        self.apps.pop(host, None)
        self._ends.pop(host, trio.Event()).set()

    async def _end_with(self, life: trio.Event, scope: trio.CancelScope) -> None:
        await life.wait()
        scope.cancel()

    async def _carry(self, source: str, target: str) -> None:
        await trio.sleep(self._chance.choice(DELAYS))
        while frozenset({source, target}) in self._cut:
            await self._changed.wait()


class Transport(httpx2.AsyncBaseTransport):
    """The network as one host sees it."""

    def __init__(self, network: Network, source: str) -> None:
        self._network = network
        self._source = source

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._network.request(self._source, request.url.host, request)


class _Answer:
    """The answer of an application, as it comes."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.is_complete = False

    def receiver(self, body: bytes) -> Any:
        parts = [body]

        async def receive() -> Message:
            await trio.lowlevel.checkpoint()
            if parts:
                return {"type": "http.request", "body": parts.pop(), "more_body": False}
            await trio.sleep_forever()
            raise AssertionError("it is cancelled")

        return receive

    async def send(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message.get("body", b"")
            self.is_complete = not message.get("more_body", False)


def _scope(request: httpx2.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.url.path,
        "raw_path": request.url.raw_path.partition(b"?")[0],
        "query_string": request.url.query,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": ("127.0.0.1", 1),
        "server": (request.url.host, 80),
        "root_path": "",
        "state": {},
    }
