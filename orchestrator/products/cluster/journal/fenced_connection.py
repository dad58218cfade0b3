"""The connection that writes a journal, as long as its epoch is the last one.

Every change is conditional on the epoch and has a number, in the same SQL. So a process never
writes a journal that another one has taken over, and after an outage the number proves whether the
interrupted change has happened. The connection waits through an outage, however long it takes.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar

import trio

from orchestrator.loggers import logger_of
from orchestrator.ports.errors import JournalError
from orchestrator.products.cluster.database.address import DatabaseAddress
from orchestrator.products.cluster.database.connection import UnreachableError, connect, problem_of
from orchestrator.products.cluster.database.statements import shut
from orchestrator.products.cluster.journal.lease import Lease, in_use
from orchestrator.products.cluster.journal.lease_watch import LeaseWatch

if TYPE_CHECKING:
    import psycopg

    from orchestrator.products.cluster.database.connection import Connection

ResultT = TypeVar("ResultT")

APPLICATION: Final = "orchestrator journal"
"""The name of the connection in `pg_stat_activity`."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
_NEXT: Final[LiteralString] = """
WITH mine AS (
    UPDATE orchestrator.journals SET commits = commits + 1,
        until = clock_timestamp() + make_interval(secs => %s::float8), result = """
FENCE: Final[LiteralString] = _NEXT + "0"
FENCED: Final[LiteralString] = """
    WHERE journal = %s AND epoch = %s AND commits = %s RETURNING journal
)"""
IS_MINE: Final[LiteralString] = "SELECT count(*) FROM mine"
RENEW: Final[LiteralString] = FENCE + FENCED + IS_MINE
VOID: Final = -1
"""The result of a change that takes the number of another one, which then never happens."""
_TAKE_NUMBER: Final[LiteralString] = _NEXT + "-1" + FENCED + IS_MINE
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

log = logger_of("journal")


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
        watch: LeaseWatch,
    ) -> None:
        self._address = address
        self._watch = watch
        self._where = where
        self._connection = connection
        self.lease = lease
        self._commits = lease.commits
        self._is_unproved = False
        """The answer to the last change was lost: its number says whether it has happened."""
        self._happened: Callable[[], None] = lambda: None
        """The function to call once the last change is known to have happened."""
        self._sent = watch.clock()
        """The time before the first attempt at the last change."""

    def execute(
        self, statement: LiteralString, changed: Sequence[str], values: Sequence[Any]
    ) -> None:
        """Execute one statement that begins with the fence.

        The statement is `FENCE`, the other changes in the row of the journal with the values
        `changed`, `FENCED`, and more.
        """

        def attempt(connection: "Connection") -> int:
            seconds, *mine = self._fence()
            found = connection.execute(
                statement, (seconds, *changed, *mine, *values), prepare=True
            ).fetchone()
            return self._require_mine(connection, found == (1,))

        self._change(attempt)

    def transact(
        self, change: "Callable[[Connection], int]", happened: Callable[[], None] = lambda: None
    ) -> int:
        """Make a change of several statements in one transaction, and return its result.

        `happened` is called once the change is known to have happened: before the next one, also if
        the caller is cancelled in an outage.
        """
        lease = self.lease

        def attempt(connection: "Connection") -> int:
            with connection.transaction():
                mine = connection.execute(RENEW, self._fence(), prepare=True).fetchone()
                self._require_mine(connection, mine == (1,))
                result = change(connection)
                connection.execute(
                    "UPDATE orchestrator.journals SET result = %s WHERE journal = %s",
                    (result, lease.journal),
                )
                return result

        return self._change(attempt, happened)

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

    def _change(
        self, attempt: "Callable[[Connection], int]", happened: Callable[[], None] = lambda: None
    ) -> int:
        import psycopg

        assert not self._is_unproved, "`settle` comes first"
        self._happened = happened
        self._sent = self._watch.clock()
        pause = 0.0
        while True:
            connection = self._connected()
            sent = self._watch.clock()
            try:
                result = attempt(connection)
            except psycopg.Error as exc:
                self._require_outage(exc)
                self._is_unproved = True
            except _HappenedError as exc:
                # The lost statement was still under way when its number was read.
                return self._count(exc.result, self._sent)
            else:
                return self._count(result, sent)
            if pause:
                # Connecting works and writing does not: the database is read-only for a while.
                trio.from_thread.run(trio.sleep, pause)
            pause = min(max(FIRST_PAUSE, 2 * pause), LONGEST_PAUSE)
            if (result_before := self._prove()) is not None:
                return result_before

    def settle(self) -> None:
        """Find out whether a cancelled change has happened, or prevent it.

        It may still be under way in the database, and could be mistaken for the next change. Call
        this before every decision that depends on it.
        """
        import psycopg

        while self._is_unproved:
            connection = self._connected()
            sent = self._watch.clock()
            try:
                taken = connection.execute(_TAKE_NUMBER, self._fence()).fetchone()
                if taken != (1,):
                    self._require_mine(connection, is_mine=False)
            except psycopg.Error as exc:
                self._require_outage(exc)
            except _HappenedError as exc:
                if exc.result == VOID:
                    self._happened = lambda: None
                self._count(exc.result, self._sent)
            else:
                self._happened = lambda: None
                self._count(VOID, sent)

    def _fence(self) -> tuple[str, str, str, str]:
        lease = self.lease
        epoch, number = str(lease.epoch), str(self._commits)
        return str(self._address.lease), str(lease.journal), epoch, number

    def _count(self, result: int, sent: float) -> int:
        """Count a change that has happened, and that was sent at this time or later."""
        self._watch.renew(sent)
        self._commits += 1
        self._is_unproved = False
        self._happened()
        return result

    def _prove(self) -> int | None:
        """Return the result of the change whose answer was lost; None if it has not happened."""
        epoch, commits, result = self.read(self._read_number)
        if epoch != self.lease.epoch:
            raise self.read(lambda it: in_use(it, self._name, self._where))
        if commits == self._commits + 1:
            return self._count(result, self._sent)
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
        """Forget a lost connection; raise any error that is not an outage."""
        connection = self._connection
        if not (connection.closed or connection.broken or exc.sqlstate in OUTAGES):
            raise JournalError(self._where, problem_of(self._address.url, exc)) from exc
        connection.close()

    def _connected(self) -> "Connection":
        if self._connection.closed:
            self._reconnect()
        return self._connection

    def _reconnect(self) -> None:
        """Connect again, as soon as it can be; cancellation ends the wait."""
        pause, is_told = FIRST_PAUSE, False
        while True:
            trio.from_thread.check_cancelled()
            try:
                # At once where `hang_up` finds it: what follows may never be answered.
                self._connection = connect(self._address.url, application=APPLICATION)
                prepare(self._connection, self._address)
            except UnreachableError as exc:
                if exc.lasting:
                    raise JournalError(self._where, exc.problem) from exc
                if not is_told:
                    log.warning("journal %s: %s; waiting for it", self._where, exc.problem)
                    is_told = True
            else:
                if is_told:
                    log.warning("journal %s: it is back", self._where)
                return
            trio.from_thread.run(trio.sleep, pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def hang_up(self) -> None:
        """Break off a statement that is under way in another thread."""
        shut(self._connection)

    def release(self) -> None:
        """Let others take the journal at once, if the database is there; close the connection."""
        import psycopg

        from orchestrator.products.cluster.journal.lease import release

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
    connection = connect(address.url, application=APPLICATION)
    prepare(connection, address)
    return connection


def prepare(connection: "Connection", address: DatabaseAddress) -> None:
    """Make the settings of a connection; close it if that fails."""
    import psycopg

    try:
        connection.execute(_SETTINGS, (f"{int(address.lease * 1000)}ms",))
    except psycopg.Error as exc:
        connection.close()
        raise UnreachableError(address.url, problem_of(address.url, exc)) from exc
