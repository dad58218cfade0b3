"""Entries as they are stored in rows: verified and decoded for every reader, in every backend.

An entry that is damaged or missing is an error that names it. The session of it cannot be read; the
others can.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from orchestrator.delegation import Encoded, SessionId, UnreadableFactError, decode
from orchestrator.delegation.events import Entry
from orchestrator.kernel.journal.checksums import entry_checksum, row_checksum
from orchestrator.kernel.journal.long_strings import MARK_BYTES, digest, restore_long_strings

IdleChanges: TypeAlias = Mapping[SessionId, str | None]
FactRow: TypeAlias = tuple[Entry, Encoded, IdleChanges]
Row: TypeAlias = tuple[int, float, str, str, int, bytes, int, int]
"""The number, time, session, kind, version and body of an entry, the entry before it in its
session, and its checksum."""
FindString: TypeAlias = Callable[[str], bytes | None]
"""Returns the long string of a digest; None if there is none."""

MAX_SECONDS: Final = 60_000_000_000
"""The time of a fact is less, before or after 1970: the calendar of Python goes a bit further."""
FACT_BYTES: Final = 64_000_000
FACT_SHARE: Final = 4
"""The limit of one fact's long strings: a number of bytes, and a multiple of its file."""
READ_BYTES: Final = 1_000_000_000
READ_SHARE: Final = 64
"""The same of all entries that are read together."""
NO_SESSION: Final = SessionId("")
RESTORE: Final = "restore a copy of the journal"
WHAT_TO_DO: Final = f"delete the run (orchestrator runs --delete RUN), or {RESTORE}"


class Allowance:
    """How much the long strings of some entries may come to, for the size of their file.

    In honest files many facts share a string. Those of a stranger may ask for all memory there is.
    """

    def __init__(self, size: int) -> None:
        self.of_fact: int = FACT_BYTES + FACT_SHARE * size
        self.left: int = READ_BYTES + READ_SHARE * size

    def restore(self, body: bytes, find: Callable[[str], bytes]) -> bytes:
        limit = min(self.of_fact, self.left)
        restored = restore_long_strings(body, find, limit=limit)
        self.left -= len(restored) - len(body)
        return restored


def decode_row(row: Row, find_string: FindString, allowance: Callable[[], Allowance]) -> Entry:
    """Return the entry of a row."""
    require_whole(row)
    seq, at, session, kind, version, body, _, _ = row
    if not abs(at) < MAX_SECONDS:
        raise UnreadableFactError(f"entry {seq} is damaged: {at!r} is not a time; {WHAT_TO_DO}")
    try:
        if MARK_BYTES in body:
            body = allowance().restore(body, partial(_whole_string, find_string, kind))
        event = decode(Encoded(kind, version, body))
    except UnreadableFactError as exc:
        raise UnreadableFactError(f"entry {seq} is {exc}; {WHAT_TO_DO}") from exc
    return Entry(seq, at, SessionId(session), event)


def _whole_string(find: FindString, kind: str, name: str) -> bytes:
    string = find(name)
    if string is None:
        raise UnreadableFactError(f"a damaged {kind!r}: its string {name} is missing")
    if digest(string) != name:
        raise UnreadableFactError(f"a damaged {kind!r}: its string {name} was changed")
    return string


def require_whole(row: Row) -> None:
    """Refuse a row that does not match its checksum."""
    seq, at, session, kind, version, body, previous, checksum = row
    try:
        found = entry_checksum(seq, at, session, kind, version, body, previous)
        is_whole = found == checksum
    except (struct.error, TypeError, ValueError):
        is_whole = False  # a damaged row may have anything in its columns
    if not is_whole:
        raise UnreadableFactError(
            f"entry {seq} is damaged: it does not match its checksum; {WHAT_TO_DO}"
        )


def require_chain(rows: Sequence[Row], after: int, last: int) -> None:
    """Refuse the entries of a session, or of none, if one between `after` and `last` is missing."""
    seq = after
    for row in rows:
        previous = row[6]
        if previous > seq if seq == after else previous != seq:
            raise UnreadableFactError(
                f"entry {previous}, before entry {row[0]}, is missing; {WHAT_TO_DO}"
            )
        seq = row[0]
    if seq < last or (rows and seq > last):
        raise UnreadableFactError(
            f"entry {last} should be the last one, and {seq} is; {WHAT_TO_DO}"
        )


def require_chains(
    session: SessionId, rows: Sequence[Row], after: int, *, last: int, last_of_none: int
) -> None:
    """Refuse a session with an entry after `after` that is missing or cannot be found.

    The rows include entries without a session; the last of them is `last_of_none`.
    """
    own = [row for row in rows if row[2] == session]
    none = [row for row in rows if not row[2]]
    require_chain(own, after, last)
    if not own:
        return
    if none and none[-1][0] > last:
        last_of_none = none[-1][0]
    require_chain(none, max(after, own[0][0]), last_of_none)


def verify_active(
    rows: Iterable[Row],
    active: Mapping[SessionId, int],
    *,
    decode: Callable[[Row], Entry],
    last_entry: Callable[[SessionId], int],
) -> tuple[list[Entry], dict[SessionId, str]]:
    """Return the entries of the whole sessions, and the problems of the others.

    Args:
        rows: the entries of active sessions, and journal-wide ones, in order.
        active: the number of the first entry of each active session.
        decode: returns the entry of a row.
        last_entry: returns the number of the last entry of a session, or of the journal-wide ones.
    """
    entries: list[Entry] = []
    damaged: dict[SessionId, str] = {}
    chains: dict[str, list[Row]] = {session: [] for session in (*active, NO_SESSION)}
    for row in rows:
        if row[2] not in chains:
            raise UnreadableFactError(f"entry {row[0]} is damaged; {RESTORE}")
        chains[row[2]].append(row)
        try:
            entries.append(decode(row))
        except UnreadableFactError as exc:
            damaged |= _concerned(row[2], row[0], active, exc)
    for session, chain in chains.items() if active else ():
        last = last_entry(SessionId(session))
        try:
            require_chain(chain, 0 if session else min(active.values()), last)
        except UnreadableFactError as exc:
            damaged |= _concerned(session, last, active, exc)
    if damaged:
        entries = [entry for entry in entries if entry.session not in damaged]
    return entries, damaged


def _concerned(
    session: str, seq: int, active: Mapping[SessionId, int], problem: Exception
) -> dict[SessionId, str]:
    """Return the active sessions that cannot be read without an entry, and why."""
    if session:
        return {SessionId(session): str(problem)}
    # That all processes ended is news for all sessions that had begun.
    return {it: str(problem) for it, first in active.items() if first <= seq}


def require_listed(session: str, first: int, used: str | None, checksum: int) -> None:
    """Refuse a row of the session list that does not match its checksum."""
    if checksum != row_checksum(session, first, used):
        raise UnreadableFactError(f"the list of runs is damaged at run {session!r}; {RESTORE}")


class _Opening(msgspec.Struct):
    """The owner in the first fact of a session: nothing else of it is decoded."""

    owner: str = ""


_OPENING: Final = msgspec.json.Decoder(_Opening)


def owner_in(body: bytes | str) -> str:
    """Return the owner in the body of the fact that opened a session; empty if it has none."""
    try:
        return _OPENING.decode(body).owner
    except (msgspec.MsgspecError, UnicodeError):
        return ""  # damaged: reading the session says so
