"""Deletes sessions from a journal for good, in small steps, each a fenced transaction.

A session is marked first, and is gone for every reader. Then its entries are deleted, some at a
time. The same transaction counts them, so that a lost entry is still noticed. The next pruning
deletes sessions that a crash left marked. Postgres reuses the space.
"""

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast

from msgspec.structs import replace

from orchestrator.delegation import SessionId
from orchestrator.ports.errors import JournalError
from orchestrator.ports.journals import (
    AuditedEvent,
    AuditHead,
    AuditLog,
    AuditRow,
    Pruned,
    chain_events,
    checkpoint,
    expired_head,
    row_checksum,
)
from orchestrator.products.cluster.journal.reader import JournalRow, read_audit_rows

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

TABLES: Final = ("entries", "payloads", "sessions", "snapshots", "summaries", "pruned", "audit")
# By the last entry, not by the latest: clocks are set back.
_EXPIRED: Final[LiteralString] = """
SELECT sessions.session FROM orchestrator.sessions JOIN orchestrator.entries
    ON entries.journal = sessions.journal AND seq = last
WHERE sessions.journal = %s AND used IS NOT NULL AND at < %s
ORDER BY first
"""
_DELETE_MARKED: Final[LiteralString] = """
DELETE FROM orchestrator.entries WHERE journal = %s AND seq IN (
    SELECT seq FROM orchestrator.entries WHERE journal = %s AND session IN (
        SELECT session FROM orchestrator.pruned_sessions WHERE journal = %s)
    ORDER BY session DESC, seq DESC LIMIT %s
)
"""


def find_expired(connection: "Connection", journal: int, before: float) -> list[SessionId]:
    """Return the idle sessions whose last entry is older than a time."""
    rows = connection.execute(_EXPIRED, (journal, before)).fetchall()
    return [SessionId(str(session)) for (session,) in rows]


def count_active(connection: "Connection", journal: int) -> int:
    return _number(
        connection,
        "SELECT count(*) FROM orchestrator.sessions WHERE journal = %s AND used IS NULL",
        (journal,),
    )


def preview(connection: "Connection", journal: int, before: float) -> Pruned:
    """Return what pruning would delete; a process may write the journal."""
    expired = find_expired(connection, journal, before)
    entries = _number(
        connection,
        "SELECT count(*) FROM orchestrator.entries WHERE journal = %s AND session = ANY(%s)",
        (journal, expired),
    )
    active = count_active(connection, journal)
    return Pruned(runs=len(expired), entries=entries, active=active)


def mark_pruned(
    connection: "Connection",
    journal: int,
    sessions: Sequence[SessionId],
    audited: Sequence[AuditRow] = (),
) -> int:
    """Take idle sessions out of the lists; their usage of shared budgets stays booked."""
    write_audit(connection, journal, audited)
    used: list[object] = []
    names = list(sessions)
    rows = connection.execute(
        "DELETE FROM orchestrator.sessions WHERE journal = %s AND session = ANY(%s)"
        " RETURNING session, first, used, checksum",
        (journal, names),
    ).fetchall()
    for session, first, said, checksum in cast(list[tuple[Any, ...]], rows):
        # What a damaged row says was used is not known.
        if said and row_checksum(session, first, said) == checksum:
            used += json.loads(said)
    connection.execute(
        "DELETE FROM orchestrator.snapshots WHERE journal = %s AND session = ANY(%s)",
        (journal, names),
    )
    connection.execute(
        "DELETE FROM orchestrator.summaries WHERE journal = %s AND session = ANY(%s)",
        (journal, names),
    )
    connection.execute(
        "INSERT INTO orchestrator.pruned_sessions SELECT %s, unnest(%s::text[])"
        " ON CONFLICT DO NOTHING",
        (journal, names),
    )
    if used:
        text = json.dumps(used)
        connection.execute(
            "INSERT INTO orchestrator.pruned (journal, used, checksum) VALUES (%s, %s, %s)",
            (journal, text, row_checksum(text)),
        )
    return len(sessions)


def delete_entries(connection: "Connection", journal: int, limit: int) -> int:
    """Delete some entries of marked sessions, and return how many: fewer than that is all."""
    deleted = connection.execute(_DELETE_MARKED, (journal, journal, journal, limit)).rowcount
    connection.execute(
        "UPDATE orchestrator.journals SET pruned = pruned + %s WHERE journal = %s",
        (deleted, journal),
    )
    if deleted < limit:
        connection.execute(
            "DELETE FROM orchestrator.pruned_sessions WHERE journal = %s", (journal,)
        )
    return deleted


def read_stored(connection: "Connection", journal: int) -> set[str]:
    """Return the names of all long strings."""
    rows = connection.execute(
        "SELECT digest FROM orchestrator.payloads WHERE journal = %s", (journal,)
    )
    return {str(name) for (name,) in rows}


def read_referenced(connection: "Connection", journal: int, after: int, until: int) -> set[str]:
    """Return the long strings that entries refer to, of those between two numbers."""
    rows = connection.execute(
        r"SELECT DISTINCT (regexp_matches(body, '\x1a([0-9a-f]{64})', 'g'))[1]"
        " FROM orchestrator.entries WHERE journal = %s AND seq > %s AND seq <= %s"
        " AND position(chr(26) IN body) > 0",
        (journal, after, until),
    )
    return {str(name) for (name,) in rows}


def delete_strings(
    connection: "Connection", journal: int, names: Sequence[str], kept: Collection[str]
) -> int:
    """Delete long strings, but for those that have been written again."""
    spare = [name for name in names if name not in kept]
    return connection.execute(
        "DELETE FROM orchestrator.payloads WHERE journal = %s AND digest = ANY(%s)",
        (journal, spare),
    ).rowcount


def write_audit(connection: "Connection", journal: int, rows: Sequence[AuditRow]) -> None:
    """Add rows to the audit that follow its head."""
    for row in rows:
        it = row.event
        connection.execute(
            "INSERT INTO orchestrator.audit VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                *(journal, row.seq, row.at, it.actor, it.owner, it.action, it.target),
                *(it.outcome, it.peer, it.count, row.hash),
            ),
        )
        connection.execute(
            "UPDATE orchestrator.journals SET audit_seq = %s, audit_hash = %s WHERE journal = %s",
            (row.seq, row.hash, journal),
        )


def plan_audit_prune(
    connection: "Connection", where: str, row: JournalRow, before: float, audit: AuditedEvent
) -> tuple[AuditHead, list[AuditRow], int]:
    """Return the last expired row, its checkpoint, and the count, or raise `JournalError`."""
    rows = list(read_audit_rows(connection, row.journal))
    log = AuditLog(rows=rows, head=row.audit, pruned=row.audit_pruned)
    if (broken := log.find_break()) is not None:
        raise JournalError(where, f"row {broken.seq} of its audit {broken.problem}")
    last = expired_head(log, rows, before)
    count = last.seq - log.pruned.seq
    at, event = audit
    chained, _ = chain_events(row.audit, [(at, checkpoint(event, last, count))])
    return last, chained, count


def delete_audit(
    connection: "Connection", journal: int, last: AuditHead, chained: Sequence[AuditRow]
) -> int:
    """Put a checkpoint in place of the rows of the audit up to one of them."""
    write_audit(connection, journal, chained)
    deleted = connection.execute(
        "DELETE FROM orchestrator.audit WHERE journal = %s AND seq <= %s", (journal, last.seq)
    ).rowcount
    connection.execute(
        "UPDATE orchestrator.journals SET audit_pruned_seq = %s, audit_pruned_hash = %s"
        " WHERE journal = %s",
        (last.seq, last.hash, journal),
    )
    return deleted


def audited_prune(
    head: AuditHead, sessions: Sequence[SessionId], audit: AuditedEvent | None
) -> tuple[list[AuditRow], AuditHead]:
    """Return the row that says who pruned sessions, and the head after it."""
    if audit is None:
        return [], head
    at, event = audit
    event = replace(event, target=sessions[0], count=len(sessions))
    return chain_events(head, [(at, event)])


def size_of(connection: "Connection") -> int:
    """Return how many bytes the journals of a database take."""
    names = [f"orchestrator.{table}" for table in TABLES]
    return _number(
        connection,
        "SELECT sum(pg_total_relation_size(name::regclass))::bigint"
        " FROM unnest(%s::text[]) AS name",
        (names,),
    )


def vacuum(connection: "Connection") -> None:
    """Let Postgres reuse the space of deleted rows, and release the space at the end."""
    connection.execute(
        "VACUUM orchestrator.entries, orchestrator.payloads, orchestrator.sessions,"
        " orchestrator.snapshots, orchestrator.summaries"
    )


def _number(connection: "Connection", query: LiteralString, values: tuple[object, ...]) -> int:
    row = connection.execute(query, values).fetchone()
    return 0 if row is None or row[0] is None else int(str(row[0]))
