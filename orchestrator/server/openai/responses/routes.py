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
from orchestrator.doors.inbound import InboundRequest
from orchestrator.errors import ClosedError, UnknownIdError
from orchestrator.server.api.bodies import METADATA, encode_metadata
from orchestrator.server.openai.failures import run_header, session_error
from orchestrator.server.openai.responses.bodies import (
    CreateResponse,
    Deleted,
    InputItems,
    ResponseBody,
)
from orchestrator.server.openai.responses.request import (
    functions_of_client,
    parse_input,
    require_supported,
)
from orchestrator.server.openai.responses.response import (
    BACKGROUND,
    INSTRUCTIONS,
    MESSAGE,
    NO,
    PREVIOUS,
    RESPONSE,
    STORE,
    SYSTEM_INSTRUCTIONS,
    TOOL_CHOICE,
    TOOLS,
    YES,
    body_of,
    id_suffix,
    input_of,
    is_stored,
    response_id,
    session_id,
)
from orchestrator.server.openai.responses.stream import (
    FROM_THE_BEGINNING,
    ResponseEvents,
    send_events,
    wait_settled,
)
from orchestrator.server.operation import (
    CLIENT_CLOSED_REQUEST,
    ApiCall,
    Operation,
    ResponseSpec,
    json_response,
)
from orchestrator.server.session_status import state_of
from orchestrator.server.state import ServerState
from orchestrator.server.transport.errors import JSON, HttpError, not_found
from orchestrator.server.transport.idempotency import (
    FINGERPRINT,
    session_exists,
    session_for_key,
)
from orchestrator.server.transport.session_headers import context_of
from orchestrator.server.transport.sse import (
    SSE_MEDIA_TYPE,
    EventStream,
    wait_unless_disconnected,
)

PAGE: Final = 20
LONGEST_PAGE: Final = 100
NO_TOOLS: Final = "none"


@attrs.frozen(kw_only=True)
class RetrieveQuery:
    """How a response is asked for."""

    stream: bool = False
    """As events, from the first one on, or from where a reader is."""
    starting_after: Annotated[int, msgspec.Meta(ge=-1, le=2**53)] = FROM_THE_BEGINNING
    """The number of the last event that the reader has."""


@attrs.frozen(kw_only=True)
class InputItemsQuery:
    """Which items of the input are asked for."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_PAGE)] = PAGE
    order: Literal["asc", "desc"] = "desc"
    after: str = ""
    """The id of the last item that the reader has."""


async def create_response(call: ApiCall) -> Response:
    await trio.lowlevel.checkpoint()
    wanted = call.body(CreateResponse)
    require_supported(wanted)
    id_ = call.session_id_from_key()
    before: SessionRecord | None = None
    if not session_exists(call, id_):
        before = await _previous(call.server, wanted)
    # Nothing is waited for in between: of two that are sent at once, one finds the other.
    is_new = not session_exists(call, id_)
    if is_new:
        session = _begin(call, wanted, before)
    else:
        session = await session_for_key(call, id_)
    is_ours = is_new and wanted.store is False
    if not is_ours:
        # Nobody is told of what a crash could still undo, not even by an event.
        await call.server.book.wait_durable()
    if wanted.stream:
        return _stream(call, session, owns_turn=is_ours)
    if wanted.background:
        return await _show(call.server, session)
    if is_ours:
        return await _wait_and_show(call, session, call.server.door.run_turn)
    return await _wait_and_show(call, session, partial(wait_settled, call.server))


async def _previous(
    server: ServerState, wanted: CreateResponse
) -> SessionRecord | None:
    """Return the response that another one goes on with."""
    await trio.lowlevel.checkpoint()
    if wanted.previous_response_id is None:
        return None
    previous = await _find(
        server, wanted.previous_response_id, param="previous_response_id"
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
    call: ApiCall, wanted: CreateResponse, before: SessionRecord | None
) -> SessionRecord:
    """Let an agent begin with a response."""
    office = call.server
    if office.is_stopping:
        raise ClosedError("the server is stopping, and begins nothing new")
    agent = office.agent(wanted.model)
    told = parse_input(wanted, () if before is None else before.root.transcript)
    earlier = "" if before is None else before.labels.get(SYSTEM_INSTRUCTIONS, "")
    standing = _paragraphs(earlier, told.system_instructions)
    labels = {
        KIND: RESPONSE,
        FINGERPRINT: call.fingerprint,
        STORE: NO if wanted.store is False else "",
        BACKGROUND: YES if wanted.background else "",
        PREVIOUS: wanted.previous_response_id or "",
        METADATA: encode_metadata(wanted.metadata) if wanted.metadata else "",
        INSTRUCTIONS: wanted.instructions or "",
        TOOLS: msgspec.json.encode(wanted.tools).decode() if wanted.tools else "",
        TOOL_CHOICE: NO_TOOLS if wanted.tool_choice == NO_TOOLS else "",
        MESSAGE: "" if told.message is None else told.message.id,
        SYSTEM_INSTRUCTIONS: standing,
    }
    asked = InboundRequest(
        agent=agent,
        message=told.message,
        context=context_of(call.request.headers),
        instructions=_paragraphs(standing, wanted.instructions or ""),
        history=told.history,
        labels={name: value for name, value in labels.items() if value},
        tools=functions_of_client(wanted, agent),
    )
    if wanted.background:
        return office.door.open_background(asked, call.session_id_from_key())
    session = office.door.open_one_turn(asked, call.session_id_from_key())
    if wanted.store is not False:
        office.door.start_turn(session)
    return session


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _stream(
    call: ApiCall,
    session: SessionRecord,
    *,
    after: int = FROM_THE_BEGINNING,
    owns_turn: bool = False,
) -> Response:
    """Return a response as events.

    Args:
        call: who reads.
        session: the response.
        after: the number of the last event that the reader has.
        take: it ends with this very stream.
    """
    telling = ResponseEvents(id_suffix(session), after)
    return EventStream(
        partial(send_events, call.server, session, telling),
        headers=run_header(session),
        owned_work=partial(call.server.door.run_turn, session) if owns_turn else None,
        encode_error=telling.error_event,
    )


async def _wait_and_show(
    call: ApiCall,
    session: SessionRecord,
    wait: Callable[[SessionRecord], Awaitable[object]],
) -> Response:
    """Return a response when it is over, unless whoever asked has left before."""
    if not await wait_unless_disconnected(call.request.receive, partial(wait, session)):
        return Response(status_code=CLIENT_CLOSED_REQUEST, headers=run_header(session))
    # An error, so that nobody takes what was said until then for the answer.
    if (problem := session_error(session)) is not None:
        raise problem
    return await _show(call.server, session)


async def _show(server: ServerState, session: SessionRecord) -> Response:
    """Answer with a response as it is in this moment, once that is durable."""
    body = body_of(session)
    await server.book.wait_durable()
    return json_response(body, x_run_id=session.id)


async def retrieve_response(call: ApiCall) -> Response:
    asked = call.query(RetrieveQuery)
    session = await _find(call.server, call.path("response"))
    if asked.stream:
        return _stream(call, session, after=asked.starting_after)
    return await _show(call.server, session)


async def list_input_items(call: ApiCall) -> Response:
    asked = call.query(InputItemsQuery)
    session = await _find(call.server, call.path("response"))
    items = input_of(session)
    if asked.order == "desc":
        items.reverse()
    ids = [item.id for item in items]
    if asked.after:
        if asked.after not in ids:
            raise not_found(f"there is no item {asked.after!r} to go on after")
        del items[: ids.index(asked.after) + 1]
    page = items[: asked.limit]
    return json_response(
        InputItems(
            data=page,
            first_id=page[0].id if page else None,
            last_id=page[-1].id if page else None,
            has_more=len(page) < len(items),
        )
    )


async def cancel_response(call: ApiCall) -> Response:
    session = await _find(call.server, call.path("response"))
    if session.closed or not is_over(session):
        await call.server.door.close(session)
    return await _show(call.server, session)


async def delete_response(call: ApiCall) -> Response:
    session = await _find(call.server, call.path("response"))
    await call.server.door.close(session, deleted=True)
    return json_response(Deleted(id=response_id(session)))


async def _find(
    server: ServerState, response: str, param: str | None = None
) -> SessionRecord:
    """Return a response that is kept."""
    id_ = session_id(response)
    missing = HttpError(
        404, f"there is no response {response!r}", code="not_found", param=param
    )
    if id_ is None:
        raise missing
    try:
        session = await server.door.find(id_)
    except UnknownIdError:
        raise missing from None
    if session.labels.get(KIND) != RESPONSE or not is_stored(session):
        raise missing
    return session


_SHOWN: Final = ResponseSpec(description="The response", body=ResponseBody)
_RESPONSE_OR_EVENTS: Final = ResponseSpec(
    description="The response, or its events",
    body=ResponseBody,
    media_types=(JSON, SSE_MEDIA_TYPE),
)
OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/responses",
        handle=create_response,
        summary="Let an agent answer",
        body=CreateResponse,
        responses={200: _RESPONSE_OR_EVENTS},
        error_statuses=(400, 404, 409, 422, 429, 499, 500, 502, 503, 504),
        takes_idempotency_key=True,
    ),
    Operation(
        method="GET",
        path="/v1/responses/{response}",
        handle=retrieve_response,
        summary="A response, as far as it is",
        query=RetrieveQuery,
        responses={200: _RESPONSE_OR_EVENTS},
        error_statuses=(400, 404),
    ),
    Operation(
        method="GET",
        path="/v1/responses/{response}/input_items",
        handle=list_input_items,
        summary="What a response answers",
        query=InputItemsQuery,
        responses={200: ResponseSpec(description="A page of it", body=InputItems)},
        error_statuses=(400, 404),
    ),
    Operation(
        method="POST",
        path="/v1/responses/{response}/cancel",
        handle=cancel_response,
        summary="End a response, and all who work for it",
        responses={200: _SHOWN},
        error_statuses=(404,),
    ),
    Operation(
        method="DELETE",
        path="/v1/responses/{response}",
        handle=delete_response,
        summary="Let nobody see a response any more",
        responses={200: ResponseSpec(description="It is gone", body=Deleted)},
        error_statuses=(404,),
    ),
)
