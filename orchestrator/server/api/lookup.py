"""Finding runs and tasks, also those at rest, and reading no more than is shown.

Nobody is told what a crash could take back: to look waits until all of it is durable.
"""

import re
from collections.abc import Callable
from itertools import islice
from typing import Annotated, Final, Generic, TypeVar

import attrs
import msgspec
import trio

from delegation import SessionId, TaskId
from delegation.events import TaskRequested
from orchestrator.errors import UnknownIdError
from orchestrator.read_api import FoundSession
from orchestrator.server.state import ServerState
from orchestrator.server.transport.errors import not_found

T = TypeVar("T")

LOOKED_AT: Final = 200
"""How many sessions are looked at for one page, whether they are shown or not."""
ID: Final = re.compile(r"[a-z]_[0-9a-z_-]{1,64}")
"""What an id looks like; anything else is not worth a search."""


@attrs.frozen(kw_only=True)
class PageQuery:
    """Which part of a list is wanted."""

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
    """Some of many, the newest first."""

    items: list[T]
    last: SessionId | None
    """The last one that was looked at."""
    has_more: bool


async def read_run(server: ServerState, run: str) -> FoundSession:
    """Return a session without remembering it for longer than this."""
    id_ = SessionId(run)
    book = server.book
    ledger = await book.read_evicted(id_) or book.ledger
    session = ledger.sessions.get(id_)
    if session is None or session.deleted:
        raise UnknownIdError(f"there is no run {run!r}")
    return FoundSession(session, ledger)


async def read_task(server: ServerState, task: str) -> FoundSession:
    """Return the session in which a task is."""
    run = await _run_of(server, TaskId(task))
    if run is not None:
        seen = await read_run(server, run)
        if TaskId(task) in seen.ledger.tasks:
            return seen
    raise UnknownIdError(f"there is no task {task!r}")


async def find_task(server: ServerState, task: str) -> FoundSession:
    """Return the session in which a task is, remembered from now on, to act on it."""
    run = await _run_of(server, TaskId(task))
    if run is not None:
        seen = FoundSession(await server.door.find(run), server.book.ledger)
        if TaskId(task) in seen.ledger.tasks:
            return seen
    raise UnknownIdError(f"there is no task {task!r}")


async def _run_of(server: ServerState, task: TaskId) -> SessionId | None:
    book = server.book
    await book.wait_durable()
    if task in book.ledger.tasks:
        return book.ledger.tasks[task].session
    if SessionId(task) in book.ledger.all_sessions:
        return SessionId(task)
    for entry in (
        await book.read_naming(TaskRequested, task) if ID.fullmatch(task) else ()
    ):
        if isinstance(entry.event, TaskRequested) and entry.event.request.id == task:
            return entry.session
    return None


async def page_of(
    server: ServerState, query: PageQuery, show: Callable[[FoundSession], T | None]
) -> Page[T]:
    """Return some sessions, the newest first.

    Args:
        office: whose.
        query: which of them.
        show: makes of one what is shown; None leaves it out. A page on which little is shown may
            be followed by others.
    """
    await trio.lowlevel.checkpoint()
    known = server.book.ledger.all_sessions
    if query.after and SessionId(query.after) not in known:
        raise not_found(f"there is nothing called {query.after!r} to go on after")
    newest = list(reversed(known))
    start = newest.index(SessionId(query.after)) + 1 if query.after else 0
    shown: list[T] = []
    last: SessionId | None = None
    for id_ in islice(newest, start, start + LOOKED_AT):
        last = id_
        start += 1
        one = await _shown(server, id_, show)
        if one is not None:
            shown.append(one)
        if len(shown) == query.limit:
            break
    return Page(shown, last, start < len(newest))


async def _shown(
    server: ServerState, id_: SessionId, show: Callable[[FoundSession], T | None]
) -> T | None:
    await trio.lowlevel.checkpoint()
    try:
        return show(await read_run(server, id_))
    except UnknownIdError:
        return None  # it was deleted
