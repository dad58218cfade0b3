"""A TCP proxy in front of Postgres that can swallow everything for a while."""

import trio


class Proxy:
    """Carries bytes, unless it is a black hole. `serve_proxy` makes one."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self._open = trio.Event()
        self._open.set()
        self._streams: set[trio.SocketStream] = set()

    def close_eyes(self) -> None:
        """Carry nothing in either direction; no socket is closed."""
        self._open = trio.Event()

    def open_eyes(self) -> None:
        """Carry what was held back, and all that follows."""
        self._open.set()

    async def reset(self) -> None:
        """Break all connections off: what was held back is lost."""
        await trio.lowlevel.checkpoint()
        for stream in list(self._streams):
            await trio.aclose_forcefully(stream)
        self._open.set()

    async def serve_one(self, client: trio.SocketStream) -> None:
        try:
            server = await trio.open_tcp_stream("127.0.0.1", self._target)
        except OSError:
            await trio.aclose_forcefully(client)
            return
        self._streams |= {client, server}
        async with client, server, trio.open_nursery() as both:
            both.start_soon(self._carry, client, server, both.cancel_scope)
            both.start_soon(self._carry, server, client, both.cancel_scope)
        self._streams -= {client, server}

    async def _carry(
        self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        try:
            async for data in source:
                await self._open.wait()
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        # A peer that hangs up during the hole is not seen to do so.
        await self._open.wait()
        scope.cancel()


async def serve_proxy(
    port: int, task_status: trio.TaskStatus[Proxy] = trio.TASK_STATUS_IGNORED
) -> None:
    """Listen at a free port, and carry all to another one, until cancelled."""
    proxy = Proxy(port)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    proxy.port = listeners[0].socket.getsockname()[1]
    task_status.started(proxy)
    await trio.serve_listeners(proxy.serve_one, listeners)
