"""Snapshots of sessions on their way into a journal and out of it, in every backend.

A snapshot that does not fit is as good as none: the entries are the truth, and are folded instead.
"""

import gc
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TypeAlias

import trio

from orchestrator.delegation import (
    Ledger,
    Rules,
    SessionId,
    SessionRecord,
    UnreadableFactError,
    UnwritableFactError,
)
from orchestrator.delegation.events import Entry
from orchestrator.delegation.snapshot import Snapshot, is_snapshot_due, snapshot_layout
from orchestrator.kernel.journal.checksums import snapshot_checksum
from orchestrator.kernel.journal.journal import fold

StoredSnapshot: TypeAlias = tuple[Snapshot, int]
"""A snapshot with its checksum."""
StoreSnapshot: TypeAlias = Callable[[Ledger, SessionRecord], None]
"""Stores the state of a session."""


class SnapshotQueue:
    """Encodes snapshots in a worker thread, for the next commit to write.

    Of each session, only the newest matters.
    """

    def __init__(self) -> None:
        self._left: dict[SessionId, tuple[Ledger, SessionRecord]] = {}
        """The sessions that no fact changes any more, each with its ledger."""
        self._encoded = SimpleQueue[StoredSnapshot]()
        """Those for the next commit, which is in another thread."""
        self._waiting: dict[SessionId, StoredSnapshot] = {}
        """Those that `take` has found, and that wait for the entries they were made of."""
        self._has_left = trio.Event()
        self._is_encoded = trio.Event()
        self._is_encoded.set()

    def put(self, ledger: Ledger, session: SessionRecord) -> None:
        """Encode a session that no fact changes any more."""
        self._left[session.id] = (ledger, session)
        self._has_left.set()
        if self._is_encoded.is_set():
            self._is_encoded = trio.Event()

    def encode(self, ledger: Ledger, session: SessionRecord) -> None:
        """Encode a session in this thread; without a snapshot, it is only read more slowly."""
        # Imported late: most sessions are too short for one.
        from orchestrator.delegation.snapshot.capture import take_snapshot

        with suppress(UnwritableFactError):
            snapshot = take_snapshot(ledger, session)
            self._encoded.put((snapshot, _checksum(snapshot)))

    def take(self, *, until: float = math.inf) -> list[StoredSnapshot]:
        """Return the encoded snapshots of entries up to a number that were not taken yet.

        One that is stored before its entries would bring back facts that never were durable.
        """
        for _ in range(self._encoded.qsize()):
            stored = self._encoded.get()
            self._waiting[stored[0].session] = stored
        taken = [it for it in self._waiting.values() if it[0].seq <= until]
        for snapshot, _ in taken:
            del self._waiting[snapshot.session]
        return taken

    async def encode_forever(self, scope: trio.CancelScope) -> None:
        """Encode sessions, one after the other, until the scope is cancelled."""
        with scope:
            while True:
                await self._has_left.wait()
                self._has_left = trio.Event()
                while self._left:
                    ledger, session = self._left.pop(next(iter(self._left)))
                    await trio.to_thread.run_sync(self.encode, ledger, session)
                self._is_encoded.set()

    async def wait_encoded(self) -> None:
        """Wait until all sessions are encoded."""
        await self._is_encoded.wait()


def _checksum(snapshot: Snapshot) -> int:
    return snapshot_checksum(snapshot.session, snapshot.seq, snapshot.layout, snapshot.state)


def is_whole(snapshot: Snapshot, checksum: int) -> bool:
    """Return whether a snapshot matches its checksum."""
    return _checksum(snapshot) == checksum


def fold_stored(
    snapshots: Iterable[StoredSnapshot],
    entries: Callable[[int], Sequence[Entry]],
    name: object,
    rules: Rules,
    store: StoreSnapshot | None = None,
) -> Ledger:
    """Return the ledger of one session alone: its snapshot, and the entries after it.

    Args:
        snapshots: that of the session, if there is one.
        entries: returns the entries of the session after a number.
        name: the journal, for errors.
        rules: of the ledger.
        store: stores a snapshot after a long fold, so that the next one is short.
    """
    ledger = Ledger(rules)
    with _without_collections():
        for snapshot, checksum in snapshots:
            fits = snapshot.layout == snapshot_layout(rules)
            if fits and is_whole(snapshot, checksum):
                # Imported late: most sessions are too short for one.
                from orchestrator.delegation.snapshot.restore import restore_snapshot

                # The facts are the truth: they are folded instead of one that cannot be read.
                with suppress(UnreadableFactError):
                    ledger = restore_snapshot(snapshot)
        fold(ledger, entries(ledger.last_seq), name)
        for session in ledger.sessions.values():
            if store is not None and is_snapshot_due(session):
                session.facts_in_snapshot = session.facts
                store(ledger, session)
    return ledger


@contextmanager
def _without_collections() -> Generator[None]:
    """Collect no garbage: all that is made here lives on, and each collection would walk it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
