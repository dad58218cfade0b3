"""How a process comes to write a journal of a database: it connects, looks, and takes it last."""

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import trio

from orchestrator.delegation import encode
from orchestrator.delegation.events import JournalOpened
from orchestrator.ports.errors import JournalError
from orchestrator.products.cluster.database.address import DatabaseAddress
from orchestrator.products.cluster.database.connection import (
    UnreachableError,
    connect,
    problem_of,
    shown_address,
)
from orchestrator.products.cluster.database.schema import install_schema
from orchestrator.products.cluster.database.statements import run_statements, shut
from orchestrator.products.cluster.journal.fenced_connection import open_connection
from orchestrator.products.cluster.journal.lease import Lease, take

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

FACTS_VERSION: Final = encode(JournalOpened("")).version
"""The version of the facts that this orchestrator writes."""
ECHO_SECONDS: Final = 1.0
"""How long a wake-up may take to come through."""
DIRECTLY: Final = (
    "connect to Postgres directly, or to a pooler in session mode: between transactions this one"
    " gives the connection to others (LISTEN does not work)"
)


@attrs.frozen
class OpenedLease:
    """A connection to the database, and a journal of it that this process may write."""

    connection: "Connection"
    lease: Lease
    clock_offset: float
    """How many seconds the clock of the database is ahead of that of this machine."""


async def open_lease(address: DatabaseAddress, where: str, served_at: str) -> OpenedLease:
    """Connect and take a journal.

    Raises:
        JournalInUseError: another process writes it.
        JournalError: it cannot be opened.
    """
    connection = await trio.to_thread.run_sync(open_connection, address)
    with ExitStack() as undo:
        undo.callback(connection.close)
        opened = await run_statements(
            lambda: _take(connection, address, where, served_at), break_off=lambda: shut(connection)
        )
        undo.pop_all()
    return opened


def _take(
    connection: "Connection", address: DatabaseAddress, where: str, served_at: str
) -> OpenedLease:
    import psycopg

    try:
        offset = _look(connection, address, where)
        install_schema(connection, shown_address(address.url), address.cluster)
        lease = take(
            connection,
            address.journal,
            where,
            seconds=address.lease,
            host=address.host,
            address=served_at,
            facts=FACTS_VERSION,
        )
    except psycopg.Error as exc:
        problem = problem_of(address.url, exc)
        if connection.closed:
            # The database went away in the midst of this: it may be back soon.
            raise UnreachableError(address.url, problem) from None
        raise JournalError(where, problem) from exc
    return OpenedLease(connection, lease, offset)


def _look(connection: "Connection", address: DatabaseAddress, where: str) -> float:
    """Refuse what cannot hold a journal; return how far ahead the clock of the database is."""
    before = time.time()
    row = connection.execute(
        "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('server_encoding'),"
        " extract(epoch FROM clock_timestamp())::float8"
    ).fetchone()
    pid, is_standby, encoding, now = cast(tuple[Any, ...], row)
    if is_standby:
        raise JournalError(where, "it is on a standby, which cannot be written; name the primary")
    if encoding != "UTF8":
        raise JournalError(where, f"its encoding is {encoding}; create the database with UTF8")
    # A pooler answers with a number of its own in place of that of the process of Postgres.
    if connection.info.backend_pid != pid:
        _require_echo(connection, address, where)
    return float(now - (before + time.time()) / 2)


def _require_echo(connection: "Connection", address: DatabaseAddress, where: str) -> None:
    """Refuse a pooler that gives a connection to others between transactions."""
    connection.execute("LISTEN orchestrator_echo")
    with connect(address.url, application="orchestrator journal") as other:
        other.execute("NOTIFY orchestrator_echo")
    heard = list(connection.notifies(timeout=ECHO_SECONDS, stop_after=1))
    if not heard:
        raise JournalError(where, f"there is a pooler in front of it: {DIRECTLY}")
    connection.execute("UNLISTEN orchestrator_echo")
