"""The runs of a folder that other processes write, such as `orchestrator run` or a script.

Their journals are read beside their writers. While a page watches, a task of the server looks at
the journals again and again; a request for an action goes to the control socket of the writer.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec
import trio
from starlette.responses import Response

from orchestrator.delegation import SessionId, TaskId
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.ports.control import Cancel, ControlRequest, RefusedError, connect_control
from orchestrator.ports.errors import JournalAwayError, JournalError
from orchestrator.ports.journals import (
    Journals,
    JournalStore,
    Records,
    SessionSummary,
    Writer,
    fold_run,
    summarize,
)
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.cluster.followed_run import FollowedRun, ReceiveEntries
from orchestrator.products.server.cluster.located_subject import locate, session_of
from orchestrator.products.server.cluster.router import written_elsewhere
from orchestrator.products.server.cluster.store_readers import StoreReaders
from orchestrator.products.server.request_subject import Subject, SubjectKind
from orchestrator.products.server.served_journal import HeldJournals
from orchestrator.products.server.transport.errors import HttpError

LOOK_SECONDS: Final = 0.5
"""The seconds between two looks at the journals of other processes, while a page watches."""
MOST_KEPT: Final = 4
"""The most runs that stay in memory without a view."""


class OtherRun(msgspec.Struct, frozen=True):
    """The row of a run that another process writes."""

    summary: SessionSummary
    process: int
    """The id of the process; 0 if the run is over, or the process has left."""


class OtherProcesses:
    """Reads and controls the runs that other processes of this machine write."""

    def __init__(
        self,
        journals: Journals,
        held: HeldJournals,
        start_soon: Callable[[Callable[[], Any]], None],
    ) -> None:
        """Read `journals` except `held`; `start_soon` starts the task that looks at them."""
        self._journals = journals
        self._held = held
        self._start_soon = start_soon
        self._readers = StoreReaders()
        self._followed: dict[SessionId, FollowedRun] = {}
        """The runs in memory, least recently used first."""
        self._rows: dict[SessionId, OtherRun] = {}
        """The runs that were under way at the last look."""
        self._watchers: dict[object, Callable[[list[OtherRun]], None]] = {}
        self._is_looking = False

    @contextmanager
    def watch(self, receive: Callable[[list[OtherRun]], None]) -> Generator[None]:
        """Call `receive` with the rows that have changed after each look, while the block lasts."""
        with self._watching(receive):
            if self._rows:
                receive([*self._rows.values()])
            yield

    @contextmanager
    def follow(self, run: FollowedRun, receive: ReceiveEntries) -> Generator[None]:
        """Call `receive` with each new entry of a run, as long as the block lasts."""
        key = object()
        run.receivers[key] = receive
        self._followed[run.session] = run
        try:
            with self._watching(lambda _: None):
                yield
        finally:
            del run.receivers[key]

    @contextmanager
    def _watching(self, receive: Callable[[list[OtherRun]], None]) -> Generator[None]:
        key = object()
        self._watchers[key] = receive
        if not self._is_looking:
            self._is_looking = True
            self._start_soon(self._look_while_watched)
        try:
            yield
        finally:
            del self._watchers[key]

    async def find(self, session: SessionId) -> FollowedRun | None:
        """Return a run that another process writes now, up to date; None if there is none."""
        run = self._followed.get(session)
        if run is not None and await self._readers.read(run.store.writer) != run.writer:
            self._leave(run)
            run = None
        if run is None:
            made = await self._readers.read(lambda: self._find(session))
            if made is None:
                return None
            run = self._followed.setdefault(session, made)
        await run.catch_up()
        run = self._followed[session] = self._followed.pop(session, run)
        self._forget_some()
        return run

    async def find_task(self, task: TaskId) -> FollowedRun | None:
        """Return the run of a task that another process runs, up to date."""
        for run in [*self._followed.values()]:
            if run.found is not None and task in run.found.records.tasks:
                return await self.find(run.session)
        subject = Subject(SubjectKind.TASK, task)
        name = await self._readers.read(lambda: locate(self._journals, subject))
        if name is None:
            return None
        store = self._journals.store(name)
        session = await self._readers.read(lambda: session_of(store, subject))
        return None if session is None else await self.find(session)

    def _find(self, session: SessionId) -> FollowedRun | None:
        name = self._journals.find(session)
        if name is None or self._held.get(name) is not None:
            return None
        store = self._journals.store(name)
        writer = store.writer()
        if writer is None or writer.address:
            return None
        return FollowedRun(session, store, writer, self._readers)

    def _forget_some(self) -> None:
        idle = [id_ for id_, run in self._followed.items() if not run.receivers]
        for id_ in idle[: max(0, len(idle) - MOST_KEPT)]:
            del self._followed[id_]

    async def answer(self, call: ApiCall, journal: str, subject: Subject) -> Response | None:
        """Answer a request about a journal of another process; None if the process has left."""
        # Imported late: a server without other processes does not need it.
        from orchestrator.products.server.cluster.process_requests import ProcessRequest

        store = self._journals.store(journal)
        session = await self._readers.read(lambda: session_of(store, subject))
        run = None if session is None else await self.find(session)
        return None if run is None else await ProcessRequest(call, self, run).answer()

    async def send(self, run: FollowedRun, request: ControlRequest) -> dict[str, Any]:
        """Send an action to the process that writes a run, and return its response.

        A cancelled run may end its process before the response: then the response is empty.
        """
        if run.store.file is not None:
            async with connect_control(run.store.file) as client:
                if client is not None:
                    try:
                        return await client.request(request)
                    except RefusedError as exc:
                        if client.is_closed and isinstance(request, Cancel):
                            return {}
                        raise HttpError(409, str(exc), code="refused_elsewhere") from exc
        await trio.lowlevel.checkpoint()
        raise written_elsewhere(run.writer)

    @property
    def rows(self) -> list[OtherRun]:
        """The runs that were under way at the last look."""
        return [*self._rows.values()]

    async def look(self) -> None:
        """Look at the journals of other processes once."""
        held = {it.name for it in self._held}
        seen = await self._readers.read(lambda: dict(self._look(held)))
        gone = [it for it in self._rows if it not in seen]
        for id_, row in seen.items():
            if row.summary.is_asking and id_ not in self._followed:
                await self.find(id_)
        for run in [*self._followed.values()]:
            if run.receivers or run.session in seen:
                await self._refresh(run)
        ended = await self._readers.read(lambda: [it for id_ in gone for it in self._read(id_)])
        changed = [row for id_, row in seen.items() if self._rows.get(id_) != row]
        self._rows = seen
        for receive in [*self._watchers.values()]:
            receive([*changed, *ended])

    async def _refresh(self, run: FollowedRun) -> None:
        await trio.lowlevel.checkpoint()
        if await self._readers.read(run.store.writer) != run.writer:
            self._leave(run)
        else:
            await run.catch_up()

    def _leave(self, run: FollowedRun) -> None:
        if self._followed.get(run.session) is run:
            del self._followed[run.session]
        run.leave()

    async def _look_while_watched(self) -> None:
        await trio.lowlevel.checkpoint()
        try:
            while self._watchers:
                with suppress(JournalError):  # it is looked at again
                    await self.look()
                await trio.sleep(LOOK_SECONDS)
        finally:
            self._is_looking = False

    def _look(self, held: set[str]) -> Iterator[tuple[SessionId, OtherRun]]:
        """Yield the runs under way in the journals of other processes; blocking."""
        for name in self._journals.names():
            if name in held:
                continue
            store = self._journals.store(name)
            writer = store.writer()
            if writer is None or writer.address:
                continue
            try:
                with store.open_reader(verify=False) as reader:
                    # A short run may begin and end between two looks.
                    sessions = {*reader.active_sessions(), *reader.sessions(newest=1)}
                for id_ in sessions:
                    yield from ((id_, it) for it in _row(store, id_, writer))
            except JournalAwayError:
                raise
            except JournalError:
                continue  # lists report it

    def _read(self, session: SessionId) -> list[OtherRun]:
        """Return the row of a run that is no longer under way in another process; blocking."""
        name = self._journals.find(session)
        if name is None or self._held.get(name) is not None:
            return []
        store = self._journals.store(name)
        return _row(store, session, store.writer())

    def questions(self) -> list[tuple[ApprovalQuestion, str, Records]]:
        """Return the approvals that wait in the runs of other processes, each with its owner."""
        found: list[tuple[ApprovalQuestion, str, Records]] = []
        for id_, row in self._rows.items():
            run = self._followed.get(id_)
            if run is not None and run.found is not None:
                records = run.found.records
                questions = records.open_questions.values()
                found += [(it, row.summary.owner, records) for it in questions]
        return found


def _row(store: JournalStore, session: SessionId, writer: Writer | None) -> list[OtherRun]:
    """Return the row of a run, or an empty list if the run was deleted; blocking."""
    with store.open_reader(verify=False) as reader:
        summary = reader.summary(session, has_writer=writer is not None)
        entries = reader.entries(session) if summary is None else ()
    if summary is None:
        ledger = fold_run(entries, session, has_writer=writer is not None)
        record = ledger.sessions.get(session)
        if record is None:
            return []
        summary = summarize(record, ledger)
    if summary.deleted:
        return []
    is_under_way = writer is not None and not summary.is_over
    return [OtherRun(summary, writer.process if is_under_way and writer is not None else 0)]
