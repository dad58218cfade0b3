"""A TCP proxy in front of Postgres that swallows the bytes of chosen connections.

It tells connections by their application names. It connects to the socket of Postgres, so the
superuser needs no password.
"""

import re
from pathlib import Path
from typing import Final

import trio

WRITERS: Final = "orchestrator journal"
"""The application name of connections that write journals."""
_NAME: Final = re.compile(rb"application_name\0([^\0]*)\0")


class DatabaseProxy:
    """Carries bytes, unless it is told to hold them back. `serve_database_proxy` makes one."""

    def __init__(self, socket: Path, port: int) -> None:
        self._socket = socket
        self.port = port
        self._held: set[str] | None = set()
        self._changed = trio.Event()

    def hold_all(self) -> None:
        """Carry nothing in either direction; no connection is closed."""
        self._hold(None)

    def hold_only(self, *applications: str) -> None:
        """Carry the bytes of all connections but of these applications."""
        self._hold(set(applications))

    def open(self) -> None:
        """Carry the bytes that were held back, and all that follow."""
        self._hold(set())

    def _hold(self, held: set[str] | None) -> None:
        self._held = held
        self._changed.set()
        self._changed = trio.Event()

    async def serve_one(self, client: trio.SocketStream) -> None:
        names: list[str] = []
        async with client, await trio.open_unix_socket(self._socket) as server:
            await self._carry_both(client, server, names)

    async def _carry_both(
        self, client: trio.SocketStream, server: trio.SocketStream, names: list[str]
    ) -> None:
        async with trio.open_nursery() as both:
            both.start_soon(self._carry, client, server, names, both.cancel_scope)
            both.start_soon(self._carry, server, client, names, both.cancel_scope)

    async def _carry(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        names: list[str],
        scope: trio.CancelScope,
    ) -> None:
        try:
            async for data in source:
                if not names and (found := _NAME.search(data)) is not None:
                    names.append(found[1].decode())
                await self._wait_carried(names)
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        # The end of a connection is not seen while its bytes are held back.
        await self._wait_carried(names)
        scope.cancel()

    async def _wait_carried(self, names: list[str]) -> None:
        while self._held is None or not self._held.isdisjoint(names):
            await self._changed.wait()


async def serve_database_proxy(
    folder: Path, task_status: trio.TaskStatus[DatabaseProxy] = trio.TASK_STATUS_IGNORED
) -> None:
    """Listen at a free port for the Postgres whose socket is in a folder, until cancelled."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    proxy = DatabaseProxy(folder / ".s.PGSQL.5432", port)
    task_status.started(proxy)
    await trio.serve_listeners(proxy.serve_one, listeners)
