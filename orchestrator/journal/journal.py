"""The port behind which the journal is kept."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import attrs

from delegation import (
    Encoded,
    ImpossibleEventError,
    Ledger,
    Rules,
    SessionId,
    UnreadableFactError,
    register_idle_session,
)
from delegation.events import Entry
from orchestrator.errors import JournalError

PRUNED_SESSION: Final = SessionId("")
"""In whose name is remembered what sessions that are gone have used."""


@attrs.frozen(kw_only=True)
class JournalContents:
    """What a journal has kept, as far as anybody has to know it."""

    entries: Sequence[Entry]
    """Those of sessions that are not at rest, and those of no session."""
    last_seq: int
    """The number of the last entry, whosesoever it is."""
    sessions: Mapping[SessionId, str | None] = {}
    """All sessions, oldest first: of those at rest, what they have used of shared budgets; None
    is one that is not."""
    pruned: Sequence[str] = ()
    """What sessions that are gone for good had used of shared budgets."""


class Journal(Protocol):
    """Keeps entries, in order, for ever. One orchestrator writes it at a time."""

    def append(
        self,
        entry: Entry,
        encoded: Encoded,
        idle_changes: Mapping[SessionId, str | None],
    ) -> None:
        """Take the next entry, and its fact as it is written down.

        It is safe once `wait_durable` says so.

        Args:
            entry: what happened.
            encoded: the same as it is written down.
            rest: the sessions that are at rest by it, with what they have used of shared
                budgets; None is one that no longer is.
        """
        ...

    async def wait_durable(self, seq: int) -> None:
        """Wait until the entry of this number, and all before it, survive a crash."""
        ...

    async def read(self) -> JournalContents:
        """Return what was kept so far."""
        ...

    async def read_session(self, session: SessionId) -> Sequence[Entry]:
        """Return the entries of one session, and those of no session among them."""
        ...

    async def read_naming(self, kind: str, id_: str) -> Sequence[Entry]:
        """Return the entries of one kind in which an id stands, whosesoever they are."""
        ...


def restore_ledger(
    contents: JournalContents, name: object, rules: Rules | None = None
) -> Ledger:
    """Return what is true after all that the journal of this name has kept."""
    ledger = Ledger(rules)
    try:
        for used in contents.pruned:
            register_idle_session(ledger, PRUNED_SESSION, used)
        ledger.all_sessions.pop(PRUNED_SESSION, None)
        for session, used_by_it in contents.sessions.items():
            register_idle_session(ledger, session, used_by_it or "")
    except UnreadableFactError as exc:
        raise JournalError(name, str(exc)) from exc
    fold(ledger, contents.entries, name)
    ledger.last_seq = contents.last_seq
    return ledger


def fold_entries(
    entries: Sequence[Entry], name: object, rules: Rules | None = None
) -> Ledger:
    """Return what is true after these entries: all of a journal, or all of one session."""
    ledger = Ledger(rules)
    fold(ledger, entries, name)
    return ledger


def fold(ledger: Ledger, entries: Sequence[Entry], name: object) -> None:
    for entry in entries:
        try:
            ledger.fold(entry)
        except ImpossibleEventError as exc:
            problem = f"entry {entry.seq} contradicts those before it: {exc.because}"
            raise JournalError(name, problem) from exc
