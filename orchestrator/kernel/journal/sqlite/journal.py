"""The writer of a journal in one SQLite file, which only its owner may read."""

import os
import sqlite3
import stat
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

import trio
from msgspec.structs import replace

from orchestrator.delegation import Ledger, Rules, SessionId
from orchestrator.delegation.events import Entry
from orchestrator.kernel.errors import JournalError, JournalInUseError
from orchestrator.kernel.journal.journal import JournalContents, Pruned
from orchestrator.kernel.journal.session_summary import SessionSummary, StoredSummary
from orchestrator.kernel.journal.snapshots import StoredSnapshot
from orchestrator.kernel.journal.sqlite import schema
from orchestrator.kernel.journal.sqlite.entries import (
    has_more_entries,
    last_time,
    owners,
    read_contents,
    read_stored_summary,
    write_entries,
    write_summaries,
)
from orchestrator.kernel.journal.sqlite.lock import (
    NEVER_ELSEWHERE,
    WriterLock,
    hold_lock,
    real_path,
    require_one_name,
    writer_of,
)
from orchestrator.kernel.journal.sqlite.reader import (
    SQLiteReader,
    lists_active_session,
    open_journal_read_only,
    open_tables_read_only,
    require_durable,
)
from orchestrator.kernel.journal.sqlite.snapshots import (
    fold_session,
    sessions_apart,
    write_snapshots,
)
from orchestrator.kernel.journal.sqlite.trust import distrust, reading_deadline, require_own_tables
from orchestrator.kernel.journal.stored_entries import FactRow
from orchestrator.kernel.journal.write_queue import WriteQueue
from orchestrator.kernel.private_files import PRIVATE_FILE, foreign_hand

if TYPE_CHECKING:
    from orchestrator.kernel.journal.audit import AuditedEvent, AuditEvent
    from orchestrator.kernel.journal.sqlite.accounts import FolderAccounts

__all__ = ["SQLiteJournal", "connect", "open_sqlite_journal", "read_sqlite_journal", "writer_of"]

StepP = ParamSpec("StepP")
ResultT = TypeVar("ResultT")

STEP_SESSIONS: Final = 50
STEP_ENTRIES: Final = 200
STEP_STRINGS: Final = 20
STEP_PAGES: Final = 50
"""How much pruning does at a time: so long the next commit waits at most."""
SCAN_ENTRIES: Final = 5_000
"""How many entries pruning reads at a time, while facts are written."""
LOG_BYTES: Final = 4_000_000
"""How large the log stays on the disk that SQLite writes over again and again."""
READERS: Final = 1
"""The number of threads that decode and fold at once. Each takes its share of the interpreter from
the event loop, and they do not speed each other up.
"""


class SQLiteJournal:
    """An open journal. `open_sqlite_journal` makes it."""

    spans_hosts = False
    open_left_commands = None
    clock_offset = 0.0
    tenure = None
    lease = None
    database = None

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: WriterLock) -> None:
        self._path = path
        self.file = path
        self.identity = str(path.resolve())
        self._connection = connection
        self._lock = lock
        self._file = path.stat()
        self._wal = path.with_name(f"{path.name}-wal")
        (self._version,) = connection.execute("PRAGMA data_version").fetchone()
        self._new_strings: set[str] | None = None
        """The long strings that were written since a pruning looks for unused ones."""
        self.queue = WriteQueue(self._commit)
        self.group = self.queue.group
        self.append = self.queue.append
        self.append_audit = self.queue.append_audit
        self.store_snapshot = self.queue.store_snapshot
        self.store_summary = self.queue.store_summary
        self.wait_durable = self.group.wait_durable
        self.wait_audited = self.group.wait_all_durable
        self._reading = trio.CapacityLimiter(READERS)

    @property
    def account_store(self) -> "FolderAccounts":
        # Imported late: few programs share a budget with other processes.
        from orchestrator.kernel.journal.sqlite.accounts import FolderAccounts

        return FolderAccounts(self._path)

    def has_active_sessions(self) -> bool:
        """Return whether a session is listed as not idle. Ask before anything is appended."""
        with schema.translate_errors(self._path):
            return lists_active_session(self._connection)

    async def read(self, rules: Rules) -> JournalContents:
        return await trio.to_thread.run_sync(self._read, rules)

    async def read_summary(self, session: SessionId) -> SessionSummary | None:
        return await self._find(read_stored_summary, session, has_writer=False)

    async def read_ledger(self, session: SessionId, rules: Rules) -> Ledger:
        return await trio.to_thread.run_sync(
            self._read_ledger, session, rules, limiter=self._reading
        )

    async def read_session(self, session: SessionId, *, after: int = 0) -> Sequence[Entry]:
        return await self._find(
            lambda it: SQLiteReader(self._path, it).entries(session, after=after)
        )

    async def has_more_entries(self, session: SessionId, count: int) -> bool:
        return await self._find(has_more_entries, session, count)

    async def read_last_time(self, session: SessionId) -> float | None:
        return await self._find(last_time, session)

    async def read_owners(self) -> Mapping[SessionId, str]:
        return await self._find(owners)

    async def read_naming(
        self, kind: str, id_: str, *, session: SessionId | None = None
    ) -> Sequence[Entry]:
        return await self._find(
            lambda it: SQLiteReader(self._path, it).naming(id_, session=session, kind=kind)
        )

    async def expired(self, *, before: float) -> Sequence[SessionId]:
        # Imported late, here and below: most programs remove no old run.
        from orchestrator.kernel.journal.sqlite.prune import find_expired

        return await self._find(find_expired, before)

    async def prune(
        self,
        *,
        before: float,
        release: Callable[[SessionId], bool],
        only: SessionId | None = None,
        audit: "AuditedEvent | None" = None,
    ) -> Pruned:
        from orchestrator.kernel.journal.sqlite import prune

        size = prune.size_of(self._path)
        expired = [only] if only is not None else await self.expired(before=before)
        runs = entries = 0
        while True:
            some, expired = expired[:STEP_SESSIONS], expired[STEP_SESSIONS:]
            if released := [session for session in some if release(session)]:
                await self._step(prune.mark_pruned, released, audit)
                runs += len(released)
            # Also those that a crash has left.
            while deleted := await self._step(prune.delete_entries, STEP_ENTRIES):
                entries += deleted
            if not expired:
                break
        if entries:
            await self._delete_strings()
        while await self._step(prune.free_pages, STEP_PAGES):
            pass
        await self._step(prune.truncate_log)
        return Pruned(
            runs=runs,
            entries=entries,
            active=await self._find(prune.count_active),
            freed=max(0, size - prune.size_of(self._path)),
        )

    async def prune_audit(self, *, before: float, at: float, event: "AuditEvent") -> int:
        """Put a checkpoint in place of the rows of the audit before a time; return how many."""
        from orchestrator.kernel.journal.sqlite.audit import prune_audit

        return await self._step(prune_audit, self._path, before, (at, event))

    async def _delete_strings(self) -> None:
        """Delete the long strings that no entry refers to."""
        from orchestrator.kernel.journal.sqlite import prune

        self._new_strings = set()
        try:
            stored = await self._find(prune.read_stored)
            for after in range(0, await self._find(schema.last_seq), SCAN_ENTRIES):
                until = after + SCAN_ENTRIES
                stored -= await self._find(prune.read_referenced, after, until)
            spare = sorted(stored)
            for start in range(0, len(spare), STEP_STRINGS):
                names = spare[start : start + STEP_STRINGS]
                await self._step(prune.delete_strings, names, self._new_strings)
        finally:
            self._new_strings = None

    async def _step(
        self,
        change: Callable[Concatenate[sqlite3.Connection, StepP], ResultT],
        *args: StepP.args,
        **kwargs: StepP.kwargs,
    ) -> ResultT:
        """Change something in a transaction of its own, between two commits."""

        def step() -> ResultT:
            with schema.translate_errors(self._path):
                self._lock.ensure_held()
                self._require_sole_writer()
                with self._connection:
                    return change(self._connection, *args, **kwargs)

        async with self.group.turn:
            return await trio.to_thread.run_sync(step)

    async def _find(
        self,
        read: Callable[Concatenate[sqlite3.Connection, StepP], ResultT],
        *args: StepP.args,
        **kwargs: StepP.kwargs,
    ) -> ResultT:
        """Read something on a connection of its own: the other one may be in a commit."""

        def find() -> ResultT:
            with (
                open_tables_read_only(self._path) as connection,
                schema.translate_errors(self._path),
            ):
                return read(connection, *args, **kwargs)

        return await trio.to_thread.run_sync(find)

    def _read(self, rules: Rules) -> JournalContents:
        connection = self._connection
        with schema.translate_errors(self._path), reading_deadline(self._path, connection):
            schema.require_known_facts(self._path, connection)
            schema.require_complete(self._path, connection)
            apart = sessions_apart(connection, rules)
            contents = read_contents(connection, apart)
            folded: dict[SessionId, Ledger] = {}
            damaged = dict(contents.damaged)
            for session in apart:
                try:
                    ledger = fold_session(
                        self._path, connection, session, rules, self.queue.snapshots.encode
                    )
                    folded[session] = ledger
                except JournalError as exc:
                    damaged[session] = exc.problem
            return replace(contents, folded=folded, damaged=damaged)

    def _read_ledger(self, session: SessionId, rules: Rules) -> Ledger:
        with open_tables_read_only(self._path) as connection, schema.translate_errors(self._path):
            return fold_session(self._path, connection, session, rules, self.queue.snapshots.encode)

    def _commit(
        self,
        facts: Sequence[FactRow],
        audited: "Sequence[AuditedEvent]",
        summaries: Sequence[StoredSummary],
    ) -> None:
        last = facts[-1][0].seq if facts else self._lock.last_writer.durable_seq
        with schema.translate_errors(self._path):
            self._lock.ensure_held()
            self._require_sole_writer()
            with self._connection:
                strings = write_entries(self._connection, facts)
                if audited:
                    # Imported late: a program without a server or a control socket audits nothing.
                    from orchestrator.kernel.journal.sqlite.audit import write_audit

                    write_audit(self._connection, audited)
                if summaries:
                    write_summaries(self._connection, summaries)
                snapshots = self.queue.snapshots.take(until=last)
                write_snapshots(self._connection, snapshots)
            # Read once: the event loop sets it to None when the pruning ends.
            if (new_strings := self._new_strings) is not None:
                new_strings.update(strings)
            self._require_same_file()
            self._lock.note_durable(last)

    async def write_snapshots(self, snapshots: Sequence[StoredSnapshot]) -> None:
        """Write snapshots that no commit has taken."""
        await self._step(write_snapshots, snapshots)

    def _require_sole_writer(self) -> None:
        """Stop if another process has written while our lock file was missing."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            raise JournalInUseError(
                self._path, "another process has written it meanwhile; open it again"
            )

    def _require_same_file(self) -> None:
        """Stop if the file that was just written to is no longer at its path."""
        with suppress(FileNotFoundError):
            is_there = os.path.samestat(self._path.stat(), self._file)
            # The last commit may be in the log alone.
            if is_there and self._wal.stat():
                return
        raise JournalError(self._path, "it was removed or replaced while it was open")


@asynccontextmanager
async def open_sqlite_journal(path: Path) -> AsyncGenerator[SQLiteJournal]:
    """Open a journal for writing, and create it where there is none.

    Raises:
        JournalInUseError: another process writes it.
        JournalError: it cannot be opened, or is no journal.
    """
    path = real_path(path)
    async with hold_lock(path) as lock:
        connection = await trio.to_thread.run_sync(connect, path, lock)
        with closing(connection):
            journal = SQLiteJournal(path, connection, lock)
            async with journal.queue.running(
                path, medium="disk", write_snapshots=journal.write_snapshots
            ):
                yield journal
        lock.note_closed()


async def read_sqlite_journal(path: Path) -> Sequence[Entry]:
    """Return all entries of a journal that another process may be writing."""
    return await trio.to_thread.run_sync(_read_all, path)


def _read_all(path: Path) -> Sequence[Entry]:
    with open_journal_read_only(path) as connection:
        return SQLiteReader(path, connection).all_entries()


def connect(path: Path, lock: WriterLock | None = None) -> sqlite3.Connection:
    """Open a file for writing; create it, with its tables, where there is none."""
    require_one_name(path)
    _require_own_files(path)
    if lock is not None and path.exists():
        require_durable(path, lock.last_writer)
    with schema.translate_errors(path), ExitStack() as undo:
        _make_private(path)
        connection = sqlite3.connect(path, check_same_thread=False)
        undo.callback(connection.close)
        connection.text_factory = schema.AS_STORED
        distrust(connection)
        with reading_deadline(path, connection):
            require_own_tables(path, connection)
            if not path.stat().st_size:
                connection.execute(f"PRAGMA auto_vacuum = {schema.INCREMENTAL}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
            connection.execute("PRAGMA synchronous = FULL")
            schema.install_schema(connection)
            # Again: the log is open now, and its name was free for others until then.
            _require_own_files(path)
            if lock is not None:
                lock.note_durable(schema.last_seq(connection))
        undo.pop_all()
        return connection


def _require_own_files(path: Path) -> None:
    """Refuse a journal, or its log, that another user has put there or may write."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(FileNotFoundError):
            if problem := foreign_hand(path.with_name(name).lstat()):
                where = "" if name == path.name else f"{name}: "
                raise JournalError(path, f"{where}{problem}")


def _make_private(path: Path) -> None:
    """Create the file if there is none: here, and not by SQLite, for its owner alone."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NEVER_ELSEWHERE, PRIVATE_FILE)
    try:
        found = os.fstat(descriptor)
        if problem := foreign_hand(found):
            raise JournalError(path, problem)
        if stat.S_IMODE(found.st_mode) & ~PRIVATE_FILE:
            # A copy that was made with a common umask. The log gets the same mode.
            os.fchmod(descriptor, PRIVATE_FILE)
    finally:
        os.close(descriptor)
