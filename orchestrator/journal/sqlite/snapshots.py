"""Snapshots of sessions in a SQLite file, so that a long session is read in a moment.

A snapshot that does not fit is as good as none: the entries are the truth, and are folded instead.
"""

import gc
import math
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import trio

from delegation import Ledger, Rules, SessionId
from delegation.snapshot import (
    Snapshot,
    SnapshotCapture,
    restore_snapshot,
    snapshot_layout,
)
from orchestrator.journal.journal import fold
from orchestrator.journal.sqlite.checksums import row_checksum
from orchestrator.journal.sqlite.reader import SQLiteReader
from orchestrator.journal.sqlite.schema import has_table


class SnapshotQueue:
    """Encodes snapshots in a worker thread, for the next commit to write.

    Of each session, only the newest matters.
    """

    def __init__(self) -> None:
        self._captured: dict[SessionId, SnapshotCapture] = {}
        self._encoded = SimpleQueue[Snapshot]()
        """Those for the next commit, which is in another thread."""
        self._waiting: dict[SessionId, Snapshot] = {}
        """Those that `take` has found, and that wait for the entries they were made of."""
        self._has_captured = trio.Event()
        self._is_encoded = trio.Event()
        self._is_encoded.set()

    def put(self, capture: SnapshotCapture) -> None:
        self._captured[capture.session] = capture
        self._has_captured.set()
        if self._is_encoded.is_set():
            self._is_encoded = trio.Event()

    def take(self, *, until: float = math.inf) -> list[Snapshot]:
        """Return the encoded snapshots that were not taken yet.

        Args:
            until: only those of entries up to this number. One that is stored before its entries
                would bring back, after a crash, facts that never were durable.
        """
        for _ in range(self._encoded.qsize()):
            snapshot = self._encoded.get()
            self._waiting[snapshot.session] = snapshot
        taken = [it for it in self._waiting.values() if it.seq <= until]
        for snapshot in taken:
            del self._waiting[snapshot.session]
        return taken

    async def encode_forever(self, scope: trio.CancelScope) -> None:
        """Encode what is captured, one session after the other, until the scope is cancelled."""
        with scope:
            while True:
                await self._has_captured.wait()
                self._has_captured = trio.Event()
                while self._captured:
                    session = next(iter(self._captured))
                    capture = self._captured.pop(session)
                    self._encoded.put(await trio.to_thread.run_sync(capture.encode))
                self._is_encoded.set()

    async def wait_encoded(self) -> None:
        """Wait until all that was captured is encoded."""
        await self._is_encoded.wait()


def write_snapshots(
    connection: sqlite3.Connection, snapshots: Iterable[Snapshot]
) -> None:
    """Write the newest snapshots of sessions, in place of those before."""
    connection.executemany(
        "INSERT OR REPLACE INTO snapshots"
        " SELECT ?1, ?2, ?3, ?4, ?5 FROM sessions WHERE session = ?1",
        [(it.session, it.seq, it.layout, it.state, _checksum(it)) for it in snapshots],
    )


def _checksum(snapshot: Snapshot) -> int:
    return row_checksum(
        snapshot.session, snapshot.seq, snapshot.layout, snapshot.state.hex()
    )


def is_whole(snapshot: Snapshot, checksum: int) -> bool:
    """Return whether a snapshot is what was written."""
    return _checksum(snapshot) == checksum


def stored_snapshots(
    connection: sqlite3.Connection, session: SessionId | None = None
) -> list[tuple[Snapshot, int]]:
    """Return the snapshots, or that of one session, each with its checksum."""
    if not has_table(connection, "snapshots"):
        return []
    rows = connection.execute(
        # A damaged row has anything there; its checksum tells.
        "SELECT session, seq, layout, CAST(coalesce(state, '') AS BLOB), checksum"
        " FROM snapshots WHERE ?1 IS NULL OR session = ?1",
        (session,),
    )
    return [
        (Snapshot(SessionId(id_), seq, layout, state), checksum)
        for id_, seq, layout, state, checksum in rows
    ]


def usable_sessions(connection: sqlite3.Connection, rules: Rules) -> list[SessionId]:
    """Return the active sessions that have a snapshot which this code can read."""
    rows = connection.execute(
        "SELECT session FROM snapshots JOIN sessions USING (session)"
        " WHERE layout = ? AND used IS NULL",
        (snapshot_layout(rules),),
    )
    return [SessionId(session) for (session,) in rows]


def fold_session(
    path: Path, connection: sqlite3.Connection, session: SessionId, rules: Rules
) -> Ledger:
    """Return the ledger of one session alone: its snapshot, and the entries after it."""
    ledger = Ledger(rules)
    with _without_collections():
        for snapshot, checksum in stored_snapshots(connection, session):
            fits = snapshot.layout == snapshot_layout(rules)
            if fits and is_whole(snapshot, checksum):
                ledger = restore_snapshot(snapshot)
        reader = SQLiteReader(path, connection)
        fold(ledger, reader.entries(session, after=ledger.last_seq), path)
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
