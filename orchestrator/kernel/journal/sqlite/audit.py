"""The audit as rows of a SQLite file, written in the transaction of the facts that it is about."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.audit import (
    AUDIT_COLUMNS,
    AuditedEvent,
    AuditHead,
    AuditLog,
    AuditRow,
    chain_events,
    checkpoint,
    expired_head,
)


def write_audit(connection: sqlite3.Connection, events: Sequence[AuditedEvent]) -> None:
    """Add events to the chain."""
    if not events:
        return
    head, _ = _read_heads(connection)
    rows, head = chain_events(head, events)
    connection.executemany(
        "INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                *(it.seq, it.at, it.event.actor, it.event.owner, it.event.action),
                *(it.event.target, it.event.outcome, it.event.peer, it.event.count),
                it.hash,
            )
            for it in rows
        ],
    )
    connection.execute("UPDATE audit_head SET seq = ?, hash = ?", (head.seq, head.hash))


def read_audit(connection: sqlite3.Connection) -> AuditLog:
    """Return the audit."""
    head, pruned = _read_heads(connection)
    return AuditLog(rows=_read_rows(connection), head=head, pruned=pruned)


def _read_rows(connection: sqlite3.Connection) -> Iterator[AuditRow]:
    select = f"SELECT {AUDIT_COLUMNS} FROM audit ORDER BY seq"  # noqa: S608
    return map(AuditRow.of, connection.execute(select))


def _read_heads(connection: sqlite3.Connection) -> tuple[AuditHead, AuditHead]:
    """Return the last row of all, and the last one that was pruned."""
    found = connection.execute(
        "SELECT seq, hash, pruned_seq, pruned_hash FROM audit_head"
    ).fetchone()
    if found is None:
        # Without it a chain cannot be told from one that was cut.
        raise sqlite3.DatabaseError("the head of its audit is missing")
    seq, hash_, pruned_seq, pruned_hash = found
    return AuditHead(seq, hash_), AuditHead(pruned_seq, pruned_hash)


def prune_audit(
    connection: sqlite3.Connection, path: Path, before: float, audit: AuditedEvent
) -> int:
    """Delete the rows before a time, add a checkpoint after the last of them, and return their
    number.

    Raise `JournalError` if the chain is broken, so the rest of it must stay.
    """
    log = read_audit(connection)
    if (broken := log.find_break()) is not None:
        raise JournalError(path, f"row {broken.seq} of its audit {broken.problem}")
    last = expired_head(log, _read_rows(connection), before)
    count = last.seq - log.pruned.seq
    if count:
        at, event = audit
        write_audit(connection, [(at, checkpoint(event, last, count))])
        connection.execute("DELETE FROM audit WHERE seq <= ?", (last.seq,))
        connection.execute(
            "UPDATE audit_head SET pruned_seq = ?, pruned_hash = ?", (last.seq, last.hash)
        )
    return count
