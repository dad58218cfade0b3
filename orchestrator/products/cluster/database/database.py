"""One connection to a database for all statements of a process that can be repeated.

A thread runs one statement at a time. During an outage callers wait: the statement is repeated
when the database is back. So it must be harmless if it is executed twice.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from orchestrator.ports.errors import JournalError
from orchestrator.products.cluster.database.connection import (
    UnreachableError,
    connect,
    problem_of,
    shown_address,
)
from orchestrator.products.cluster.database.statements import CANCEL_SECONDS, run_statements, shut

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

ResultT = TypeVar("ResultT")

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
ANSWER_SECONDS: Final = 5.0
"""How long a client may wait for the database."""


class Database:
    """A connection that is opened again after an outage. `open_database` makes one."""

    def __init__(self, url: str, application: str) -> None:
        self._url = url
        self._application = application
        self._turn = trio.Lock()
        # Of its own: a statement must not wait for the threads of tools.
        self._thread = trio.CapacityLimiter(1)
        self._connection: Connection | None = None
        self._is_closed = False
        self._running = trio.CancelScope()
        """Of the statements under way: closing does not wait for a database that is away."""
        self.connected_at = trio.current_time()
        """When the present connection was opened, or the last one was lost, by trio's clock."""
        self.answered_at = trio.current_time()
        """When the last statement began that the database has answered."""

    @property
    def address(self) -> str:
        """Where it is, without who may enter."""
        return shown_address(self._url)

    async def run(self, work: "Callable[[Connection], ResultT]") -> ResultT:
        """Run statements in a thread, again after outages; raise `JournalError` if refused."""
        async with self._turn:
            pause = FIRST_PAUSE
            with trio.CancelScope() as self._running:
                await trio.lowlevel.checkpoint()
                while not self._is_closed:
                    try:
                        return await self._try(work)
                    except UnreachableError as exc:
                        if exc.lasting:
                            raise
                    await trio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
        raise UnreachableError(self._url, "its connection is closed")

    async def ask(self, work: "Callable[[Connection], ResultT]") -> ResultT:
        """Run statements as `run` does, for a client: the database has a few seconds to answer.

        Raises:
            JournalAwayError: it has not answered.
            JournalError: the database refuses the statement, or us.
        """
        # A statement that is cancelled goes on for a moment.
        with trio.move_on_after(ANSWER_SECONDS - CANCEL_SECONDS):
            return await self.run(work)
        raise UnreachableError(self._url, f"it has not answered for {ANSWER_SECONDS:.0f} seconds")

    async def connect(self) -> None:
        """Open the connection now; raise `JournalError` if it cannot be opened."""
        async with self._turn:
            await self._connected()

    async def _connected(self) -> "Connection":
        if self._connection is None:
            self._connection = await self._open()
            self.connected_at = trio.current_time()
        else:
            await trio.lowlevel.checkpoint()
        return self._connection

    async def _open(self) -> "Connection":
        """Open a connection; a caller that is cancelled does not wait for it."""
        opened: list[Connection] = []
        is_abandoned = False

        def open_() -> "Connection":
            opened.append(connect(self._url, application=self._application))
            if is_abandoned:
                opened[0].close()
            return opened[0]

        try:
            return await trio.to_thread.run_sync(
                open_, limiter=self._thread, abandon_on_cancel=True
            )
        except trio.Cancelled:
            is_abandoned = True
            for it in opened:
                it.close()
            raise

    async def _try(self, work: "Callable[[Connection], ResultT]") -> ResultT:
        import psycopg

        connection = await self._connected()
        begun = trio.current_time()
        try:
            result = await self._in_thread(connection, work)
        except psycopg.Error as exc:
            problem = problem_of(self._url, exc)
            if connection.closed:
                self._connection = None
                self.connected_at = trio.current_time()
                raise UnreachableError(self._url, problem) from None
            if exc.sqlstate in {"40001", "40P01"}:  # others were in the way
                raise UnreachableError(self._url, problem) from None
            raise JournalError(self.address, problem) from exc
        self.answered_at = begun
        return result

    async def _in_thread(
        self, connection: "Connection", work: "Callable[[Connection], ResultT]"
    ) -> ResultT:
        return await run_statements(
            lambda: work(connection), break_off=lambda: shut(connection), limiter=self._thread
        )

    async def aclose(self) -> None:
        """Close the connection: after the statement under way, if that ends soon."""
        self._is_closed = True
        with trio.move_on_after(CANCEL_SECONDS, shield=True) as waited:
            await self._close()
        if waited.cancelled_caught:
            # What is under way ends within a moment: by its answer, or without one.
            self._running.cancel(reason="the connection is closed")
            with trio.CancelScope(shield=True):
                await self._close()

    async def _close(self) -> None:
        async with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


@asynccontextmanager
async def open_database(url: str, *, application: str) -> AsyncGenerator[Database]:
    """Open a connection for statements that can be repeated; raise `JournalError` without one."""
    database = Database(url, application)
    await database.connect()
    try:
        yield database
    finally:
        await database.aclose()
