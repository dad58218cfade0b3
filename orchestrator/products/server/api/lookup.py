"""Find sessions, tasks and pages of sessions that the key of a request may see.

Every route finds its session here. A session of another owner is "not found", with the same words
and after the same work as a missing one. A page reads no more sessions than it needs.
"""

from collections.abc import Awaitable, Callable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, Generic, TypeVar

import attrs
import msgspec
import trio

from orchestrator.delegation import SessionId, SessionRecord, TaskId
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.journals import SessionSummary
from orchestrator.ports.reads import FoundSession, FoundTask
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.keys.key import Key
from orchestrator.products.server.operation import doc
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.transport.errors import HttpError, not_found

if TYPE_CHECKING:
    from orchestrator.products.server.cluster.session_list import Listed, SessionListing

T = TypeVar("T")

J = TypeVar("J")

READ_AT_MOST: Final = 200
"""The most sessions to read for one page, whether the page shows them or not."""
LOOKED_AT_MOST: Final = 5_000
"""The most sessions to look at for one page, including sessions whose summary is in memory."""


@attrs.frozen(kw_only=True)
class PageQuery:
    """The page of a list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="The most entries to return.")] = (
        20
    )
    after: Annotated[str, doc("The `last_id` of the previous page; by default the newest.")] = ""


@attrs.frozen
class Page(Generic[T]):
    """A page of sessions, newest first."""

    items: list[T]
    last: SessionId | None
    """The last session that was looked at."""
    has_more: bool


def unknown_run(session: str) -> UnknownIdError:
    return UnknownIdError(f"there is no run or session {session!r}")


async def read_run(call: ApiCall, session: str) -> FoundSession:
    """Return a session to read."""
    if call.sees(SessionId(session)):
        return await call.journal.read.session(session)
    await trio.lowlevel.checkpoint()
    raise unknown_run(session)


async def find_run(call: ApiCall, session: str) -> SessionRecord:
    """Return a session to act on, never one of a program's job: closing it would end the job."""
    if call.sees(SessionId(session)):
        found = await call.journal.door.find(session)
        if found.kind is not SessionKind.JOB:
            return found
    await trio.lowlevel.checkpoint()
    raise unknown_run(session)


async def read_other_run(call: ApiCall, session: SessionId) -> SessionRecord:
    """Return a session to read, which may be in another journal than the request's."""
    journal = call.server.journals.of_session(session)
    if journal is not None and journal.owners.sees(call.key, session):
        return await journal.door.find(session)
    if journal is None and call.server.listing is not None:
        found = await call.server.listing.find(session, call.key)
        if found is not None:
            return found.session
    await trio.lowlevel.checkpoint()
    raise unknown_run(session)


async def read_task(call: ApiCall, task: str) -> FoundTask:
    """Return a task to read."""
    read = call.journal.read
    run = await read.session_of(task, sees=call.sees)
    if run is not None:
        found = await read.session(run)
        if (record := found.records.tasks.get(TaskId(task))) is not None:
            return FoundTask(record, found.session, found.records)
    raise UnknownIdError(f"there is no task {task!r}")


async def find_task(call: ApiCall, task: str) -> FoundTask:
    """Return a task to act on: its session stays in memory."""
    run = await call.journal.read.session_of(task, sees=call.sees)
    if run is not None:
        session = await find_run(call, run)
        records = call.journal.read.records
        if (record := records.tasks.get(TaskId(task))) is not None:
            return FoundTask(record, session, records)
    raise UnknownIdError(f"there is no task {task!r}")


async def all_bodies(call: ApiCall, bodies_of: Callable[[ServedJournal, Key], list[T]]) -> list[T]:
    """Return the bodies of all journals of this server that the key of a request sees."""
    await trio.lowlevel.checkpoint()
    bodies: list[T] = []
    for journal in call.server.journals:
        bodies += bodies_of(journal, call.key)
        await journal.read.wait_durable()
    return bodies


async def other_answers(call: ApiCall) -> list[bytes]:
    """Return the answers of the other servers to the same request."""
    await trio.lowlevel.checkpoint()
    return [] if call.server.peers is None else await call.server.peers.ask(call)


@attrs.frozen
class Shown(Generic[T]):
    """The entry of a session in a list."""

    body: T | None
    """None leaves the session out."""


class Bodies(Generic[T]):
    """Makes the entry of each session in a list."""

    def __init__(self, show: Callable[[FoundSession], T | None]) -> None:
        self.show = show
        """Returns the body of a session, or None to leave it out."""

    def show_summary(self, summary: SessionSummary, process: int = 0) -> Shown[T] | None:
        """Return the entry of a session if its summary is enough for it.

        `process` runs it, if that is no server.
        """
        del summary, process
        return None

    def known(self, journal: ServedJournal, session: SessionId) -> Shown[T] | None:
        """Return the entry of a session if it is known without reading the session."""
        del journal, session
        return None

    async def read(self, journal: ServedJournal, session: SessionId) -> T | None:
        """Read a session of a journal that this server writes."""
        seq = journal.read.last_seq
        summary = await journal.read.summary(session)
        if summary is not None and (shown := self.show_summary(summary)) is not None:
            journal.summaries.keep_stored(summary, seq=seq)
            return None if summary.deleted else shown.body
        found = await _read(journal, session)
        return None if found is None else self.show(found)


async def _read(journal: ServedJournal, session: SessionId) -> FoundSession | None:
    """Read a session for a list, and keep its summary for the next one; None if it was deleted."""
    await trio.lowlevel.checkpoint()
    seq = journal.read.last_seq
    try:
        found = await journal.read.session(session)
    except UnknownIdError:
        return None
    journal.summaries.keep(found, seq=seq)
    return found


async def page_of(call: ApiCall, query: PageQuery, bodies: Bodies[T]) -> Page[T]:
    """Return a page of sessions, newest first. A page may be short although others follow."""
    await trio.lowlevel.checkpoint()
    listing = call.server.listing
    if listing is not None and not await _has_all(call, listing):
        return await _page_of_all(call, listing, query, bodies)
    if query.after and not call.sees(SessionId(query.after)):
        raise _nothing_called(query.after)
    journal = call.journal
    newest = journal.owners.newest(call.key)
    start = newest.index(SessionId(query.after)) + 1 if query.after else 0
    filling = _Filling(query.limit, bodies)
    for id_ in islice(newest, start, None):
        await filling.add(id_, journal, bodies.read)
        if filling.is_full:
            break
    return filling.page(more=len(newest) - start)


class _Filling(Generic[T]):
    """A page while it is filled."""

    def __init__(self, limit: int, bodies: Bodies[T]) -> None:
        self._limit = limit
        self._bodies = bodies
        self._items: list[T] = []
        self._last: SessionId | None = None
        self._looked_at = self._read = 0

    @property
    def is_full(self) -> bool:
        return (
            len(self._items) == self._limit
            or self._read == READ_AT_MOST
            or self._looked_at == LOOKED_AT_MOST
        )

    async def add(  # noqa: ASYNC910 (a page of known sessions costs less than one checkpoint each)
        self, id_: SessionId, journal: J, read: Callable[[J, SessionId], Awaitable[T | None]]
    ) -> None:
        """Add a session to the page, if it is shown."""
        self._last = id_
        self._looked_at += 1
        known = None
        if isinstance(journal, ServedJournal):
            known = self._bodies.known(journal, id_)
        if known is None:
            self._read += 1
            body = await read(journal, id_)
        else:
            if not self._looked_at % READ_AT_MOST:
                await trio.lowlevel.checkpoint()  # others get their turn
            body = known.body
        if body is not None:
            self._items.append(body)

    def page(self, *, more: int) -> Page[T]:
        """Return the page; `more` is the number of sessions that there were to look at."""
        return Page(self._items, self._last, self._looked_at < more)


def _nothing_called(session: str) -> HttpError:
    return not_found(f"there is no session {session!r} to continue the list after")


async def _has_all(call: ApiCall, listing: "SessionListing") -> bool:
    """Return whether this server holds the only journal: then memory knows all sessions."""
    await trio.lowlevel.checkpoint()
    journals = list(call.server.journals)
    if len(journals) != 1 or call.server.placement is not None:
        return False
    return await listing.is_only(journals[0].name)


async def _page_of_all(
    call: ApiCall, listing: "SessionListing", query: PageQuery, bodies: Bodies[T]
) -> Page[T]:
    """Return a page of the sessions of all journals, other servers' journals included."""
    # One more session than the page looks at shows whether there are more.
    most = None if query.after else LOOKED_AT_MOST + 1
    newest = await listing.newest(call.key, most)
    start = 0
    if query.after:
        ids = [it.id for it in newest]
        if query.after not in ids:
            raise _nothing_called(query.after)
        start = ids.index(SessionId(query.after)) + 1

    async def read_other(listed: "Listed", _: SessionId) -> T | None:
        return await listing.show(listed, bodies)

    filling = _Filling(query.limit, bodies)
    for listed in islice(newest, start, None):
        journal = call.server.journals.get(listed.journal)
        if journal is not None:
            await filling.add(listed.id, journal, bodies.read)
        else:
            await filling.add(listed.id, listed, read_other)
        if filling.is_full:
            break
    return filling.page(more=len(newest) - start)
