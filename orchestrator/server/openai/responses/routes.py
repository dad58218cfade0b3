"""`/v1/responses`: an agent answers, now or in the background, and can be asked for it later.

A response is a session. What it was asked stands on its labels, what it says in its transcript; so
it can be told by any process that has the journal. Whoever goes on with one gets a copy of its
conversation: two may go on with the same, and either may be deleted.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Final, Literal

import attrs
import msgspec
import trio
from starlette.responses import Response

from delegation import SessionRecord
from orchestrator.doors.http import KIND, is_over
from orchestrator.doors.inbound import Asked
from orchestrator.errors import ClosedError, UnknownIdError
from orchestrator.server.api.bodies import METADATA, written_on
from orchestrator.server.openai.failures import failed, run_header
from orchestrator.server.openai.responses.bodies import (
    CreateResponse,
    Deleted,
    InputItems,
    ResponseBody,
)
from orchestrator.server.openai.responses.request import (
    require_possible,
    told_by,
    tools_of,
)
from orchestrator.server.openai.responses.response import (
    BACKGROUND,
    INSTRUCTIONS,
    MESSAGE,
    NO,
    PREVIOUS,
    RESPONSE,
    STANDING,
    STORE,
    TOOL_CHOICE,
    TOOLS,
    YES,
    body_of,
    input_of,
    is_kept,
    name_of,
    response_id,
    session_id,
)
from orchestrator.server.openai.responses.stream import (
    FROM_THE_BEGINNING,
    Telling,
    settled,
    tell,
)
from orchestrator.server.operation import LEFT, Answer, Call, Operation, reply
from orchestrator.server.session_status import state_of
from orchestrator.server.state import Office
from orchestrator.server.transport.errors import JSON, HttpError, not_found
from orchestrator.server.transport.idempotency import REQUEST, is_known, made_before
from orchestrator.server.transport.session_headers import context_of
from orchestrator.server.transport.sse import EVENTS, EventStream, unless_left

PAGE: Final = 20
LONGEST_PAGE: Final = 100
NOTHING: Final = "none"


@attrs.frozen(kw_only=True)
class Retrieving:
    """How a response is asked for."""

    stream: bool = False
    """As events, from the first one on, or from where a reader is."""
    starting_after: Annotated[int, msgspec.Meta(ge=-1, le=2**53)] = FROM_THE_BEGINNING
    """The number of the last event that the reader has."""


@attrs.frozen(kw_only=True)
class Listing:
    """Which items of the input are asked for."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_PAGE)] = PAGE
    order: Literal["asc", "desc"] = "desc"
    after: str = ""
    """The id of the last item that the reader has."""


async def create_response(call: Call) -> Response:
    await trio.lowlevel.checkpoint()
    wanted = call.body(CreateResponse)
    require_possible(wanted)
    id_ = call.keyed_session()
    before: SessionRecord | None = None
    if not is_known(call, id_):
        before = await _previous(call.office, wanted)
    # Nothing is waited for in between: of two that are sent at once, one finds the other.
    is_new = not is_known(call, id_)
    if is_new:
        session = _begin(call, wanted, before)
    else:
        session = await made_before(call, id_)
    is_ours = is_new and wanted.store is False
    if not is_ours:
        # Nobody is told of what a crash could still undo, not even by an event.
        await call.office.book.wait_durable()
    if wanted.stream:
        return _stream(call, session, take=is_ours)
    if wanted.background:
        return await _shown(call.office, session)
    if is_ours:
        return await _waited(call, session, call.office.door.take)
    return await _waited(call, session, partial(settled, call.office))


async def _previous(office: Office, wanted: CreateResponse) -> SessionRecord | None:
    """Return the response that another one goes on with."""
    await trio.lowlevel.checkpoint()
    if wanted.previous_response_id is None:
        return None
    previous = await _find(
        office, wanted.previous_response_id, param="previous_response_id"
    )
    state = state_of(previous)
    if state != "completed":
        raise HttpError(
            400,
            f"{wanted.previous_response_id} is {state}; only what is completed goes on",
            code="not_completed",
            param="previous_response_id",
        )
    return previous


def _begin(
    call: Call, wanted: CreateResponse, before: SessionRecord | None
) -> SessionRecord:
    """Let an agent begin with a response."""
    office = call.office
    if office.is_stopping:
        raise ClosedError("the server is stopping, and begins nothing new")
    agent = office.agent(wanted.model)
    told = told_by(wanted, () if before is None else before.root.transcript)
    earlier = "" if before is None else before.labels.get(STANDING, "")
    standing = _paragraphs(earlier, told.standing)
    labels = {
        KIND: RESPONSE,
        REQUEST: call.fingerprint,
        STORE: NO if wanted.store is False else "",
        BACKGROUND: YES if wanted.background else "",
        PREVIOUS: wanted.previous_response_id or "",
        METADATA: written_on(wanted.metadata) if wanted.metadata else "",
        INSTRUCTIONS: wanted.instructions or "",
        TOOLS: msgspec.json.encode(wanted.tools).decode() if wanted.tools else "",
        TOOL_CHOICE: NOTHING if wanted.tool_choice == NOTHING else "",
        MESSAGE: "" if told.message is None else told.message.id,
        STANDING: standing,
    }
    asked = Asked(
        agent=agent,
        message=told.message,
        context=context_of(call.request.headers),
        instructions=_paragraphs(standing, wanted.instructions or ""),
        history=told.history,
        labels={name: value for name, value in labels.items() if value},
        tools=tools_of(wanted, agent),
    )
    if wanted.background:
        return office.door.keep(asked, call.keyed_session())
    session = office.door.enter(asked, call.keyed_session())
    if wanted.store is not False:
        office.door.start(session)
    return session


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _stream(
    call: Call,
    session: SessionRecord,
    *,
    after: int = FROM_THE_BEGINNING,
    take: bool = False,
) -> Response:
    """Return a response as events.

    Args:
        call: who reads.
        session: the response.
        after: the number of the last event that the reader has.
        take: it ends with this very stream.
    """
    telling = Telling(name_of(session), after)
    return EventStream(
        partial(tell, call.office, session, telling),
        headers=run_header(session),
        beside=partial(call.office.door.take, session) if take else None,
        explain=telling.broken_off,
    )


async def _waited(
    call: Call,
    session: SessionRecord,
    wait: Callable[[SessionRecord], Awaitable[object]],
) -> Response:
    """Return a response when it is over, unless whoever asked has left before."""
    if not await unless_left(call.request.receive, partial(wait, session)):
        return Response(status_code=LEFT, headers=run_header(session))
    # An error, so that nobody takes what was said until then for the answer.
    if (problem := failed(session)) is not None:
        raise problem
    return await _shown(call.office, session)


async def _shown(office: Office, session: SessionRecord) -> Response:
    """Answer with a response as it is in this moment, once that is durable."""
    body = body_of(session)
    await office.book.wait_durable()
    return reply(body, x_run_id=session.id)


async def retrieve_response(call: Call) -> Response:
    asked = call.query(Retrieving)
    session = await _find(call.office, call.path("response"))
    if asked.stream:
        return _stream(call, session, after=asked.starting_after)
    return await _shown(call.office, session)


async def list_input_items(call: Call) -> Response:
    asked = call.query(Listing)
    session = await _find(call.office, call.path("response"))
    items = input_of(session)
    if asked.order == "desc":
        items.reverse()
    ids = [item.id for item in items]
    if asked.after:
        if asked.after not in ids:
            raise not_found(f"there is no item {asked.after!r} to go on after")
        del items[: ids.index(asked.after) + 1]
    page = items[: asked.limit]
    return reply(
        InputItems(
            data=page,
            first_id=page[0].id if page else None,
            last_id=page[-1].id if page else None,
            has_more=len(page) < len(items),
        )
    )


async def cancel_response(call: Call) -> Response:
    session = await _find(call.office, call.path("response"))
    if session.closed or not is_over(session):
        await call.office.door.close(session)
    return await _shown(call.office, session)


async def delete_response(call: Call) -> Response:
    session = await _find(call.office, call.path("response"))
    await call.office.door.close(session, deleted=True)
    return reply(Deleted(id=response_id(session)))


async def _find(
    office: Office, response: str, param: str | None = None
) -> SessionRecord:
    """Return a response that is kept."""
    id_ = session_id(response)
    missing = HttpError(
        404, f"there is no response {response!r}", code="not_found", param=param
    )
    if id_ is None:
        raise missing
    try:
        session = await office.door.find(id_)
    except UnknownIdError:
        raise missing from None
    if session.labels.get(KIND) != RESPONSE or not is_kept(session):
        raise missing
    return session


_SHOWN: Final = Answer(words="The response", body=ResponseBody)
_TOLD: Final = Answer(
    words="The response, or its events", body=ResponseBody, media=(JSON, EVENTS)
)
OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/responses",
        handle=create_response,
        summary="Let an agent answer",
        body=CreateResponse,
        answers={200: _TOLD},
        fails=(400, 404, 409, 422, 429, 499, 500, 502, 503, 504),
        is_keyed=True,
    ),
    Operation(
        method="GET",
        path="/v1/responses/{response}",
        handle=retrieve_response,
        summary="A response, as far as it is",
        query=Retrieving,
        answers={200: _TOLD},
        fails=(400, 404),
    ),
    Operation(
        method="GET",
        path="/v1/responses/{response}/input_items",
        handle=list_input_items,
        summary="What a response answers",
        query=Listing,
        answers={200: Answer(words="A page of it", body=InputItems)},
        fails=(400, 404),
    ),
    Operation(
        method="POST",
        path="/v1/responses/{response}/cancel",
        handle=cancel_response,
        summary="End a response, and all who work for it",
        answers={200: _SHOWN},
        fails=(404,),
    ),
    Operation(
        method="DELETE",
        path="/v1/responses/{response}",
        handle=delete_response,
        summary="Let nobody see a response any more",
        answers={200: Answer(words="It is gone", body=Deleted)},
        fails=(404,),
    ),
)
