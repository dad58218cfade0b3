"""Checks of a journal in a database, which change nothing."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from orchestrator.delegation import SessionId, UnreadableFactError
from orchestrator.delegation.events import Entry
from orchestrator.ports import journals
from orchestrator.ports.errors import JournalError
from orchestrator.products.cluster.database.schema import VERSION
from orchestrator.products.cluster.journal.reader import PostgresReader

Check: TypeAlias = Callable[[PostgresReader], Iterator[journals.Finding]]


def check_journal(
    reader: PostgresReader, writer: journals.Writer | None
) -> Iterator[journals.Finding]:
    """Yield the findings of all checks, as the journal is at one moment."""
    yield journals.Finding(journals.Level.FINE, f"the tables are of version {VERSION}")
    if writer is None:
        yield journals.Finding(journals.Level.FINE, "no process writes it now")
    else:
        text = f"process {writer.process} on {writer.host} writes it now, in epoch {writer.epoch}"
        yield journals.Finding(journals.Level.FINE, text)
    for check in CHECKS:
        try:
            yield from check(reader)
        except JournalError as exc:
            yield journals.Finding(journals.Level.WRONG, exc.problem)
        except UnreadableFactError as exc:
            yield journals.Finding(journals.Level.WRONG, str(exc))
        except journals.MISFITS as exc:
            what = check.__name__.strip("_")
            yield journals.Finding(journals.Level.WRONG, f"its {what} cannot be read: {exc!r}")


def _holes(reader: PostgresReader) -> Iterator[journals.Finding]:
    if missing := reader.missing_entries():
        yield journals.Finding(journals.Level.WRONG, f"{missing} of its entries are missing")
    else:
        count = reader.row.last - reader.row.pruned
        yield journals.Finding(journals.Level.FINE, f"none of its {count:,} entries is missing")


def _checksums(reader: PostgresReader) -> Iterator[journals.Finding]:
    """Compare every entry with its checksum, and look for the one before it."""
    sessions: dict[str, journals.Damage] = {}
    for row in reader.all_rows():
        journals.compare_entry(row, sessions.setdefault(row[2], journals.Damage()))
    damaged = journals.compare_ends(sessions, reader.last_entries())
    for session, found in damaged.items():
        yield journals.Finding(journals.Level.WRONG, found.text(session))
    if not damaged:
        yield journals.Finding(journals.Level.FINE, "its entries are as they were written")


def _lists(reader: PostgresReader) -> Iterator[journals.Finding]:
    """Compare the lists of sessions with their checksums, and with the entries."""
    listed = reader.sessions()
    reader.pruned()
    problems = [f"run {session!r} is not listed" for session in reader.unlisted_sessions()]
    fine = f"its list of {len(listed):,} runs is as it was written"
    yield from journals.report("in its list of runs,", problems, fine)


def _payloads(reader: PostgresReader) -> Iterator[journals.Finding]:
    yield from journals.report_strings(reader.referenced_strings(), reader.stored_strings())


def _sessions(reader: PostgresReader) -> Iterator[journals.Finding]:
    """Fold each session, and compare the result with the list."""
    listed = reader.used()
    totals = journals.Totals()
    for session in reader.sessions():
        totals.runs += 1
        try:
            entries = _entries(reader, session)
            if entries is None:
                continue
            record = journals.fold_entries(entries, session).sessions[session]
        except JournalError as exc:
            totals.problems.append(f"run {session}: {exc.problem}")
        except KeyError:
            totals.problems.append(f"run {session} was never opened")
        else:
            journals.compare_session(record, listed, totals)
    yield from journals.report_totals(totals)


def _entries(reader: PostgresReader, session: SessionId) -> list[Entry] | None:
    """Return the entries of a session, or None if the comparison with the checksums reports it."""
    rows, _ = reader.rows(session)
    try:
        for row in rows:
            journals.require_whole(row)
    except UnreadableFactError:
        return None
    with reader.translated():
        return reader.decode(rows)


def _snapshots(reader: PostgresReader) -> Iterator[journals.Finding]:
    yield from journals.check_snapshots(reader.snapshots(), reader.entries, "in Postgres")


def _audit(reader: PostgresReader) -> Iterator[journals.Finding]:
    yield journals.check_audit(reader.audit())


CHECKS: Final[tuple[Check, ...]] = (
    _holes,
    _checksums,
    _lists,
    _payloads,
    _sessions,
    _snapshots,
    _audit,
)
