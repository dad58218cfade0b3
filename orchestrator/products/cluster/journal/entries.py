"""Entries, long strings and the list of sessions, written with the audit in one statement."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, LiteralString

import msgspec
from msgspec.structs import asdict, replace

from orchestrator.delegation import SessionId
from orchestrator.ports import journals
from orchestrator.products.cluster.journal.fenced_connection import (
    FENCE,
    FENCED,
    IS_MINE,
    FencedConnection,
)

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

MOST_KNOWN: Final = 10_000
"""How many sessions a writer remembers; others are looked up again."""

_SET_LAST: Final[LiteralString] = """,
        last = %s::bigint, last_at = %s::float8, last_of_none = %s::bigint,
        facts = greatest(facts, %s::integer)"""
_SET_AUDIT: Final[LiteralString] = """, audit_seq = %s::bigint, audit_hash = %s"""
_ENTRIES: Final[LiteralString] = """, new_entries AS (
    INSERT INTO orchestrator.entries
    SELECT mine.journal, it.* FROM mine, json_to_recordset(%s::json) AS it (
        seq bigint, at float8, session text, kind text, version integer, body text,
        previous bigint, checksum bigint)
)"""
_SESSIONS: Final[LiteralString] = """, listed AS (
    INSERT INTO orchestrator.sessions
    SELECT it.session, mine.journal, it.first, it.last, it.used, it.checksum
    FROM mine, json_to_recordset(%s::json) AS it (
        session text, first bigint, last bigint, used text, checksum bigint)
    ON CONFLICT (session, journal) DO UPDATE
    SET last = excluded.last, used = excluded.used, checksum = excluded.checksum
)"""
_PAYLOADS: Final[LiteralString] = """, strings AS (
    INSERT INTO orchestrator.payloads
    SELECT mine.journal, it.key, it.value FROM mine, json_each_text(%s::json) AS it
    ON CONFLICT DO NOTHING
)"""
_AUDIT: Final[LiteralString] = """, audited AS (
    INSERT INTO orchestrator.audit
    SELECT mine.journal, it.* FROM mine, json_to_recordset(%s::json) AS it (
        seq bigint, at float8, actor text, owner text, action text, target text,
        outcome text, peer text, count integer, hash text)
)"""
_KNOWN: Final[LiteralString] = """
SELECT session, first, last, used, checksum FROM orchestrator.sessions
WHERE journal = %s AND session = ANY(%s)
"""


class _EntryRow(msgspec.Struct):
    seq: int
    at: float
    session: str
    kind: str
    version: int
    body: str
    previous: int
    checksum: int


class _SessionRow(msgspec.Struct):
    session: str
    first: int
    last: int
    used: str | None
    checksum: int


class EntryWriter:
    """Writes the contents of a commit. It knows the last entry of each session that it wrote."""

    def __init__(self, connection: FencedConnection) -> None:
        self._connection = connection
        lease = connection.lease
        self.last = lease.last
        self._last_of_none = lease.last_of_none
        self.audit_head = lease.audit
        self._known: dict[str, _SessionRow] = {}

    def write(
        self, facts: Sequence[journals.FactRow], audited: Sequence[journals.AuditedEvent]
    ) -> Collection[str]:
        """Write all of it, or nothing; return the names of the long strings."""
        if not facts and not audited:
            return ()
        self._look_up(facts)
        rows: list[_EntryRow] = []
        payloads: dict[str, str] = {}
        sessions: dict[str, _SessionRow] = {}
        last_of_none, newest = self._last_of_none, 0
        for entry, fact, changed in facts:
            seq, session = entry.seq, entry.session
            body = journals.extract_long_strings(fact.body.decode(), payloads)
            stored = fact.body if len(fact.body) == len(body) else body.encode()
            if session == journals.NO_SESSION:
                previous, last_of_none = last_of_none, seq
            else:
                row = self._row(sessions, session, seq)
                previous, row.last = row.last, seq
            checksum = journals.entry_checksum(
                seq, entry.at, session, fact.kind, fact.version, stored, previous
            )
            rows.append(
                _EntryRow(
                    *(seq, entry.at, session, fact.kind, fact.version), *(body, previous, checksum)
                )
            )
            newest = max(newest, fact.version)
            for listed, used in changed.items():
                row = self._row(sessions, listed, seq)
                row.used = used
                row.checksum = journals.row_checksum(listed, row.first, used)
        chain, head = journals.chain_events(self.audit_head, map(_storable, audited))
        self._execute(
            rows,
            last_of_none=last_of_none,
            newest=newest,
            sessions=sessions,
            payloads=payloads,
            chain=chain,
        )
        if facts:
            self.last = facts[-1][0].seq
        self._last_of_none, self.audit_head = last_of_none, head
        self._known |= sessions
        return payloads.keys()

    def forget(self, sessions: Iterable[SessionId]) -> None:
        """Forget sessions that are deleted."""
        for session in sessions:
            self._known.pop(session, None)

    def _row(self, sessions: dict[str, _SessionRow], session: str, seq: int) -> _SessionRow:
        """Return the row of a session after this commit; known values stay."""
        row = sessions.get(session)
        if row is None:
            known = self._known.get(session)
            if known is None:
                checksum = journals.row_checksum(session, seq, None)
                row = _SessionRow(session, seq, 0, None, checksum)
            else:
                row = _SessionRow(session, known.first, known.last, known.used, known.checksum)
            sessions[session] = row
        return row

    def _look_up(self, facts: Sequence[journals.FactRow]) -> None:
        named = {entry.session for entry, _, _ in facts}
        named.update(session for _, _, changed in facts for session in changed)
        unknown = [it for it in named if it and it not in self._known]
        if not unknown:
            return
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
            unknown = [it for it in named if it]
        journal = self._connection.lease.journal

        def look(connection: "Connection") -> Sequence[tuple[object, ...]]:
            return connection.execute(_KNOWN, (journal, unknown), prepare=True).fetchall()

        for row in msgspec.convert(self._connection.read(look), list[_Known]):
            session, first, last, used, checksum = row
            self._known[session] = _SessionRow(session, first, last, used, checksum)

    def _execute(
        self,
        rows: Sequence[_EntryRow],
        *,
        last_of_none: int,
        newest: int,
        sessions: dict[str, _SessionRow],
        payloads: dict[str, str],
        chain: Sequence[journals.AuditRow],
    ) -> None:
        changed: list[str] = []
        values: list[str] = []
        set_: LiteralString = ""
        inserts: LiteralString = ""
        if rows:
            set_ += _SET_LAST
            last = rows[-1]
            changed += [str(last.seq), repr(last.at), str(last_of_none), str(newest)]
            inserts += _ENTRIES
            values.append(_json(rows))
        if chain:
            set_ += _SET_AUDIT
            changed += [str(chain[-1].seq), chain[-1].hash]
            inserts += _AUDIT
            values.append(_json([it.as_dict() for it in chain]))
        if sessions:
            inserts += _SESSIONS
            values.append(_json(list(sessions.values())))
        if payloads:
            inserts += _PAYLOADS
            values.append(_json(payloads))
        statement = FENCE + set_ + FENCED + inserts + IS_MINE
        self._connection.execute(statement, changed, values)


_Known = tuple[str, int, int, str | None, int]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _storable(audited: journals.AuditedEvent) -> journals.AuditedEvent:
    """Return an event without the one character that Postgres has no text for."""
    at, event = audited
    clean = {
        name: value.replace("\0", "\ufffd")
        for name, value in asdict(event).items()
        if isinstance(value, str) and "\0" in value
    }
    return (at, replace(event, **clean)) if clean else audited
