"""Checks of a journal that are the same in every backend: of its entries, sessions and audit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from orchestrator.delegation import (
    SessionId,
    SessionRecord,
    UnreadableFactError,
    UnwritableFactError,
    decode_used_amounts,
    encode_shared_use,
)
from orchestrator.delegation.events import Entry
from orchestrator.delegation.snapshot import Snapshot, is_own_layout, is_same_state
from orchestrator.delegation.snapshot.capture import take_snapshot
from orchestrator.delegation.snapshot.restore import restore_snapshot
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.audit import AuditLog
from orchestrator.kernel.journal.journal import fold_entries
from orchestrator.kernel.journal.snapshots import StoredSnapshot, is_whole
from orchestrator.kernel.journal.store import Finding, Level
from orchestrator.kernel.journal.stored_entries import RESTORE, WHAT_TO_DO, Row, require_whole

EXAMPLES: Final = 3
"""How many problems of one kind are listed one by one."""


@attrs.define
class Damage:
    """The entries of one session, or of none, that are damaged or missing."""

    entries: list[int] = attrs.Factory(list[int])
    last: int = 0
    """The last entry that was seen."""

    def text(self, session: str) -> str:
        shown = ", ".join(map(str, self.entries[:EXAMPLES]))
        if (more := len(self.entries) - EXAMPLES) > 0:
            shown += f" and {more} more"
        if not session:
            return f"entries of no run are damaged or missing: {shown}; {RESTORE}"
        return f"run {session!r}: entries are damaged or missing: {shown}; {WHAT_TO_DO}"


def compare_entry(row: Row, damage: Damage) -> None:
    """Note an entry, and whether the one before it is there."""
    seq, previous = row[0], row[6]
    try:
        require_whole(row)
    except UnreadableFactError:
        damage.entries.append(seq)
    else:
        if previous != damage.last:
            damage.entries.append(previous)
    damage.last = seq


@attrs.define
class Totals:
    """The sum of all sessions."""

    runs: int = 0
    active: int = 0
    undelivered: int = 0
    listed_active: int = 0
    """Idle sessions that are listed as active: they cost time, and nothing else."""
    problems: list[str] = attrs.Factory(list[str])


def compare_session(
    record: SessionRecord, listed: Mapping[str, str | None], totals: Totals
) -> None:
    """Compare the fold of a session with the list."""
    totals.active += not record.is_idle
    totals.undelivered += len(record.undelivered)
    used = listed.get(record.id)
    if used is None:
        totals.listed_active += record.is_idle
    elif not record.is_idle:
        totals.problems.append(f"run {record.id} is listed as idle, and is not")
    elif decode_used_amounts(used) != decode_used_amounts(encode_shared_use(record)):
        totals.problems.append(
            f"run {record.id} has not used what the list says of the budgets it shares"
        )


def compare_ends(
    damages: dict[str, Damage], listed: Mapping[str, int | None]
) -> Mapping[str, Damage]:
    """Return the damaged sessions, by the last entry of each; None is one being deleted."""
    for session in {**listed, **damages}:
        damage = damages.setdefault(session, Damage())
        last = listed.get(session, 0)
        if last is not None and damage.last != last:
            damage.entries.append(last or damage.last)
    return {it: found for it, found in damages.items() if found.entries}


def report_totals(totals: Totals) -> Iterator[Finding]:
    """Yield the findings of the folds of all sessions."""
    fine = f"all of its {totals.runs:,} runs can be rebuilt from their entries"
    yield from report("of its runs,", totals.problems, fine)
    if totals.listed_active:
        text = f"{totals.listed_active} idle runs are listed as active; opening it corrects that"
        yield Finding(Level.NOTE, text)
    text = f"{totals.active} of its runs are not idle; {totals.undelivered} replies are not taken"
    yield Finding(Level.FINE, text)


def report_strings(referenced: Iterable[str], stored: Mapping[str, bool]) -> Iterator[Finding]:
    """Yield which long strings are missing, damaged or spare; `stored` says which are unchanged."""
    names = {*referenced}
    problems = [f"string {name} is missing" for name in sorted(names - stored.keys())]
    problems += [f"string {name} was changed" for name, is_whole in stored.items() if not is_whole]
    fine = f"all of its {len(stored):,} long strings are there"
    yield from report("of its long strings,", problems, fine)
    if spare := len(stored.keys() - names):
        yield Finding(Level.NOTE, f"{spare} of its long strings are used by no fact")


def check_audit(log: AuditLog) -> Finding:
    """Follow the chain of the audit from its beginning to its head."""
    broken = log.find_break()
    if broken is None:
        text = f"its audit of {log.head.seq:,} rows is as it was written; its head is {log.head}"
        return Finding(Level.FINE, text)
    return Finding(Level.WRONG, f"row {broken.seq} of its audit {broken.problem}; {RESTORE}")


def check_snapshots(
    snapshots: Iterable[StoredSnapshot],
    entries: Callable[[SessionId], Sequence[Entry]],
    name: object,
) -> Iterator[Finding]:
    """Fold the entries of each snapshot again, and compare."""
    problems: list[str] = []
    count = others = 0
    for snapshot, checksum in snapshots:
        count += 1
        if not is_whole(snapshot, checksum):
            problems.append(f"the one of run {snapshot.session} does not match its checksum")
        elif not is_own_layout(snapshot):
            others += 1
        elif not _is_fold_of_entries(snapshot, entries, name):
            problems.append(
                f"the one of run {snapshot.session} differs from the fold of its entries"
            )
    fine = f"all of its {count - others:,} snapshots match their entries"
    yield from report("of its snapshots,", problems, fine)
    if others:
        text = f"{others} of its snapshots were made by another version, and are not used"
        yield Finding(Level.NOTE, text)


def _is_fold_of_entries(
    snapshot: Snapshot, read: Callable[[SessionId], Sequence[Entry]], name: object
) -> bool:
    try:
        rules = restore_snapshot(snapshot).rules
        entries = read(snapshot.session)
        folded = [entry for entry in entries if entry.seq <= snapshot.seq]
        ledger = fold_entries(folded, name, rules)
        ledger.last_seq = snapshot.seq
        session = ledger.sessions.get(snapshot.session)
        if session is None:
            return False
        return is_same_state(snapshot, take_snapshot(ledger, session))
    except (UnreadableFactError, UnwritableFactError, JournalError):
        return False


def report(what: str, problems: Sequence[str], fine: str) -> Iterator[Finding]:
    """Yield the problems, a few by example, or one line that there are none."""
    if not problems:
        yield Finding(Level.FINE, fine)
    for problem in problems[:EXAMPLES]:
        yield Finding(Level.WRONG, f"{what} {problem}")
    if (more := len(problems) - EXAMPLES) > 0:
        yield Finding(Level.WRONG, f"{what} {more} more are wrong")
