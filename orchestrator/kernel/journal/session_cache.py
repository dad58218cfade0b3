"""Keeps sessions in memory: all active ones, and those at rest that were active last.

A session at rest that is evicted stays in the journal, with the replies that no door has taken, and
is read back when it is needed.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
import trio

from orchestrator.agents import AssistantMessage, Message, ToolMessage, UserMessage
from orchestrator.delegation import (
    Ledger,
    SessionId,
    SessionRecord,
    encode_shared_use,
    evict_session,
    restore_session,
)
from orchestrator.delegation.events import Entry, JournalOpened, SessionOpened
from orchestrator.delegation.snapshot import MIN_FACTS_LEFT, is_snapshot_due
from orchestrator.kernel.journal.journal import Journal
from orchestrator.kernel.journal.session_summary import MIN_FACTS, SECONDS, SHARE, summarize

MAX_RESTING_TASKS: Final = 2_000
"""The number of tasks of resting sessions that stay in memory: some 5 MB.

A full garbage collection walks through them while every other task waits: 10,000 of them make it
three times as long.
"""
MAX_RESTING_BYTES: Final = 16_000_000
"""How much of their facts stays with them: one image may weigh as much as 2,000 tasks."""
TOKEN_BYTES: Final = 100
"""About how many bytes a token and its probability have."""

NO_CHANGES: Final[Mapping[SessionId, str | None]] = {}


class _Size(msgspec.Struct, frozen=True, gc=False):
    """The memory of a resting session."""

    tasks: int
    bytes: int


class _SessionRead(msgspec.Struct):
    """A session that is being read back: by how many, and how often it was evicted again."""

    readers: int = 0
    evictions: int = 0


class _SharedFold:
    """A session that is being folded for all that ask for it."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.ledger: Ledger | None = None
        """None if its reader was cancelled or failed."""


class SessionCache:
    """Knows the active sessions, and evicts those at rest that were used least recently."""

    def __init__(
        self, journal: Journal, ledger: Ledger, wait_durable: Callable[[], Awaitable[None]]
    ) -> None:
        self.active = set(ledger.sessions)
        """The sessions that are not at rest."""
        self.untaken: dict[SessionId, None] = {}
        """The sessions at rest whose replies no door has taken, in memory or not.

        The journal lists them with the active ones: they are neither idle nor pruned."""
        self._journal = journal
        self._ledger = ledger
        self._opened: SessionId | None = None
        """The session that the last fact has opened."""
        self._wait_durable = wait_durable
        self._bytes = {id_: _weigh(ledger, id_) for id_ in ledger.sessions}
        """The size of each session in memory, as its facts are stored."""
        self._resting_sizes: dict[SessionId, _Size] = {}
        """The sessions at rest in memory, oldest first."""
        self._summarized: dict[SessionId, tuple[int, float]] = {}
        """The number of facts and the time of the last summary of each long session in memory."""
        is_read_by_others = journal.file is not None or journal.spans_hosts
        self._min_facts = MIN_FACTS if is_read_by_others else math.inf
        self._resting_tasks = 0
        self._resting_bytes = 0
        self._reads: dict[SessionId, _SessionRead] = {}
        self._folds: dict[SessionId, _SharedFold] = {}
        """The folds under way that are as new as the last eviction."""

    def note_fact(
        self, entry: Entry, session: SessionRecord | None, size: int
    ) -> Mapping[SessionId, str | None]:
        """Return the sessions that a fact, of a stored size, has made idle or active.

        The value is the shared budget usage of an idle session, and None for an active one.
        """
        id_ = entry.session
        if session is not None:
            self._bytes[id_] = self._bytes[id_] + size if id_ in self._bytes else size
            if session.facts >= self._min_facts:
                self._summarize_if_due(session, entry)
            if session.turn is not None and self._opened is None and id_ in self.active:
                return NO_CHANGES  # most facts: the session is known to be active
        changed: dict[SessionId, str | None] = {}
        if self._opened is not None:
            # It got no message in the same step, so it has nothing to do yet.
            opened, self._opened = self._ledger.sessions[self._opened], None
            if opened is not session:
                changed = self._update(opened)
        if isinstance(entry.event, SessionOpened) and session is not None:
            # It is about to get its first message.
            changed |= self._mark_active(session)
            self._opened = session.id
        elif session is not None:
            changed |= self._update(session)
        elif isinstance(entry.event, JournalOpened):
            # Recovery looks at what each of them has left behind, and then calls `trim`.
            return changed | self._update_all(entry)
        if self._resting_tasks > MAX_RESTING_TASKS or self._resting_bytes > MAX_RESTING_BYTES:
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
            self._bytes[session] = _weigh(self._ledger, session)
            self._mark_resting(self._ledger.sessions[session])
            self._evict_oldest(but=session)

    async def read_evicted(self, session: SessionId) -> Ledger | None:
        """Return a ledger of an evicted session alone; None if the session is in memory."""
        # A fact that was just posted may not be in the journal yet.
        await self._wait_durable()
        while self._ledger.is_evicted(session):
            fold = self._folds.get(session)
            if fold is None:
                return await self._fold(session)
            await fold.ended.wait()
            if fold.ledger is not None:
                return fold.ledger
        return None

    async def _fold(self, session: SessionId) -> Ledger:
        """Fold a session once for all that ask for it meanwhile."""
        fold = self._folds[session] = _SharedFold()
        try:
            fold.ledger = await self._journal.read_ledger(session, self._ledger.rules)
            return fold.ledger
        finally:
            if self._folds.get(session) is fold:
                del self._folds[session]
            fold.ended.set()

    def may_release(self, session: SessionId) -> bool:
        """Return whether a session may be deleted: `release` would."""
        return not (session in self.active or session in self.untaken or session in self._reads)

    def release(self, session: SessionId) -> bool:
        """Forget an idle session that is about to be deleted, and return whether it may be.

        It may not be while it is active, has a reply that no door has taken, or is being read.
        """
        if not self.may_release(session):
            return False
        if session in self._ledger.sessions:
            self._evict(session)
        self._ledger.all_sessions.pop(session, None)
        return True

    def trim(self) -> None:
        """Evict the sessions at rest that are too many, those that rest longest first."""
        self._evict_oldest(but=SessionId(""))

    def evict_resting(self) -> None:
        """Evict all sessions at rest, however few their tasks are."""
        for session in list(self._resting_sizes):
            self._evict(session)

    def _update_all(self, entry: Entry) -> dict[SessionId, str | None]:
        changed: dict[SessionId, str | None] = {}
        for session in list(self._ledger.sessions.values()):
            changed |= self._update(session)
            self._summarize(session, entry)
        return changed

    def _update(self, session: SessionRecord) -> dict[SessionId, str | None]:
        id_ = session.id
        if not session.is_at_rest:
            return {} if id_ in self.active else self._mark_active(session)
        was_active = id_ in self.active
        if was_active:
            self.active.remove(id_)
            self._mark_resting(session)
        if session.undelivered:
            self.untaken[id_] = None
            return {}
        if not was_active and id_ not in self.untaken:
            return {}
        self.untaken.pop(id_, None)
        return {id_: encode_shared_use(session)}

    def _summarize_if_due(self, session: SessionRecord, entry: Entry) -> None:
        facts, at = self._summarized.get(session.id, (0, 0.0))
        if (
            session.facts >= facts + facts // SHARE
            or not 0 <= entry.at - at < SECONDS
            or (session.turn is None and session.is_at_rest)
        ):
            self._summarize(session, entry)

    def _summarize(self, session: SessionRecord, entry: Entry) -> None:
        if session.facts >= self._min_facts:
            self._summarized[session.id] = (session.facts, entry.at)
            self._journal.store_summary(summarize(session, self._ledger), entry.seq)

    def _mark_active(self, session: SessionRecord) -> dict[SessionId, str | None]:
        self.active.add(session.id)
        self.untaken.pop(session.id, None)
        self._unmark_resting(session.id)
        return {session.id: None}

    def _mark_resting(self, session: SessionRecord) -> None:
        size = _Size(len(session.tree), self._bytes[session.id])
        self._resting_sizes[session.id] = size
        self._resting_tasks += size.tasks
        self._resting_bytes += size.bytes

    def _unmark_resting(self, session: SessionId) -> None:
        if (size := self._resting_sizes.pop(session, None)) is not None:
            self._resting_tasks -= size.tasks
            self._resting_bytes -= size.bytes

    def _evict_oldest(self, *, but: SessionId) -> None:
        # The newest stays, however large: the caller of its run may read its tree now. So does the
        # session of the fact that is being posted: its poster works with the record.
        while len(self._resting_sizes) > 1 and (
            self._resting_tasks > MAX_RESTING_TASKS or self._resting_bytes > MAX_RESTING_BYTES
        ):
            session = next(iter(self._resting_sizes))
            if session == but:
                self._resting_sizes[session] = self._resting_sizes.pop(session)
                return
            self._evict(session)

    def _evict(self, session: SessionId) -> None:
        self._unmark_resting(session)
        del self._bytes[session]
        self._summarized.pop(session, None)
        if session in self._reads:
            self._reads[session].evictions += 1
        # A fold that began before lacks what was posted since.
        self._folds.pop(session, None)
        past = evict_session(self._ledger, session)
        self._store_snapshot(past, past.sessions[session])

    def store_snapshots(self) -> None:
        """Store the sessions in memory that have many new facts: no more will come."""
        for session in self._ledger.sessions.values():
            self._store_snapshot(self._ledger, session)

    def _store_snapshot(self, ledger: Ledger, session: SessionRecord) -> None:
        # A run has one turn, and mostly is over then: no reader may come.
        if session.turns > 1 and is_snapshot_due(session, MIN_FACTS_LEFT):
            session.facts_in_snapshot = session.facts
            self._journal.store_snapshot(ledger, session)


def _weigh(ledger: Ledger, session: SessionId) -> int:
    """Return about how many bytes the texts of a session that was read have."""
    record = ledger.sessions[session]
    kept = len(msgspec.json.encode(record.states)) if record.states else 0
    return kept + sum(ledger.tasks[task].transcript.total(_message_bytes) for task in record.tree)


def _message_bytes(message: Message) -> int:
    match message:
        case UserMessage() | ToolMessage():
            return len(message.text) + sum(len(it.data) for it in message.parts)
        case AssistantMessage():
            tokens = sum(1 + len(it.alternatives) for it in message.logprobs)
            return len(message.text) + TOKEN_BYTES * tokens
