"""Wakes tasks when another process notifies a channel of Postgres.

One connection listens for the whole process. A wake-up says only that it is worth a look; it may
be lost, so each task that waits for one looks now and then without it.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import trio

from orchestrator.agents import raising_one_error
from orchestrator.products.cluster.database.connection import UnreachableError, connect
from orchestrator.products.cluster.database.database import FIRST_PAUSE, LONGEST_PAUSE
from orchestrator.products.cluster.database.statements import run_statements, shut

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

POLL_SECONDS: Final = 0.5
"""How often a task that expects something looks without a wake-up."""


def channel(kind: str, name: str) -> str:
    """Return the channel of a thing; names of channels are short, those of things are not."""
    digest = blake2b(f"{kind}:{name}".encode(), digest_size=16).hexdigest()
    return f"orchestrator_{digest}"


class Bell:
    """Wakes one task: it rings once for all rings since the task last waited."""

    def __init__(self) -> None:
        self._rung = trio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until it rings, at most so long, and return whether it rang."""
        with trio.move_on_after(seconds):
            await self._rung.wait()
        await trio.lowlevel.checkpoint_if_cancelled()
        rung = self._rung.is_set()
        if rung:
            self._rung = trio.Event()
        return rung


class Wakeups:
    """The channels that this process listens to. `open_wakeups` makes one."""

    def __init__(self, url: str, application: str) -> None:
        self._url = url
        self._application = application
        self._bells: dict[str, list[Bell]] = defaultdict(list)
        self._changed = trio.Event()
        self._heard: list[str] = []

    @contextmanager
    def bell(self, channel: str) -> Generator[Bell]:
        """Return a bell that rings with a channel, and once when the channel is listened to."""
        bell = Bell()
        self._bells[channel].append(bell)
        self._changed.set()
        try:
            yield bell
        finally:
            self._bells[channel].remove(bell)
            if not self._bells[channel]:
                del self._bells[channel]
            self._changed.set()

    async def listen_forever(self, connection: "Connection") -> None:
        """Ring bells until cancelled, over this connection and those that follow it."""
        try:
            while True:
                try:
                    await self._listen(connection)
                except _BrokenError:
                    connection.close()
                    connection = await self._open_again()
        finally:
            connection.close()

    async def open(self) -> "Connection":
        """Open a connection that listens to nothing yet."""
        connection = await trio.to_thread.run_sync(
            lambda: connect(self._url, application=self._application)
        )
        # What arrives while a statement is executed, in its thread.
        connection.add_notify_handler(lambda it: self._heard.append(it.channel))
        return connection

    async def _open_again(self) -> "Connection":
        pause = FIRST_PAUSE
        while True:
            try:
                return await self.open()
            except UnreachableError:
                # A lasting refusal is said by the connection for statements.
                await trio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _listen(self, connection: "Connection") -> None:
        """Listen until the connection breaks."""
        listened: set[str] = set()
        while True:
            self._changed = trio.Event()
            wanted = set(self._bells)
            if wanted != listened:
                await self._subscribe(connection, listened, wanted)
                self._ring(*(wanted - listened))
                listened = wanted
            self._ring(*self._heard)
            self._heard.clear()
            await _wait_readable_or(connection, self._changed)
            self._consume(connection)

    async def _subscribe(self, connection: "Connection", old: set[str], new: set[str]) -> None:
        from psycopg import Error, sql

        statements = [
            *(sql.SQL("listen {}").format(sql.Identifier(it)) for it in new - old),
            *(sql.SQL("unlisten {}").format(sql.Identifier(it)) for it in old - new),
        ]
        try:
            await run_statements(
                lambda: connection.execute(sql.SQL("; ").join(statements)),
                break_off=lambda: shut(connection),
            )
        except Error as exc:
            raise _BrokenError from exc

    def _consume(self, connection: "Connection") -> None:
        from psycopg import Error

        try:
            connection.pgconn.consume_input()
            while (it := connection.pgconn.notifies()) is not None:
                self._heard.append(it.relname.decode())
        except Error as exc:
            raise _BrokenError from exc

    def _ring(self, *channels: str) -> None:
        for it in set(channels):
            for bell in self._bells.get(it, ()):
                bell.ring()


class _BrokenError(Exception):
    """The connection that listens is gone."""


async def _wait_readable_or(connection: "Connection", changed: trio.Event) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def wait_changed() -> None:
            await changed.wait()
            nursery.cancel_scope.cancel()

        await trio.lowlevel.wait_readable(connection.fileno())
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_wakeups(url: str, *, application: str) -> AsyncGenerator[Wakeups]:
    """Listen on a connection that is opened again after outages, or raise `JournalError`."""
    wakeups = Wakeups(url, application)
    connection = await wakeups.open()
    with raising_one_error():
        # This nursery owns the task that listens.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wakeups.listen_forever, connection)
            yield wakeups
            nursery.cancel_scope.cancel()
