"""Tasks to act on, and pages of sessions: no page reads more sessions than it needs."""

from collections.abc import Callable
from itertools import islice
from typing import Annotated, Final, Generic, TypeVar

import attrs
import msgspec
import trio

from delegation import SessionId, TaskId
from orchestrator.errors import UnknownIdError
from orchestrator.read_api import FoundSession, FoundTask
from orchestrator.server.state import ServerState
from orchestrator.server.transport.errors import not_found

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


async def find_task(server: ServerState, task: str) -> FoundTask:
    """Return a task to act on: its session stays in memory."""
    run = await server.read.session_of(task)
    if run is not None:
        session = await server.door.find(run)
        ledger = server.read.ledger
        if (record := ledger.tasks.get(TaskId(task))) is not None:
            return FoundTask(record, session, ledger)
    raise UnknownIdError(f"there is no task {task!r}")


async def page_of(
    server: ServerState, query: PageQuery, show: Callable[[FoundSession], T | None]
) -> Page[T]:
    """Return a page of sessions, newest first.

    Args:
        server: the server.
        query: which page.
        show: returns the body of a session, or None to leave it out. A page with few bodies may be
            followed by others.
    """
    await trio.lowlevel.checkpoint()
    known = server.read.session_ids
    if query.after and SessionId(query.after) not in known:
        raise not_found(f"there is nothing called {query.after!r} to go on after")
    newest = list(known)[::-1]
    start = newest.index(SessionId(query.after)) + 1 if query.after else 0
    bodies: list[T] = []
    last: SessionId | None = None
    for id_ in islice(newest, start, start + READ_AT_MOST):
        last = id_
        start += 1
        body = await _body_of(server, id_, show)
        if body is not None:
            bodies.append(body)
        if len(bodies) == query.limit:
            break
    return Page(bodies, last, start < len(newest))


async def _body_of(
    server: ServerState, id_: SessionId, show: Callable[[FoundSession], T | None]
) -> T | None:
    await trio.lowlevel.checkpoint()
    try:
        return show(await server.read.session(id_))
    except UnknownIdError:
        return None  # it was deleted
