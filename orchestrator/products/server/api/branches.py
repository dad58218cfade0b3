"""`/v1/sessions/{session}/branch` and `/retry`: another answer, in a new branch or in place."""

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Annotated, Final

import msgspec
import trio
from starlette.responses import Response

from orchestrator.agents import AssistantMessage, Message, ToolMessage, UserMessage, well_formed
from orchestrator.delegation import AnswerTerms, SessionRecord, one_line
from orchestrator.delegation.events import EarlierMessage
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.reads import FoundSession
from orchestrator.ports.sessions import DoorState, InboundRequest
from orchestrator.products.server.api import lookup
from orchestrator.products.server.api.conversation_state import ConversationState
from orchestrator.products.server.api.sessions import (
    ReceivedMessage,
    Session,
    agent_of,
    find_session,
    read_session,
    show_session,
)
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation, doc
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.idempotency import session_exists, session_for_key
from orchestrator.products.server.transport.session_headers import context_of

BRANCH_OF: Final = "branch_of"
BRANCH_AT: Final = "branch_at"
MOST_BRANCHES: Final = 50
"""The most conversations between a branch and the conversation that has its message."""
GO_ON: Final = "Go on where your answer was broken off."


class NewBranch(msgspec.Struct, kw_only=True):
    """The message that a branch replaces."""

    before: Annotated[
        int,
        msgspec.Meta(ge=1, le=2**53),
        doc("The `number` of the first message that the branch does not have."),
    ]
    text: Annotated[
        str | None,
        doc("Sent instead of that message, with its files. Without a text nothing is sent."),
    ] = None
    reasoning: Annotated[bool, doc("Record the reasoning of the answer.")] = False


@Operation(
    "POST",
    "/v1/sessions/{session}/branch",
    Scope.RUN,
    Answer("The branch is open", Session, status=201),
    body=NewBranch,
    errors=(404, 409, 413, 422, 503),
    takes_idempotency_key=True,
)
async def branch_session(call: ApiCall) -> Response:
    """Begin a conversation with the messages of another one, up to one of them.

    Its metadata names the conversation and the message: `branch_of` and `branch_at`.
    """
    body = await call.body(NewBranch)
    source = (await read_session(call)).session
    agent = agent_of(call, source)
    id_ = call.ids.session_beside(call.journal.name)
    if session_exists(call, id_):
        session = await session_for_key(call, id_)
        return await show_session(call, FoundSession(session, call.journal.read.records), 201)
    messages = source.root.transcript[: body.before - 1]
    if len(messages) < body.before - 1:
        raise HttpError(
            404,
            f"session {source.id!r} has {len(messages)} messages, and the branch begins before"
            f" number {body.before}",
            code="no_message",
            param="before",
        )
    sent = None
    if body.text is not None:
        replaced = next(iter(source.root.transcript[body.before - 1 : body.before]), None)
        parts = replaced.parts if isinstance(replaced, UserMessage) else ()
        sent = UserMessage(well_formed(body.text), parts)
    history, state = tuple(earlier_messages(messages)), source.state(ConversationState)
    request = InboundRequest(
        agent=agent,
        message=sent,
        history=history,
        context=state.context(context_of(call.headers)),
        instructions=state.instructions,
        terms=AnswerTerms(keeps_reasoning=body.reasoning),
    )
    await call.take_request(request)
    base, title = await _base_of(call, source, body.before), source.metadata.get("title", "")
    about = source.tree[source.tree.root].goal
    door = call.journal.door
    with nullcontext() if sent is None else call.begin_run():
        session = door.open_conversation(
            agent,
            id_,
            owner=call.owner,
            metadata={
                **source.metadata,
                **({"title": title or one_line(about)} if title or about else {}),
                BRANCH_OF: base,
                BRANCH_AT: str(body.before),
            },
            states=(call.request_state(), state),
            history=history,
            language_model=source.state(DoorState).language_model,
        )
        if sent is not None:
            door.receive(session, request)
        call.record(session.id)
    return await show_session(call, FoundSession(session, call.journal.read.records), 201)


async def _base_of(call: ApiCall, source: SessionRecord, before: int) -> str:
    """Return the conversation that has the replaced message first: branches share messages."""
    await trio.lowlevel.checkpoint()
    session, found = source, str(source.id)
    for _ in range(MOST_BRANCHES):
        parent, place = session.metadata.get(BRANCH_OF), session.metadata.get(BRANCH_AT, "")
        if not parent or not place.isdecimal() or before > int(place):
            return found
        found = parent
        try:
            session = (await lookup.read_run(call, parent)).session
        except UnknownIdError:
            return found
    return found


def earlier_messages(messages: Iterable[Message]) -> Iterable[EarlierMessage]:
    """Yield messages of a transcript as the history of another conversation."""
    for message in messages:
        match message:
            case UserMessage():
                yield EarlierMessage(role="user", text=message.text, parts=message.parts)
            case AssistantMessage():
                yield EarlierMessage(
                    role="assistant",
                    text=message.text,
                    calls=message.calls,
                    reasoning=message.reasoning,
                )
            case ToolMessage():
                yield EarlierMessage(
                    role="tool",
                    text=message.text,
                    parts=message.parts,
                    call=message.call,
                    failed=message.failed,
                )


@Operation(
    "POST",
    "/v1/sessions/{session}/retry",
    Scope.RUN,
    Answer("The next turn begins", ReceivedMessage, status=202),
    errors=(409, 422, 503),
)
async def retry_turn(call: ApiCall) -> Response:
    """Answer again: the last turn failed or was stopped, and no message is sent twice."""
    context = context_of(call.headers)
    session = await find_session(call)
    failed = session.past_turns[-1].failure if session.past_turns else None
    if session.turn is not None or session.mail or failed is None:
        raise HttpError(
            409,
            f"the last turn of session {session.id!r} has not failed: send a message instead",
            code="nothing_to_retry",
        )
    state = session.state(ConversationState)
    last = session.root.transcript[-1] if session.root.transcript else None
    is_broken_off = isinstance(last, AssistantMessage) and last.incomplete
    request = InboundRequest(
        agent=agent_of(call, session),
        message=UserMessage(GO_ON) if is_broken_off else None,
        context=state.context(context),
        instructions=state.instructions,
        terms=AnswerTerms(keeps_reasoning=session.terms.keeps_reasoning),
    )
    with call.begin_run(session):
        seq = call.journal.door.receive(session, request)
        call.record(session.id)
    await call.journal.read.wait_durable()
    id_ = "" if request.message is None else request.message.id
    received = ReceivedMessage(session=session.id, message=id_, seq=seq)
    return json_response(received, 202, x_run_id=session.id)
