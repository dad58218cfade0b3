"""The connection by which one process writes a journal, as long as its epoch is the last one.

Every change is conditional on the epoch and has a number, in the same SQL. So what another process
has taken over is not written any more; and after an outage the number proves whether the change
that was under way has happened. An outage is waited through, for as long as it takes.
"""

import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar

import trio

from orchestrator.errors import JournalError
from orchestrator.journal.postgres.lease import Lease, in_use
from orchestrator.postgres.address import DatabaseAddress
from orchestrator.postgres.connection import UnreachableError, connect, problem_of

if TYPE_CHECKING:
    import psycopg

    from orchestrator.postgres.connection import Connection

ResultT = TypeVar("ResultT")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
FENCE: Final[LiteralString] = """
WITH mine AS (
    UPDATE orchestrator.journals SET commits = commits + 1,
        until = clock_timestamp() + make_interval(secs => %s::float8)"""
FENCED: Final[LiteralString] = """
    WHERE journal = %s AND epoch = %s AND commits = %s RETURNING journal
)"""
IS_MINE: Final[LiteralString] = "SELECT count(*) FROM mine"
RENEW: Final[LiteralString] = FENCE + FENCED + IS_MINE
OUTAGES: Final = frozenset(
    {
        "57P01",  # an administrator ends the connection, or the server stops
        "57P02",  # the server crashed
        "57P03",  # it starts
        "57P05",  # idle for too long
        "25P03",  # idle in a transaction for too long: this process stood still
        "25006",  # it is a standby now: the one that takes over is elsewhere
        "40001",  # others were in the way
        "40P01",
    }
)
"""The states of SQL after which the same is tried again, with a new connection."""

log = logging.getLogger("orchestrator.journal")


class _HappenedError(Exception):
    """The change whose answer was lost has happened."""

    def __init__(self, result: int) -> None:
        super().__init__(result)
        self.result = result


class FencedConnection:
    """Makes changes in a thread of trio, one at a time."""

    def __init__(
        self,
        address: DatabaseAddress,
        where: str,
        connection: "Connection",
        lease: Lease,
    ) -> None:
        self._address = address
        self._where = where
        self._connection = connection
        self.lease = lease
        self._commits = lease.commits
        self._is_unproved = False
        """The answer to the last change was lost: its number says whether it has happened."""

    def execute(
        self, statement: LiteralString, changed: Sequence[str], values: Sequence[Any]
    ) -> None:
        """Execute one statement that begins with the fence.

        Args:
            statement: `FENCE`, what else changes in the row of the journal, `FENCED`, and more.
            changed: the values of what else changes in that row.
            values: those of the rest of it.
        """
        lease = self.lease

        def attempt(connection: "Connection") -> int:
            found = connection.execute(
                statement,
                (
                    *(str(self._address.lease), *changed),
                    *(str(lease.journal), str(lease.epoch), str(self._commits)),
                    *values,
                ),
                prepare=True,
            ).fetchone()
            return self._require_mine(connection, found == (1,))

        self._change(attempt)

    def transact(self, change: "Callable[[Connection], int]") -> int:
        """Make a change of several statements in one transaction, and return what it returns."""
        lease = self.lease

        def attempt(connection: "Connection") -> int:
            with connection.transaction():
                fence = (
                    str(self._address.lease),
                    *(str(lease.journal), str(lease.epoch), str(self._commits)),
                )
                mine = connection.execute(RENEW, fence, prepare=True).fetchone()
                self._require_mine(connection, mine == (1,))
                result = change(connection)
                connection.execute(
                    "UPDATE orchestrator.journals SET result = %s WHERE journal = %s",
                    (result, lease.journal),
                )
                return result

        return self._change(attempt)

    def renew(self) -> None:
        """Say that this process goes on."""
        self.execute(RENEW, (), ())

    def read(self, look: "Callable[[Connection], ResultT]") -> ResultT:
        """Read something that only this process changes."""
        import psycopg

        while True:
            connection = self._connected()
            try:
                return look(connection)
            except psycopg.Error as exc:
                self._require_outage(exc)

    def _change(self, attempt: "Callable[[Connection], int]") -> int:
        import psycopg

        if self._is_unproved:
            # Of a change whose caller was cancelled in the outage.
            self._prove()
        pause = 0.0
        while True:
            connection = self._connected()
            try:
                result = attempt(connection)
            except psycopg.Error as exc:
                self._require_outage(exc)
                self._is_unproved = True
            except _HappenedError as exc:
                # The lost statement was still under way when its number was read.
                return self._count(exc.result)
            else:
                return self._count(result)
            if pause:
                # Connecting works and writing does not: the database is read-only for a while.
                trio.from_thread.run(trio.sleep, pause)
            pause = min(max(FIRST_PAUSE, 2 * pause), LONGEST_PAUSE)
            happened = self._prove()
            if happened is not None:
                return happened

    def _count(self, result: int) -> int:
        self._commits += 1
        self._is_unproved = False
        return result

    def _prove(self) -> int | None:
        """Return the result of the change whose answer was lost; None if it has not happened."""
        epoch, commits, result = self.read(self._read_number)
        if epoch != self.lease.epoch:
            raise self.read(lambda it: in_use(it, self._name, self._where))
        if commits == self._commits + 1:
            return self._count(result)
        self._require_unchanged(commits)
        return None

    @property
    def _name(self) -> str:
        return self._address.journal

    def _read_number(self, connection: "Connection") -> tuple[int, int, int]:
        row = connection.execute(
            "SELECT epoch, commits, result FROM orchestrator.journals WHERE journal = %s",
            (self.lease.journal,),
        ).fetchone()
        if row is None:
            raise JournalError(self._where, "it was deleted while it was open")
        epoch, commits, result = (int(str(it)) for it in row)
        return epoch, commits, result

    def _require_mine(self, connection: "Connection", is_mine: bool) -> int:
        if is_mine:
            return 0
        epoch, commits, result = self._read_number(connection)
        if epoch == self.lease.epoch:
            if self._is_unproved and commits == self._commits + 1:
                raise _HappenedError(result)
            self._require_unchanged(commits)
        raise in_use(connection, self._name, self._where)

    def _require_unchanged(self, commits: int) -> None:
        """Refuse a database that is not as this process left it, though no other took over."""
        if commits != self._commits:
            raise JournalError(
                self._where,
                f"it is at change {commits} and was left at {self._commits}: the database was"
                " replaced by another copy; stop what uses it, and open it again",
            )

    def _require_outage(self, exc: "psycopg.Error") -> None:
        """Forget a connection that is lost; raise what is no outage."""
        connection = self._connection
        if not (connection.closed or connection.broken or exc.sqlstate in OUTAGES):
            raise JournalError(self._where, problem_of(self._address.url, exc)) from exc
        connection.close()

    def _connected(self) -> "Connection":
        if self._connection.closed:
            self._connection = self._reconnect()
        return self._connection

    def _reconnect(self) -> "Connection":
        """Connect again, as soon as it can be; cancellation ends the wait."""
        pause, is_told = FIRST_PAUSE, False
        while True:
            trio.from_thread.check_cancelled()
            try:
                connection = open_connection(self._address)
            except UnreachableError as exc:
                if exc.lasting:
                    raise JournalError(self._where, exc.problem) from exc
                if not is_told:
                    log.warning(
                        "journal %s: %s; waiting for it", self._where, exc.problem
                    )
                    is_told = True
            else:
                if is_told:
                    log.warning("journal %s: it is back", self._where)
                return connection
            trio.from_thread.run(trio.sleep, pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def hang_up(self) -> None:
        """Break off a statement that is under way in another thread."""
        import psycopg

        with suppress(OSError, ValueError, psycopg.Error):
            descriptor = socket.dup(self._connection.fileno())
            with socket.socket(fileno=descriptor) as it:
                it.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Let others take the journal at once, if the database is there; close the connection."""
        import psycopg

        from orchestrator.journal.postgres.lease import release

        # It ends by itself otherwise: an outage must not keep the process.
        with suppress(psycopg.Error):
            if not self._connection.closed:
                release(self._connection, self.lease)
        self._connection.close()


_SETTINGS: Final[LiteralString] = """
SELECT set_config('statement_timeout', '0', false),
    set_config('idle_in_transaction_session_timeout', %s, false),
    set_config('tcp_keepalives_idle', '10', false),
    set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)
"""


def open_connection(address: DatabaseAddress) -> "Connection":
    """Open a connection whose commits are durable, and that holds no lock while it stands still."""
    import psycopg

    connection = connect(address.url, application="orchestrator journal")
    try:
        connection.execute(_SETTINGS, (f"{int(address.lease * 1000)}ms",))
    except psycopg.Error as exc:
        connection.close()
        raise UnreachableError(address.url, problem_of(address.url, exc)) from exc
    return connection
