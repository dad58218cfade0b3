"""`/v1/responses`: an agent answers now or in the background; clients can retrieve the answer.

A response is a session: its options are its state, its output is the transcript. So every process
that has the journal can show it. A response that continues another one copies its conversation: two
may continue the same one, and either may be deleted.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final, Literal

import attrs
import msgspec
import trio
from starlette.responses import Response

from orchestrator.agents import Agent, Pipeline, ReasoningBlock
from orchestrator.delegation import AnswerTerms, SessionId, SessionRecord
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import ClosedError, UnknownIdError
from orchestrator.ports.sessions import InboundRequest, is_over, with_client_tools
from orchestrator.products.server.api.lookup import find_run, read_other_run
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.openai import client_tools, public_ids
from orchestrator.products.server.openai.answer_format import answer_opening, requested_schema
from orchestrator.products.server.openai.choices import wait_for_answers, wait_for_turns
from orchestrator.products.server.openai.conversation import RESPONSES
from orchestrator.products.server.openai.conversations import kept_items
from orchestrator.products.server.openai.estimate import estimated_tokens
from orchestrator.products.server.openai.failures import run_header
from orchestrator.products.server.openai.pages import ItemsQuery
from orchestrator.products.server.openai.requested_settings import also_ignored
from orchestrator.products.server.openai.responses import bodies
from orchestrator.products.server.openai.responses import request as requests
from orchestrator.products.server.openai.responses.response import (
    body_of,
    input_of,
    output_of,
    reasoning_of,
    response_of_item,
    run_of_reasoning,
    status_of,
)
from orchestrator.products.server.openai.responses.response_state import (
    ResponseState,
    conversation_of,
    is_response,
    state_of_request,
    summary_of,
)
from orchestrator.products.server.openai.responses.stream import (
    FROM_THE_BEGINNING,
    ResponseEvents,
    send_events,
    wait_settled,
)
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.session_status import answers_in_json, wants_logprobs
from orchestrator.products.server.transport.errors import JSON, HttpError
from orchestrator.products.server.transport.idempotency import find_attempt
from orchestrator.products.server.transport.session_headers import context_of
from orchestrator.products.server.transport.sse import SSE_MEDIA_TYPE, EventStream

_PATH: Final = "/v1/responses/{response}"
_BODY: Final = Answer("The response", bodies.ResponseBody)
_RESPONSE_OR_EVENTS: Final = Answer(
    "The response, or its events", bodies.ResponseBody, media_types=(JSON, SSE_MEDIA_TYPE)
)


@attrs.frozen(kw_only=True)
class RetrieveQuery:
    """The form of a retrieved response."""

    stream: bool = False
    """Return events, from the first one or after `starting_after`."""
    starting_after: Annotated[int, msgspec.Meta(ge=-1, le=2**53)] = FROM_THE_BEGINNING
    """The number of the last event that the client has."""
    include_progress: bool = False
    """Whether the events tell when tasks below the agent begin and end."""


def _companion(raw: bytes) -> SessionId | None:
    """Return the session of the conversation that a body names."""
    if b'"conversation"' not in raw:
        return None
    try:
        named = msgspec.json.decode(raw, type=bodies.NamedConversation).conversation
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # decoding the body refuses it
    id_ = named.id if isinstance(named, bodies.ConversationRef) else named
    return None if id_ is None else public_ids.CONVERSATION.session(id_)


@Operation(
    "POST",
    "/v1/responses",
    Scope.RUN,
    _RESPONSE_OR_EVENTS,
    body=bodies.CreateResponse,
    errors=(404, 409, 422, 499, 502, 503, 504),
    takes_idempotency_key=True,
    companion=_companion,
)
async def create_response(call: ApiCall) -> Response:
    """Run an agent, and return its response."""
    await trio.lowlevel.checkpoint()
    body, unknown = await call.body_and_unknown(bodies.CreateResponse)
    requests.require_supported(body)
    session = await _begin(call, body, unknown)
    owns_turn = body.store is False
    if not owns_turn:
        # No event may show facts that a crash could still undo.
        await call.journal.read.wait_durable()
    if body.stream:
        has_progress = bool(body.include_progress)
        return _stream(call, session, owns_turn=owns_turn, has_progress=has_progress)
    if body.background:
        return await _show(call, session)
    wait = wait_for_turns(call, [session])
    if not owns_turn:
        wait = partial(wait_settled, call.journal, session)
    # A failure is raised, so that no client mistakes partial text for the answer.
    if (left := await wait_for_answers(call, [session], wait)) is not None:
        return left
    if wants_logprobs(session) and any(map(_lacks_logprobs, output_of(session))):
        names = [it.name for it in requests.logprob_parameters(body)]
        call.answer_headers = also_ignored(call.answer_headers, names)
    return await _show(call, session)


async def _begin(
    call: ApiCall, body: bodies.CreateResponse, unknown: Iterable[str]
) -> SessionRecord:
    """Return the session of a request; open it if it is new."""
    known, id_ = await find_attempt(call)
    if known is not None:
        return known
    request, conversation = await prepare_response(call, body, unknown)
    # Of two equal requests at the same time, one finds the other's session.
    known, id_ = await find_attempt(call)
    if known is not None:
        return known
    if conversation is not None:
        conversation.require_unchanged()
    with call.begin_run():
        if conversation is not None:
            id_ = id_ or call.journal.door.new_session_id()
            conversation.begin(call, id_)
        session = _open_session(call, body, request, id_)
        call.record(session.id)
    return session


async def prepare_response(
    call: ApiCall, body: bodies.CreateResponse, unknown: Iterable[str]
) -> tuple[InboundRequest, kept_items.ContinuedConversation | None]:
    """Return the inbound request of a body, and the conversation that it continues."""
    conversation = await _continued_conversation(call, body)
    await _resolve_references(call, body, conversation)
    reasoning = await _find_reasoning(call, body, conversation)
    previous = await _previous(call, body)
    request = _inbound_request(call, body, previous, conversation, unknown, reasoning=reasoning)
    await call.take_request(request)
    return request, conversation


async def _continued_conversation(
    call: ApiCall, body: bodies.CreateResponse
) -> kept_items.ContinuedConversation | None:
    """Return the conversation that a new response continues."""
    await trio.lowlevel.checkpoint()
    if (id_ := conversation_of(body)) is None:
        return None
    session = await kept_items.find_conversation(call, id_, param="conversation")
    given = (await call.body(bodies.GivenInput)).input
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return await kept_items.continue_conversation(call, session, items)


async def _resolve_references(
    call: ApiCall,
    body: bodies.CreateResponse,
    conversation: kept_items.ContinuedConversation | None,
) -> None:
    """Replace references to items of stored responses with the items."""
    await trio.lowlevel.checkpoint()
    if body.input is None or isinstance(body.input, str):
        return
    if conversation is not None:
        # Items of the conversation are read with it.
        body.input = [
            it for it in body.input if it.type != "item_reference" or it.id not in conversation.ids
        ]
    for number, item in enumerate(body.input):
        if item.type == "item_reference":
            body.input[number] = await _referred_item(call, item.id or "", number)


async def _find_reasoning(
    call: ApiCall,
    body: bodies.CreateResponse,
    conversation: kept_items.ContinuedConversation | None,
) -> Mapping[str, tuple[ReasoningBlock, ...]]:
    """Return the blocks of reasoning items, by their encrypted content."""
    await trio.lowlevel.checkpoint()
    given = [] if body.input is None or isinstance(body.input, str) else body.input
    kept = [] if conversation is None else conversation.items
    found: dict[str, tuple[ReasoningBlock, ...]] = {}
    for item in (*kept, *given):
        content = item.encrypted_content or ""
        place = run_of_reasoning(content)
        if item.type != "reasoning" or place is None or content in found:
            continue
        # Deleted reasoning is left out, like the reasoning of another server.
        with suppress(UnknownIdError):
            session = await read_other_run(call, place[0])
            found[content] = requests.sendable(reasoning_of(session, place[1]))
    return found


async def _referred_item(call: ApiCall, id_: str, number: int) -> bodies.Item:
    param = f"input[{number}].id"
    if (response := response_of_item(id_)) is not None:
        session = await _find(call, response, read_other_run, param=param)
        for item in (*output_of(session), *input_of(session)):
            if item.id == id_:
                return requests.as_input(item)
    await trio.lowlevel.checkpoint()
    raise HttpError(404, f"there is no item with the id {id_!r}", code="not_found", param=param)


async def _previous(call: ApiCall, body: bodies.CreateResponse) -> SessionRecord | None:
    """Return the response that a new one continues."""
    await trio.lowlevel.checkpoint()
    if body.previous_response_id is None:
        return None
    previous = await _find(
        call, body.previous_response_id, read_other_run, param="previous_response_id"
    )
    state = status_of(previous)
    if state not in {"completed", "incomplete"}:
        raise HttpError(
            400,
            f"{body.previous_response_id} is {state}; only a completed response can be continued",
            code="not_completed",
            param="previous_response_id",
        )
    return previous


def _inbound_request(
    call: ApiCall,
    body: bodies.CreateResponse,
    previous: SessionRecord | None,
    conversation: kept_items.ContinuedConversation | None,
    unknown: Iterable[str],
    *,
    reasoning: Mapping[str, tuple[ReasoningBlock, ...]],
) -> InboundRequest:
    """Return the request of a new response to its agent."""
    if call.journal.is_stopping:
        raise ClosedError("the server is stopping, and begins no new work")
    agent = call.server.agent(body.model)
    parsed = requests.parse_input(
        body,
        () if previous is None else previous.root.transcript,
        () if conversation is None else conversation.items,
        reasoning,
    )
    ignores = call.server.settings.ignores_hosted_tools
    chosen = requests.tools_of_client(
        body.tools or (), body.tool_choice, agent, ignores_others=ignores
    )
    strict = call.server.settings.is_strict
    kept = requests.kept_settings(body, agent, chosen, unknown, is_strict=strict)
    call.answer_headers = kept.headers
    inherited = "" if previous is None else previous.state(ResponseState).system_instructions
    custom = parsed.custom_tools
    if previous is not None:
        custom |= client_tools.custom_tools_of(previous)
    system_instructions = _paragraphs(inherited, parsed.system_instructions)
    schema = requested_schema(
        None if body.text is None else body.text.format, agent, RESPONSES, "text.format"
    )
    return InboundRequest(
        agent=agent,
        message=parsed.message,
        context=context_of(call.headers),
        owner=call.owner,
        instructions=_paragraphs(system_instructions, body.instructions or ""),
        history=parsed.history,
        kind=SessionKind.RESPONSE,
        metadata=body.metadata or {},
        states=(
            call.request_state(opening=answer_opening(agent, schema)),
            client_tools.client_tools_state(chosen.tools, custom),
            state_of_request(
                body,
                message=None if parsed.message is None else parsed.message.id,
                system_instructions=system_instructions,
                settings=kept.settings,
            ),
        ),
        tools=chosen.tools,
        terms=AnswerTerms(kept.settings, schema, keeps_reasoning=summary_of(body) is not None),
    )


def agent_of_response(session: SessionRecord, agent: Agent[Any]) -> Agent[Any]:
    """Return an agent with the client's tools of a response."""
    state = session.state(ResponseState)
    # A tool that the agent got since then wins over a client's tool of the same name.
    taken = client_tools.reserved_tool_names(agent)
    tools = [it for it in state.tools if it.name not in taken]
    if not tools or isinstance(agent, Pipeline):
        return agent
    # The terms of the message say which of them has to be called.
    chosen = requests.tools_of_client(tools, None, agent, ignores_others=True)
    return with_client_tools(agent, client_tools.allowed_tools(chosen.tools, state.tool_choice))


def _open_session(
    call: ApiCall, body: bodies.CreateResponse, request: InboundRequest, id_: SessionId | None
) -> SessionRecord:
    """Open the session of a new response, and begin its turn."""
    door = call.journal.door
    if body.background:
        return door.open_background(request, id_)
    session = door.open_one_turn(request, id_)
    if body.store is not False:
        door.start_turn(session)
    return session


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _stream(
    call: ApiCall,
    session: SessionRecord,
    *,
    after: int = FROM_THE_BEGINNING,
    owns_turn: bool = False,
    has_progress: bool = False,
) -> Response:
    """Return a response as events; with `owns_turn`, its turn ends with this stream."""
    events = ResponseEvents(public_ids.id_suffix(session), after, is_json=answers_in_json(session))
    return EventStream(
        partial(send_events, call.journal, session, events, has_progress=has_progress),
        headers=run_header(session),
        owned_work=wait_for_turns(call, [session]) if owns_turn else None,
        encode_error=events.error_event,
    )


def _lacks_logprobs(item: bodies.OutputItem) -> bool:
    """Return whether a text lacks log probabilities: no model sent them, or it had a secret."""
    return isinstance(item, bodies.MessageItem) and any(
        isinstance(it, bodies.OutputText) and not it.logprobs for it in item.content
    )


async def _show(call: ApiCall, session: SessionRecord) -> Response:
    """Respond with the present state of a response, once it is durable."""
    return await call.durable_response(body_of(session), x_run_id=session.id)


@Operation("GET", _PATH, Scope.READ, _RESPONSE_OR_EVENTS, query=RetrieveQuery)
async def retrieve_response(call: ApiCall) -> Response:
    """Return a response, finished or not."""
    query = call.query(RetrieveQuery)
    session = await _find(call, call.path("response"))
    if query.stream:
        has_progress = query.include_progress
        after = query.starting_after
        return _stream(call, session, after=after, has_progress=has_progress)
    return await _show(call, session)


@Operation(
    "GET",
    f"{_PATH}/input_items",
    Scope.READ,
    Answer("A page of items", bodies.InputItems),
    query=ItemsQuery,
)
async def list_input_items(call: ApiCall) -> Response:
    """List the input of a response."""
    query = call.query(ItemsQuery)
    session = await _find(call, call.path("response"))
    items = {it.id: it for it in input_of(session)}
    return json_response(bodies.InputItems.select(items, query))


@Operation("POST", f"{_PATH}/cancel", Scope.STEER, _BODY)
async def cancel_response(call: ApiCall) -> Response:
    """Cancel a response and all tasks below it."""
    session = await _find(call, call.path("response"))
    if session.closed or not is_over(session):
        call.record(session.id)
        await call.journal.door.close(session)
    return await _show(call, session)


@Operation("DELETE", _PATH, Scope.STEER, Answer("The response is deleted", bodies.Deleted))
async def delete_response(call: ApiCall) -> Response:
    """Delete a response."""
    session = await _find(call, call.path("response"))
    if (conversation := session.state(ResponseState).conversation) is not None:
        # The conversation keeps the items of this response.
        with suppress(HttpError):
            await kept_items.find_conversation(call, conversation)
    call.record(session.id)
    await call.journal.door.close(session, deleted=True)
    return json_response(bodies.Deleted(id=public_ids.RESPONSE.of(session)))


async def _find(
    call: ApiCall,
    response: str,
    find: Callable[[ApiCall, SessionId], Awaitable[SessionRecord]] = find_run,
    *,
    param: str | None = None,
) -> SessionRecord:
    """Return the session of a stored response."""
    return await public_ids.find_object(
        call, public_ids.RESPONSE, response, is_response, "response", param=param, find=find
    )


class InputTokens(msgspec.Struct, kw_only=True):
    """An estimate of the input tokens."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


@Operation(
    "POST",
    "/v1/responses/input_tokens",
    Scope.RUN,
    Answer("The estimate", InputTokens),
    body=bodies.CreateResponse,
    errors=(404, 409, 503),
)
async def count_input_tokens(call: ApiCall) -> Response:
    """Estimate the number of tokens that an agent would read."""
    await trio.lowlevel.checkpoint()
    body, unknown = await call.body_and_unknown(bodies.CreateResponse)
    requests.require_supported(body)
    request, _ = await prepare_response(call, body, unknown)
    return json_response(InputTokens(input_tokens=estimated_tokens(request)))
