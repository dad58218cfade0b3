"""Which sessions are in memory: all that are active, and the idle ones that were so last.

An idle session that is evicted stays in the journal, and is read back when it is needed.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import attrs

from delegation import (
    Ledger,
    SessionId,
    SessionRecord,
    encode_shared_use,
    evict_session,
    restore_session,
)
from delegation.events import Entry, JournalOpened, SessionOpened
from orchestrator.journal.journal import Journal, fold_entries

MAX_IDLE_TASKS: Final = 10_000
"""How many tasks of idle sessions stay in memory: some 20 MB."""
NO_CHANGES: Final[Mapping[SessionId, str | None]] = {}


@attrs.define
class _SessionRead:
    """A session that is being read back: by how many, and how often it was evicted again."""

    readers: int = 0
    evictions: int = 0


class SessionCache:
    """Knows the active sessions, and evicts the idle ones that were used least recently."""

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        wait_durable: Callable[[], Awaitable[None]],
    ) -> None:
        self.active = set(ledger.sessions)
        """The sessions that are not idle."""
        self._journal = journal
        self._ledger = ledger
        self._wait_durable = wait_durable
        self._idle_sizes: dict[SessionId, int] = {}
        """The idle sessions in memory and the size of their trees, oldest first."""
        self._idle_tasks = 0
        self._reads: dict[SessionId, _SessionRead] = {}

    def note_fact(self, entry: Entry) -> Mapping[SessionId, str | None]:
        """Return the sessions that a fact has made idle or active.

        The value is what an idle session has used of shared budgets, and None for an active one.
        """
        session = self._ledger.sessions.get(entry.session)
        if session is not None:
            if session.turn is not None and entry.session in self.active:
                return NO_CHANGES  # most facts: the session is known to be active
            # A new session is about to get its first message.
            is_new = isinstance(entry.event, SessionOpened)
            changed = self._mark_active(session) if is_new else self._update(session)
        elif isinstance(entry.event, JournalOpened):
            changed = dict[SessionId, str | None]()
            for session in list(self._ledger.sessions.values()):
                changed |= self._update(session)
        else:
            return NO_CHANGES
        self._evict_oldest(but=entry.session)
        return changed

    async def load(self, session: SessionId) -> None:
        """Read a session back into memory if it was evicted."""
        reading = self._reads.setdefault(session, _SessionRead())
        reading.readers += 1
        try:
            while True:
                evictions = reading.evictions
                past = await self.read_evicted(session)
                # Another task may have loaded, used and evicted it: then this is out of date.
                if evictions == reading.evictions:
                    break
        finally:
            reading.readers -= 1
            if not reading.readers:
                del self._reads[session]
        if past is not None and self._ledger.is_evicted(session):
            restore_session(self._ledger, session, past)
            self._mark_idle(self._ledger.sessions[session])
            self._evict_oldest(but=session)

    async def read_evicted(self, session: SessionId) -> Ledger | None:
        """Return a ledger of an evicted session alone; None if the session is in memory."""
        # A fact that was just posted may not be in the journal yet.
        await self._wait_durable()
        if not self._ledger.is_evicted(session):
            return None
        entries = await self._journal.read_session(session)
        return fold_entries(entries, type(self._journal).__name__, self._ledger.rules)

    def evict_idle(self) -> None:
        """Evict all idle sessions, however few their tasks are."""
        for session in list(self._idle_sizes):
            self._evict(session)

    def _update(self, session: SessionRecord) -> dict[SessionId, str | None]:
        if not session.is_idle:
            return {} if session.id in self.active else self._mark_active(session)
        if session.id not in self.active:
            return {}
        self.active.remove(session.id)
        self._mark_idle(session)
        return {session.id: encode_shared_use(session)}

    def _mark_active(self, session: SessionRecord) -> dict[SessionId, str | None]:
        self.active.add(session.id)
        self._idle_tasks -= self._idle_sizes.pop(session.id, 0)
        return {session.id: None}

    def _mark_idle(self, session: SessionRecord) -> None:
        self._idle_sizes[session.id] = len(session.tree)
        self._idle_tasks += len(session.tree)

    def _evict_oldest(self, *, but: SessionId) -> None:
        # The newest stays, however large: the caller of its run may read its tree now. So does the
        # session of the fact that is being posted: its poster works with the record.
        while self._idle_tasks > MAX_IDLE_TASKS and len(self._idle_sizes) > 1:
            session = next(iter(self._idle_sizes))
            if session == but:
                self._idle_sizes[session] = self._idle_sizes.pop(session)
                return
            self._evict(session)

    def _evict(self, session: SessionId) -> None:
        self._idle_tasks -= self._idle_sizes.pop(session)
        if session in self._reads:
            self._reads[session].evictions += 1
        evict_session(self._ledger, session)
