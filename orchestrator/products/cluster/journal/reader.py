"""Reads one journal of a database, beside its writer.

It decodes only the requested entries: a journal may hold a million facts of idle sessions.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast

import attrs

from orchestrator.delegation import Ledger, Rules, SessionId, UnreadableFactError
from orchestrator.delegation.events import Entry
from orchestrator.delegation.snapshot import MIN_FACTS, Snapshot, snapshot_layout
from orchestrator.ports import journals
from orchestrator.ports.errors import JournalError

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

COLUMNS: Final[LiteralString] = (
    "seq, at, session, kind, version, convert_to(body, 'UTF8'), previous, checksum"
)
"""The columns of a `Row`."""
STRINGS_AT_ONCE: Final = 500
ROWS_AT_ONCE: Final = 2_000
_SESSION: Final[LiteralString] = (
    """
SELECT """
    + COLUMNS
    + """ FROM orchestrator.entries
WHERE journal = %(journal)s AND session = %(session)s AND seq > %(after)s
UNION ALL
SELECT """
    + COLUMNS
    + """ FROM orchestrator.entries
WHERE journal = %(journal)s AND session = '' AND seq > greatest(%(after)s, %(first)s)
    AND seq <= coalesce(
        (SELECT min(seq) FROM orchestrator.entries
            WHERE journal = %(journal)s AND session = '' AND seq > %(last)s), %(last)s)
ORDER BY seq
"""
)
_ACTIVE: Final[LiteralString] = (
    """
SELECT """
    + COLUMNS
    + """ FROM orchestrator.entries
WHERE journal = %(journal)s AND session = ANY(%(sessions)s)
UNION ALL
SELECT """
    + COLUMNS
    + """ FROM orchestrator.entries
WHERE journal = %(journal)s AND session = '' AND seq >= %(first)s
ORDER BY seq
"""
)
_KEPT: Final[LiteralString] = (
    " AND session NOT IN (SELECT session FROM orchestrator.pruned_sessions"
    " WHERE journal = %(journal)s)"
)
_AUDIT: Final[LiteralString] = (
    "SELECT seq, at, actor, owner, action, target, outcome, peer, count, hash"
    " FROM orchestrator.audit WHERE journal = %s ORDER BY seq"
)


@attrs.frozen(kw_only=True)
class JournalRow:
    """The contents of a journal, by its row."""

    journal: int
    last: int
    last_at: float
    last_of_none: int
    facts: int
    pruned: int
    audit: journals.AuditHead
    audit_pruned: journals.AuditHead


class PostgresReader:
    """A journal at one moment: within one transaction."""

    def __init__(self, where: str, connection: "Connection", row: JournalRow) -> None:
        self._where = where
        self.connection = connection
        self.row = row
        self._allowance: journals.Allowance | None = None

    def _rows(self, query: LiteralString, **values: Any) -> list[tuple[Any, ...]]:
        with self.connection.cursor(binary=True) as cursor:
            cursor.execute(query, {"journal": self.row.journal, **values})
            return cast(list[tuple[Any, ...]], cursor.fetchall())

    def sessions(self, *, prefix: str = "", newest: int | None = None) -> Sequence[SessionId]:
        return [it.id for it in self.dated_sessions(prefix=prefix, newest=newest)]

    def dated_sessions(
        self, *, prefix: str = "", newest: int | None = None
    ) -> Sequence[journals.DatedSession]:
        rows = self._rows(
            "SELECT sessions.session, first, used, sessions.checksum, coalesce(at, 0)"
            " FROM orchestrator.sessions LEFT JOIN orchestrator.entries"
            " ON entries.journal = sessions.journal AND seq = first"
            " WHERE sessions.journal = %(journal)s"
            " AND starts_with(sessions.session, %(prefix)s)"
            " ORDER BY first DESC LIMIT %(newest)s",
            prefix=prefix,
            newest=newest,
        )
        with self.translated():
            for session, first, used, checksum, _ in rows:
                journals.require_listed(session, first, used, checksum)
        return [journals.DatedSession(SessionId(it[0]), it[4]) for it in reversed(rows)]

    def has_session(self, session: SessionId) -> bool:
        return self._session(session) is not None

    def _session(self, session: SessionId) -> tuple[int, int] | None:
        """Return the first and the last entry of a session; None if there is none."""
        rows = self._rows(
            "SELECT first, last FROM orchestrator.sessions"
            " WHERE journal = %(journal)s AND session = %(session)s",
            session=session,
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def active_sessions(self) -> Sequence[SessionId]:
        rows = self._rows(
            "SELECT session FROM orchestrator.sessions"
            " WHERE journal = %(journal)s AND used IS NULL ORDER BY first"
        )
        return [SessionId(session) for (session,) in rows]

    def count(self) -> int:
        ((count,),) = self._rows(
            "SELECT count(*) FROM orchestrator.sessions WHERE journal = %(journal)s"
        )
        return int(count)

    def entries(self, session: SessionId, *, after: int = 0) -> Sequence[Entry]:
        rows, last = self.rows(session, after=after)
        # Translated here: the other sessions can still be read.
        with self.translated():
            journals.require_chains(
                session, rows, after, last=last, last_of_none=self.row.last_of_none
            )
            return self.decode(rows)

    def rows(self, session: SessionId, *, after: int = 0) -> tuple[list[journals.Row], int]:
        """Return the same entries as they are stored, and the number of the last one."""
        found = self._session(session)
        if found is None:
            return [], 0
        first, last = found
        rows = self._rows(_SESSION, session=session, after=after, first=first, last=last)
        return cast(list[journals.Row], rows), last

    def naming(
        self, id_: str, *, session: SessionId | None = None, kind: str = ""
    ) -> Sequence[Entry]:
        # The session and the kind first: the bodies of few entries are searched, and fewer decoded.
        conditions: LiteralString = " AND position(%(id)s IN body) > 0"
        if kind:
            conditions = " AND kind = %(kind)s" + conditions
        if session is not None:
            conditions = " AND session = %(session)s" + conditions
        rows = self._rows(
            f"SELECT {COLUMNS} FROM orchestrator.entries"
            " WHERE journal = %(journal)s" + conditions + _KEPT + " ORDER BY seq",
            id=f'"{id_}"',
            kind=kind,
            session=session,
        )
        with self.translated():
            return self.decode(cast(list[journals.Row], rows))

    def sessions_with_task(self, prefix: str) -> Sequence[SessionId]:
        rows = self._rows(
            "SELECT session FROM orchestrator.entries WHERE journal = %(journal)s"
            " AND kind = 'TaskRequested' AND position(%(id)s IN body) > 0"
            + _KEPT
            + " GROUP BY session ORDER BY min(seq)",
            id=f'"id":"{prefix}',
        )
        return [SessionId(session) for (session,) in rows]

    def audit(self) -> journals.AuditLog:
        row = self.row
        rows = read_audit_rows(self.connection, row.journal)
        return journals.AuditLog(rows=rows, head=row.audit, pruned=row.audit_pruned)

    def owners(self) -> dict[SessionId, str]:
        """Return the owners of all sessions that have one, oldest first."""
        # The first entry of a session is the fact that opened it: no other is looked at.
        rows = self._rows(
            "SELECT sessions.session, convert_to(body, 'UTF8') FROM orchestrator.sessions"
            " JOIN orchestrator.entries ON entries.journal = sessions.journal AND seq = first"
            " WHERE sessions.journal = %(journal)s"
            ' AND position(\'"owner":"\' IN body) > 0 ORDER BY first'
        )
        found = ((SessionId(session), journals.owner_in(body)) for session, body in rows)
        return {session: owner for session, owner in found if owner}

    def has_more_entries(self, session: SessionId, count: int) -> bool:
        """Return whether a session has more entries than this."""
        return bool(
            self._rows(
                "SELECT 1 FROM orchestrator.entries WHERE journal = %(journal)s"
                " AND session = %(session)s OFFSET %(count)s LIMIT 1",
                session=session,
                count=count,
            )
        )

    def last_time(self, session: SessionId) -> float | None:
        """Return the time of the last entry of a session; None if it has none."""
        rows = self._rows(
            "SELECT at FROM orchestrator.entries WHERE journal = %(journal)s"
            " AND session = %(session)s ORDER BY seq DESC LIMIT 1",
            session=session,
        )
        return rows[0][0] if rows else None

    def require_complete(self) -> None:
        """Refuse a journal with missing entries that were not pruned."""
        if missing := self.missing_entries():
            raise JournalError(
                self._where, f"{missing} of its entries are missing; {journals.RESTORE}"
            )

    def missing_entries(self) -> int:
        ((count,),) = self._rows(
            "SELECT count(*) FROM orchestrator.entries WHERE journal = %(journal)s"
        )
        return int(self.row.last - self.row.pruned - count)

    def contents(
        self, rules: Rules, store: journals.StoreSnapshot | None = None
    ) -> journals.JournalContents:
        """Return the contents that the next writer must know."""
        with self.translated():
            self.require_complete()
            sessions = self._listed()
            apart = self._apart(rules)
            active = {
                session: first
                for session, (first, _, used) in sessions.items()
                if used is None and session not in apart
            }
            rows: list[journals.Row] = []
            if active:
                first = min(active.values())
                found = self._rows(_ACTIVE, sessions=[*active], first=first)
                rows = cast(list[journals.Row], found)
            last = {session: last for session, (_, last, _) in sessions.items()}
            last[journals.NO_SESSION] = self.row.last_of_none
            strings = self._strings(rows)
            entries, damaged = journals.verify_active(
                rows,
                active,
                decode=lambda row: self._decode(row, strings),
                last_entry=last.__getitem__,
            )
            folded: dict[SessionId, Ledger] = {}
            for session in apart:
                try:
                    folded[session] = self.fold(session, rules, store)
                except JournalError as exc:
                    damaged[session] = exc.problem
            return journals.JournalContents(
                sessions={session: used for session, (_, _, used) in sessions.items()},
                pruned=self.pruned(),
                entries=entries,
                last_seq=self.row.last,
                last_at=self.row.last_at,
                damaged=damaged,
                folded=folded,
            )

    def _listed(self) -> dict[SessionId, tuple[int, int, str | None]]:
        """Return the first and last entry of each session, and the usage of an idle one."""
        sessions: dict[SessionId, tuple[int, int, str | None]] = {}
        for session, first, last, used, checksum in self._rows(
            "SELECT session, first, last, used, checksum FROM orchestrator.sessions"
            " WHERE journal = %(journal)s ORDER BY first"
        ):
            journals.require_listed(session, first, used, checksum)
            sessions[SessionId(session)] = (first, last, used)
        return sessions

    def pruned(self) -> list[str]:
        """Return what pruned sessions had used of shared budgets."""
        rows = self._rows(
            "SELECT used, checksum FROM orchestrator.pruned"
            " WHERE journal = %(journal)s ORDER BY number"
        )
        for used, checksum in rows:
            if checksum != journals.row_checksum(used):
                raise UnreadableFactError(f"the list of pruned runs is damaged; {journals.RESTORE}")
        return [used for used, _ in rows]

    def _apart(self, rules: Rules) -> list[SessionId]:
        """Return the active sessions that are long, or have a snapshot which this code can read."""
        rows = self._rows(
            "SELECT session FROM orchestrator.sessions LEFT JOIN orchestrator.snapshots"
            " USING (session, journal)"
            " WHERE journal = %(journal)s AND used IS NULL AND (layout = %(layout)s OR EXISTS ("
            " SELECT 1 FROM orchestrator.entries AS own WHERE own.journal = %(journal)s"
            " AND own.session = sessions.session LIMIT 1 OFFSET %(most)s))",
            layout=snapshot_layout(rules),
            most=MIN_FACTS,
        )
        return [SessionId(session) for (session,) in rows]

    def snapshots(self, session: SessionId | None = None) -> Iterator[journals.StoredSnapshot]:
        """Yield the snapshots, or that of one session."""
        query: LiteralString = (
            "SELECT session, seq, layout, state, checksum FROM orchestrator.snapshots"
            " WHERE journal = %(journal)s"
        )
        if session is not None:
            query += " AND session = %(session)s"
        for id_, seq, layout, state, checksum in self._rows(query, session=session):
            yield Snapshot(SessionId(id_), seq, layout, state), checksum

    def summary(self, session: SessionId, *, has_writer: bool) -> journals.SessionSummary | None:
        rows = self._rows(
            "SELECT summaries.session, summaries.seq, body, summaries.checksum, last"
            " FROM orchestrator.summaries JOIN orchestrator.sessions USING (session, journal)"
            " WHERE journal = %(journal)s AND session = %(session)s",
            session=session,
        )
        if not rows:
            return None
        id_, seq, body, checksum, last = rows[0]
        stored = (SessionId(id_), seq, body, checksum)
        return journals.read_summary(stored, last=last, has_writer=has_writer)

    def fold(
        self, session: SessionId, rules: Rules, store: journals.StoreSnapshot | None = None
    ) -> Ledger:
        """Return the ledger of one session alone: its snapshot, and the entries after it."""
        return journals.fold_stored(
            self.snapshots(session),
            lambda after: self.entries(session, after=after),
            self._where,
            rules,
            store,
        )

    def decode(self, rows: Sequence[journals.Row]) -> list[Entry]:
        """Return the entries of rows."""
        entries: list[Entry] = []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[start : start + ROWS_AT_ONCE]
            strings = self._strings(some)
            entries += [self._decode(row, strings) for row in some]
        return entries

    def _decode(self, row: journals.Row, strings: Mapping[str, bytes]) -> Entry:
        return journals.decode_row(row, strings.get, self._get_allowance)

    def _get_allowance(self) -> journals.Allowance:
        if self._allowance is None:
            ((size,),) = self._rows("SELECT pg_total_relation_size('orchestrator.payloads')")
            self._allowance = journals.Allowance(size)
        return self._allowance

    def _strings(self, rows: Iterable[journals.Row]) -> dict[str, bytes]:
        """Return the long strings that rows refer to: of many rows in one query."""
        names = {
            name
            for row in rows
            if journals.MARK_BYTES in row[5]
            for name in journals.references(row[5])
        }
        found: dict[str, bytes] = {}
        wanted = sorted(names)
        for start in range(0, len(wanted), STRINGS_AT_ONCE):
            found |= self._rows(
                "SELECT digest, convert_to(string, 'UTF8') FROM orchestrator.payloads"
                " WHERE journal = %(journal)s AND digest = ANY(%(names)s)",
                names=wanted[start : start + STRINGS_AT_ONCE],
            )
        return found

    def all_rows(self) -> Iterator[journals.Row]:
        """Yield all entries as they are stored, some at a time."""
        after = 0
        while rows := self._rows(
            f"SELECT {COLUMNS} FROM orchestrator.entries"
            " WHERE journal = %(journal)s AND seq > %(after)s ORDER BY seq LIMIT %(limit)s",
            after=after,
            limit=ROWS_AT_ONCE,
        ):
            yield from cast(list[journals.Row], rows)
            after = rows[-1][0]

    def last_entries(self) -> dict[str, int | None]:
        """Return the last entry of each session and of none; None of one that is being deleted."""
        rows = self._rows(
            "SELECT session, last FROM orchestrator.sessions WHERE journal = %(journal)s"
            " UNION ALL SELECT session, NULL FROM orchestrator.pruned_sessions"
            " WHERE journal = %(journal)s"
        )
        return {**dict(rows), journals.NO_SESSION: self.row.last_of_none}

    def used(self) -> dict[str, str | None]:
        """Return what each session has used of shared budgets; None of one that is not idle."""
        return {session: used for session, (_, _, used) in self._listed().items()}

    def unlisted_sessions(self) -> list[SessionId]:
        """Return the sessions of entries that are not listed, and not being deleted."""
        rows = self._rows(
            "SELECT DISTINCT session FROM orchestrator.entries WHERE journal = %(journal)s"
            " AND session != '' AND session NOT IN (SELECT session FROM"
            " orchestrator.sessions WHERE journal = %(journal)s)" + _KEPT
        )
        return [SessionId(session) for (session,) in rows]

    def referenced_strings(self) -> set[str]:
        """Return the names of long strings in all entries."""
        return {
            name
            for row in self.all_rows()
            if journals.MARK_BYTES in row[5]
            for name in journals.references(row[5])
        }

    def stored_strings(self) -> dict[str, bool]:
        """Return whether each long string matches its name."""
        rows = self._rows(
            "SELECT digest, encode(sha256(convert_to(string, 'UTF8')), 'hex')"
            " FROM orchestrator.payloads WHERE journal = %(journal)s"
        )
        return {name: found == name for name, found in rows}

    @contextmanager
    def translated(self) -> Generator[None]:
        """Raise what cannot be read as `JournalError`."""
        try:
            yield
        except UnreadableFactError as exc:
            raise JournalError(self._where, str(exc)) from exc


def read_audit_rows(connection: "Connection", journal: int) -> Iterator[journals.AuditRow]:
    """Return the rows of the audit of a journal."""
    rows = connection.execute(_AUDIT, (journal,))
    return map(journals.AuditRow.of, rows)


def read_row(connection: "Connection", name: str) -> JournalRow | None:
    """Return the row of a journal; None if there is none, or nothing was ever written."""
    row = cast(
        tuple[Any, ...] | None,
        connection.execute(
            "SELECT journal, last, last_at, last_of_none, facts, pruned, audit_seq,"
            " audit_hash, audit_pruned_seq, audit_pruned_hash, epoch"
            " FROM orchestrator.journals WHERE name = %s",
            (name,),
        ).fetchone(),
    )
    if row is None or not row[10]:
        return None
    return JournalRow(
        journal=row[0],
        last=row[1],
        last_at=row[2],
        last_of_none=row[3],
        facts=row[4],
        pruned=row[5],
        audit=journals.AuditHead(row[6], row[7]),
        audit_pruned=journals.AuditHead(row[8], row[9]),
    )


@contextmanager
def one_moment(connection: "Connection") -> Generator[None]:
    """Read within one transaction that sees the present database, and changes nothing."""
    import psycopg

    if connection.isolation_level is None:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
    with connection.transaction():
        yield
