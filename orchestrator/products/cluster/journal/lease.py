"""The right to write a journal of a database: an epoch, and a lease by the database's clock.

The epoch is the safety: each change of a writer is conditional on it. The lease only says when
another process may take the journal over, so a clock that is wrong breaks nothing.
"""

import os
from typing import TYPE_CHECKING, Final, LiteralString

import attrs

from orchestrator.ports.errors import JournalError, JournalInUseError
from orchestrator.ports.journals import AuditHead, Writer
from orchestrator.products.cluster.database.schema import NEWER

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

LOCK_WAIT: Final = "2s"
"""How long taking a journal waits for a change of its writer that is under way."""

_CREATE: Final[LiteralString] = """
INSERT INTO orchestrator.journals (name) VALUES (%s) ON CONFLICT DO NOTHING
"""
_TAKE: Final[LiteralString] = """
UPDATE orchestrator.journals SET epoch = epoch + 1, process = %s, host = %s, address = %s,
    until = clock_timestamp() + make_interval(secs => %s::float8)
WHERE name = %s AND until < clock_timestamp() AND facts <= %s
RETURNING journal, epoch, commits, last, last_of_none, audit_seq, audit_hash
"""
_RELEASE: Final[LiteralString] = """
UPDATE orchestrator.journals SET until = 'epoch' WHERE journal = %s AND epoch = %s
"""
_WRITER: Final[LiteralString] = """
SELECT process, host, address, epoch,
    extract(epoch FROM until - clock_timestamp())::float8, facts
FROM orchestrator.journals WHERE name = %s
"""


@attrs.frozen(kw_only=True)
class Lease:
    """The right of a process to write a journal, and the end of the journal at that time."""

    journal: int
    """The number of the journal in the database."""
    epoch: int
    commits: int
    last: int
    last_of_none: int
    audit: AuditHead


def take(
    connection: "Connection",
    name: str,
    where: str,
    *,
    seconds: float,
    host: str,
    address: str,
    facts: int,
) -> Lease:
    """Take a journal, and create it where there is none.

    Raises:
        JournalInUseError: another process writes it, or may go on to do so.
        JournalError: it has newer facts.
    """
    import psycopg

    me = (os.getpid(), host, address)
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (LOCK_WAIT,))
            connection.execute(_CREATE, (name,))
            taken = connection.execute(_TAKE, (*me, seconds, name, facts)).fetchone()
    except psycopg.errors.LockNotAvailable:
        taken = None
    if taken is not None:
        journal, epoch, commits, last, last_of_none, seq, digest = map(str, taken)
        return Lease(
            journal=int(journal),
            epoch=int(epoch),
            commits=int(commits),
            last=int(last),
            last_of_none=int(last_of_none),
            audit=AuditHead(int(seq), digest),
        )
    raise in_use(connection, name, where, facts)


def in_use(
    connection: "Connection", name: str, where: str, facts: int | None = None
) -> JournalError:
    """Return why a journal cannot be taken, or why it is no longer ours."""
    row = connection.execute(_WRITER, (name,)).fetchone()
    if row is not None and facts is not None and int(str(row[5])) > facts:
        return JournalError(where, f"it has facts of version {row[5]}: {NEWER}")
    if row is None or float(str(row[4])) <= 0:
        return JournalInUseError(where, "another process was writing it a moment ago; try again")
    process, host, _, _, left, _ = row
    return JournalInUseError(
        where,
        f"process {process} is writing it on {host}, and may for another"
        f" {float(str(left)):.0f} s without a word; wait for that one, or use another journal",
        writer=f"process {process} on {host}",
    )


def release(connection: "Connection", lease: Lease) -> None:
    """Let others take the journal at once."""
    connection.execute(_RELEASE, (lease.journal, lease.epoch))


def read_writer(connection: "Connection", name: str) -> Writer | None:
    """Return the process whose lease lasts; None if there is none."""
    row = connection.execute(_WRITER, (name,)).fetchone()
    if row is None or float(str(row[4])) <= 0:
        return None
    process, host, address, epoch, left, _ = row
    return Writer(
        process=int(str(process)),
        host=str(host),
        address=str(address),
        epoch=int(str(epoch)),
        seconds_left=float(str(left)),
    )
