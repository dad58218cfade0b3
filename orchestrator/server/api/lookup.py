"""Sessions, tasks and pages of sessions, as the key of a request sees them.

No route finds a session in another way. What a key does not see is not found, with the same words
and after the same work as what does not exist. No page reads more sessions than it needs.
"""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, Generic, TypeVar

import attrs
import msgspec
import trio

from delegation import SessionId, SessionRecord, TaskId
from orchestrator.errors import UnknownIdError
from orchestrator.read_api import FoundSession, FoundTask
from orchestrator.server.operation import ApiCall
from orchestrator.server.served_journal import ServedJournal
from orchestrator.server.transport.errors import HttpError, not_found

if TYPE_CHECKING:
    from orchestrator.server.cluster.session_list import SessionListing

T = TypeVar("T")

READ_AT_MOST: Final = 200
"""How many sessions are read for one page, whether they are on it or not."""


@attrs.frozen(kw_only=True)
class PageQuery:
    """Which page of a list."""

    limit: Annotated[
        int, msgspec.Meta(ge=1, le=100, description="How many at most.")
    ] = 20
    after: Annotated[
        str,
        msgspec.Meta(
            description="The `last_id` of the page before; left out: the newest."
        ),
    ] = ""


@attrs.frozen
class Page(Generic[T]):
    """A page of sessions, newest first."""

    items: list[T]
    last: SessionId | None
    """The last one that was read."""
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
    """Return a session to act on: it stays in memory."""
    if call.sees(SessionId(session)):
        return await call.journal.door.find(session)
    await trio.lowlevel.checkpoint()
    raise unknown_run(session)


async def read_other_run(call: ApiCall, session: SessionId) -> SessionRecord:
    """Return a session to read that may be in another journal than that of the request."""
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
        if (record := found.ledger.tasks.get(TaskId(task))) is not None:
            return FoundTask(record, found.session, found.ledger)
    raise UnknownIdError(f"there is no task {task!r}")


async def find_task(call: ApiCall, task: str) -> FoundTask:
    """Return a task to act on: its session stays in memory."""
    run = await call.journal.read.session_of(task, sees=call.sees)
    if run is not None:
        session = await call.journal.door.find(run)
        ledger = call.journal.read.ledger
        if (record := ledger.tasks.get(TaskId(task))) is not None:
            return FoundTask(record, session, ledger)
    raise UnknownIdError(f"there is no task {task!r}")


async def page_of(
    call: ApiCall,
    query: PageQuery,
    show: Callable[[FoundSession], T | None],
    *,
    show_past: Callable[[bytes], T | None] | None = None,
) -> Page[T]:
    """Return a page of sessions, newest first.

    Args:
        call: the request.
        query: which page.
        show: returns the body of a session, or None to leave it out. A page with few bodies may be
            followed by others.
        show_past: the same of the body of a large run that another process has read; by default
            all are read here.
    """
    await trio.lowlevel.checkpoint()
    listing = call.server.listing
    if listing is not None and not await _has_all(call, listing):
        return await _page_of_all(call, listing, query, show)
    if query.after and not call.sees(SessionId(query.after)):
        raise _nothing_called(query.after)
    newest = call.journal.owners.newest(call.key)
    start = newest.index(SessionId(query.after)) + 1 if query.after else 0
    bodies: list[T] = []
    last: SessionId | None = None
    for id_ in islice(newest, start, start + READ_AT_MOST):
        last = id_
        start += 1
        past = None if show_past is None else await call.journal.past_runs.ask(id_)
        if show_past is not None and past is not None:
            body = show_past(past) if past else None
        else:
            body = await _body_of(call.journal, id_, show)
        if body is not None:
            bodies.append(body)
        if len(bodies) == query.limit:
            break
    return Page(bodies, last, start < len(newest))


def _nothing_called(session: str) -> HttpError:
    return not_found(f"there is nothing called {session!r} to go on after")


async def _has_all(call: ApiCall, listing: "SessionListing") -> bool:
    """Return whether the only journal there is is held here: then memory knows all sessions."""
    await trio.lowlevel.checkpoint()
    journals = list(call.server.journals)
    if len(journals) != 1 or call.server.placement is not None:
        return False
    return await listing.is_only(journals[0].name)


async def _page_of_all(
    call: ApiCall,
    listing: "SessionListing",
    query: PageQuery,
    show: Callable[[FoundSession], T | None],
) -> Page[T]:
    """Return a page of the sessions of all journals, those of other servers included."""
    # One more than is read: it tells whether there are more.
    newest = await listing.newest(call.key, None if query.after else READ_AT_MOST + 1)
    start = 0
    if query.after:
        ids = [it.id for it in newest]
        if query.after not in ids:
            raise _nothing_called(query.after)
        start = ids.index(SessionId(query.after)) + 1
    bodies: list[T] = []
    last: SessionId | None = None
    for listed in islice(newest, start, start + READ_AT_MOST):
        last = listed.id
        start += 1
        journal = call.server.journals.get(listed.journal)
        if journal is not None:
            body = await _body_of(journal, listed.id, show)
        else:
            body = await listing.show(listed, show)
        if body is not None:
            bodies.append(body)
        if len(bodies) == query.limit:
            break
    return Page(bodies, last, start < len(newest))


async def _body_of(
    journal: ServedJournal, id_: SessionId, show: Callable[[FoundSession], T | None]
) -> T | None:
    await trio.lowlevel.checkpoint()
    try:
        return show(await journal.read.session(id_))
    except UnknownIdError:
        return None  # it was deleted
