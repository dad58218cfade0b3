"""The sessions of one request for several answers: each choice has a session.

All are opened in one step, and the first one names the others. So a request that is repeated with
its Idempotency-Key finds all of them, and a crash leaves all or none.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import ClassVar, Final

import trio
from msgspec.structs import replace
from starlette.responses import Response

from orchestrator.agents import Usage, new_message_id, raising_one_error
from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.delegation.session_state import SessionState
from orchestrator.ports.sessions import InboundRequest
from orchestrator.products.server.api.lookup import read_other_run
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.openai.failures import run_header, session_error
from orchestrator.products.server.transport.errors import CLIENT_CLOSED_REQUEST
from orchestrator.products.server.transport.idempotency import find_attempt
from orchestrator.products.server.transport.sse import wait_unless_disconnected

MOST_CHOICES: Final = 16
"""The most answers that a request may ask for: each is a run of its own."""


class ChoicesState(SessionState, frozen=True):
    """The place of a session among the choices of its request."""

    NAME: ClassVar[str] = "choices"
    others: tuple[SessionId, ...] = ()
    """The sessions of the other choices, in the first session of a request."""
    number: int = 0
    """The number of the choice; the first session has 0."""


async def begin_choices(call: ApiCall, requests: Sequence[InboundRequest]) -> list[SessionRecord]:
    """Return the session of each choice, just opened without a checkpoint or opened before."""
    known, id_ = await find_attempt(call, other_choices)
    if known is not None:
        return await choices_of(call, known)
    first, *rest = requests
    journal = call.journal
    door = journal.door
    with call.begin_run(runs=len(requests)):
        others = [
            door.open_one_turn(_numbered(it, number), call.ids.further_session(journal.name))
            for number, it in enumerate(rest, 1)
        ]
        if others:
            ids = tuple(it.id for it in others)
            first = replace(first, states=(*first.states, ChoicesState(others=ids)))
        session = door.open_one_turn(first, id_)
        call.record(session.id)
    return [session, *others]


def _numbered(request: InboundRequest, number: int) -> InboundRequest:
    message = request.message
    if message is not None:
        message = replace(message, id=new_message_id())
    states = (*request.states, ChoicesState(number=number))
    return replace(request, message=message, states=states)


def other_choices(session: SessionRecord) -> list[SessionId]:
    """Return the sessions of all choices except the first."""
    return list(session.state(ChoicesState).others)


async def choices_of(call: ApiCall, first: SessionRecord) -> list[SessionRecord]:
    """Return the sessions of all choices, in their order."""
    await trio.lowlevel.checkpoint()
    return [first, *[await read_other_run(call, it) for it in other_choices(first)]]


def wait_for_turns(
    call: ApiCall, sessions: Sequence[SessionRecord]
) -> Callable[[], Awaitable[object]]:
    """Return a function that waits for the turns, alone or with other requests of the same key."""
    door = call.journal.door
    take = door.share_turn if call.ids.has_key else door.run_turn
    if len(sessions) == 1:
        return partial(take, sessions[0])
    return partial(_wait_for_all, take, sessions)


async def _wait_for_all(
    take: Callable[[SessionRecord], Awaitable[object]], sessions: Sequence[SessionRecord]
) -> None:
    with raising_one_error():
        # Owns the turns of all choices, and ends when each has its outcome.
        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(take, session)


async def wait_for_answers(
    call: ApiCall, sessions: Sequence[SessionRecord], wait: Callable[[], Awaitable[object]]
) -> Response | None:
    """Wait for all answers, or raise; return a response only if the client disconnects."""
    call.note_run_awaited()
    if not await wait_unless_disconnected(call.request, wait):
        return Response(status_code=CLIENT_CLOSED_REQUEST, headers=run_header(sessions[0]))
    for session in sessions:
        if (error := session_error(session)) is not None:
            raise error
    return None


def total_usage(sessions: Sequence[SessionRecord]) -> Usage:
    """Return the usage of the trees of all choices."""
    first, *rest = sessions
    return sum((it.tree.total for it in rest), first.tree.total)
