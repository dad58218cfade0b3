"""`/v1/sessions`: conversations that stay open until the client closes them."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from starlette.responses import Response

from orchestrator.agents import Agent, MessageId, Usage, UserMessage, well_formed
from orchestrator.delegation import AnswerTerms, SessionId, SessionRecord, one_line
from orchestrator.delegation.events import MessageReceived
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.journals import SessionSummary, changed_at
from orchestrator.ports.reads import FoundSession
from orchestrator.ports.sessions import (
    DoorState,
    InboundRequest,
    search_parts_ahead,
    with_language_model,
)
from orchestrator.products.server.api import lookup
from orchestrator.products.server.api.bodies import MOST_NOTES, Metadata, status_of
from orchestrator.products.server.api.conversation_state import ConversationState
from orchestrator.products.server.api.parts import Parts, parts_of
from orchestrator.products.server.api.runs import agent_for, allowed_language_model
from orchestrator.products.server.api.transcripts import Messages, TranscriptQuery, transcript_of
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import DEFAULT, Scope
from orchestrator.products.server.operation import Answer, Operation, doc
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.transport import idempotency
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.session_headers import context_of

_BELOW: Final = r"^([^/.\x00-\x1f][^/\x00-\x1f]*(/[^/.\x00-\x1f][^/\x00-\x1f]*)*)?$"
"""A relative path whose folders do not begin with a dot."""


class NewSession(msgspec.Struct, kw_only=True):
    """The agent and the metadata of a new conversation."""

    model: Annotated[str, doc("The name of the agent.")]
    metadata: Metadata = {}


class ChangedSession(msgspec.Struct, kw_only=True):
    """The changes of a conversation: fields that are not sent stay."""

    metadata: Annotated[Metadata, doc("An empty string removes an entry; others stay.")] = {}
    language_model: Annotated[
        str | None,
        doc(
            "The model of its agent, one of the `language_models` of `/v1/models`; empty for the"
            " agent's own. It answers once the turn and the background tasks under way have ended."
        ),
    ] = None
    instructions: Annotated[
        Annotated[str, msgspec.Meta(max_length=10_000)] | None,
        doc("Instructions for all turns to come."),
    ] = None
    workspace: Annotated[
        Annotated[str, msgspec.Meta(max_length=256, pattern=_BELOW)] | None,
        doc("The folder of its tools, below the workspace of the server."),
    ] = None


class Session(msgspec.Struct, kw_only=True):
    """A conversation."""

    id: str
    object: Literal["session"] = "session"
    owner: Annotated[str, doc("The owner of the key that opened it.")]
    agent: str
    status: Annotated[
        Literal["idle", "in_progress", "waiting", "closed"],
        doc("`waiting`: a call waits for an approval."),
    ]
    turns: Annotated[int, doc("The number of turns that have begun.")]
    inbox: Annotated[int, doc("The number of replies that were not taken yet.")]
    about: Annotated[str, doc("The first message in one line.")]
    usage: Usage
    metadata: dict[str, str]
    language_model: Annotated[str, doc("The model that replaces its agent's own; empty for none.")]
    instructions: Annotated[str, doc("The instructions of all its turns, besides its agent's.")]
    workspace: Annotated[str, doc("The folder of its tools, if not the server's workspace.")]
    created: float
    changed: Annotated[float, doc("When its last turn began or ended.")]
    seq: Annotated[int, doc("The number of the journal's last fact.")]


class Sessions(msgspec.Struct, kw_only=True):
    """A page of conversations, newest first."""

    object: Literal["list"] = "list"
    data: list[Session]
    has_more: bool
    last_id: Annotated[str | None, doc("The `after` of the next page.")]


class NewMessage(msgspec.Struct, kw_only=True):
    """A message to the agent."""

    text: str
    parts: Parts = []
    instructions: Annotated[str, doc("Instructions for only the turn that reads it.")] = ""
    reasoning: Annotated[
        bool,
        doc(
            "Record the reasoning that the model reports, and show it in the"
            " transcript, until the next message."
        ),
    ] = False


class ReceivedMessage(msgspec.Struct, kw_only=True):
    """A message that the next turn of a session will read."""

    session: str
    message: Annotated[str, doc("Its id in the transcript.")]
    seq: Annotated[int, doc("The number of its fact; replies name it in `read`.")]


_SETTLED: Final = Answer("Every task is settled", Session)
_STEER: Final = Operation("POST", "", Scope.STEER, _SETTLED, takes_idempotency_key=True)


def _body_of(found: FoundSession, seq: int) -> Session:
    session, tree = found.session, found.session.tree
    state = session.state(ConversationState)
    return Session(
        id=session.id,
        owner=session.owner or DEFAULT,
        agent=session.root.agent,
        status=_status(found),
        turns=session.turns,
        inbox=len(session.undelivered),
        about=one_line(tree[tree.root].goal),
        usage=tree.total,
        metadata=dict(session.metadata),
        language_model=session.state(DoorState).language_model,
        instructions=state.instructions,
        workspace=state.workspace,
        created=tree[tree.root].requested,
        changed=changed_at(session),
        seq=seq,
    )


def _status(found: FoundSession) -> Literal["idle", "in_progress", "waiting", "closed"]:
    if found.session.closed:
        return "closed"
    if status_of(found.session, found.records) == "waiting":
        return "waiting"
    return "idle" if found.session.has_nothing_pending else "in_progress"


async def show_session(call: ApiCall, found: FoundSession, status: int = 200) -> Response:
    """Respond with the present state of a conversation, once it is durable."""
    body = _body_of(found, call.journal.read.last_seq)
    return await call.durable_response(body, status, x_run_id=body.id)


async def read_session(call: ApiCall) -> FoundSession:
    """Return a conversation to read."""
    found = await lookup.read_run(call, call.path("session"))
    _require_conversation(found.session)
    return found


async def find_session(call: ApiCall) -> SessionRecord:
    """Return a conversation to act on: it stays in memory."""
    session = await lookup.find_run(call, call.path("session"))
    _require_conversation(session)
    return session


def _require_conversation(session: SessionRecord) -> None:
    if session.kind is not SessionKind.CONVERSATION:
        raise UnknownIdError(
            f"there is no session {session.id!r}; it is a run: see /v1/runs/{session.id}"
        )


@Operation(
    "POST",
    "/v1/sessions",
    Scope.RUN,
    Answer("The conversation is open", Session, status=201),
    body=NewSession,
    errors=(404, 422, 503),
    takes_idempotency_key=True,
)
async def create_session(call: ApiCall) -> Response:
    """Begin a conversation with an agent."""
    body = await call.body(NewSession)
    agent = call.server.agent(body.model)
    id_ = call.ids.new_session(call.journal.name)
    if idempotency.session_exists(call, id_):
        session = await idempotency.session_for_key(call, id_)
    else:
        session = call.journal.door.open_conversation(
            agent, id_, owner=call.owner, metadata=body.metadata, states=(call.request_state(),)
        )
        call.record(session.id)
    return await show_session(call, FoundSession(session, call.journal.read.records), 201)


class _SessionBodies(lookup.Bodies[Session]):
    """Makes the entry of each conversation in a list."""

    def show_summary(
        self, summary: SessionSummary, process: int = 0
    ) -> lookup.Shown[Session] | None:
        del process
        is_other = summary.kind is not SessionKind.CONVERSATION
        return lookup.Shown(None) if is_other else None

    def known(self, journal: ServedJournal, session: SessionId) -> lookup.Shown[Session] | None:
        summary = journal.summaries.get(session)
        is_other = summary is not None and summary.kind is not SessionKind.CONVERSATION
        return lookup.Shown(None) if is_other else None


@Operation(
    "GET",
    "/v1/sessions",
    Scope.READ,
    Answer("A page of conversations", Sessions),
    query=lookup.PageQuery,
    errors=(404,),
)
async def list_sessions(call: ApiCall) -> Response:
    """List conversations, newest first."""

    def show(found: FoundSession) -> Session | None:
        if found.session.kind is not SessionKind.CONVERSATION:
            return None
        journal = call.server.journals.of_session(found.session.id)
        records = found.records if journal is None else journal.read.records
        return _body_of(found, records.last_seq)

    page = await lookup.page_of(call, call.query(lookup.PageQuery), _SessionBodies(show))
    for journal in call.server.journals:
        await journal.read.wait_durable()
    return json_response(Sessions(data=page.items, has_more=page.has_more, last_id=page.last))


@Operation("GET", "/v1/sessions/{session}", Scope.READ, Answer("The conversation", Session))
async def get_session(call: ApiCall) -> Response:
    """Return the status of a conversation."""
    return await show_session(call, await read_session(call))


@Operation(
    "POST",
    "/v1/sessions/{session}",
    Scope.RUN,
    Answer("The conversation", Session),
    body=ChangedSession,
    errors=(422, 503),
)
async def change_session(call: ApiCall) -> Response:
    """Change the metadata, the model, the instructions or the workspace of a conversation."""
    body = await call.body(ChangedSession)
    session = await find_session(call)
    if body.language_model:
        model = allowed_language_model(call, body.language_model)
        agent_for(call, session.root.agent, model)
    await call.take_texts([body.instructions or ""])
    merged = {**session.metadata, **body.metadata}
    metadata = {name: note for name, note in merged.items() if note}
    if len(metadata) > MOST_NOTES:
        raise HttpError(
            400,
            f"session {session.id!r} would have {len(metadata)} entries; the limit is {MOST_NOTES}",
            code="too_much_metadata",
            param="metadata",
        )
    door = call.journal.door
    if metadata != session.metadata:
        door.change_metadata(session, metadata)
    if body.language_model is not None:
        door.change_state(session, DoorState, language_model=body.language_model)
    if body.instructions is not None:
        instructions = well_formed(body.instructions)
        door.change_state(session, ConversationState, instructions=instructions)
    if body.workspace is not None:
        door.change_state(session, ConversationState, workspace=body.workspace)
    call.record(session.id)
    return await show_session(call, FoundSession(session, call.journal.read.records))


@Operation(
    "POST",
    "/v1/sessions/{session}/messages",
    Scope.RUN,
    Answer("The next turn reads the message", ReceivedMessage, status=202),
    body=NewMessage,
    errors=(409, 422, 503),
    takes_idempotency_key=True,
)
async def tell_session(call: ApiCall) -> Response:
    """Send a message; the reply arrives in the inbox."""
    body = await call.body(NewMessage)
    context = context_of(call.headers)
    parts = parts_of(body.parts)
    text, instructions = well_formed(body.text), well_formed(body.instructions)
    await call.take_texts([text, instructions])
    await search_parts_ahead(call.journal.read.redactor, parts)
    session = await find_session(call)
    id_ = idempotency.message_id(call, _message_ids(session))
    seq = _seq_of(session, id_)
    if seq is None:
        state = session.state(ConversationState)
        request = InboundRequest(
            agent=agent_of(call, session),
            message=UserMessage(text, parts, id=id_),
            context=state.context(context),
            instructions="\n\n".join(filter(None, (state.instructions, instructions))),
            terms=AnswerTerms(keeps_reasoning=body.reasoning),
        )
        with call.begin_run(session):
            seq = call.journal.door.receive(session, request)
            call.record(session.id)
    read = call.journal.read
    await read.wait_durable()
    # A repeated message keeps its number, although the session has read it by now.
    for entry in () if seq else await read.entries_naming(MessageReceived, id_):
        if isinstance(entry.event, MessageReceived) and entry.event.id == id_:
            seq = entry.seq
    received = ReceivedMessage(session=session.id, message=id_, seq=seq)
    return json_response(received, 202, x_run_id=session.id)


def _message_ids(session: SessionRecord) -> Iterator[MessageId]:
    for message in session.root.transcript:
        yield message.id
    for mail in session.mail.values():
        if isinstance(mail, UserMessage):
            yield mail.id


def _seq_of(session: SessionRecord, id_: MessageId) -> int | None:
    """Return the fact number of an unread message; 0 if it was read, None if it is unknown."""
    for seq, mail in session.mail.items():
        if isinstance(mail, UserMessage) and mail.id == id_:
            return seq
    return None if session.root.transcript.find(id_) is None else 0


def agent_of(call: ApiCall, session: SessionRecord) -> Agent[object]:
    """Return the agent of a conversation, with the model that was chosen for it."""
    name = session.root.agent
    if name not in call.server.agents:
        raise HttpError(
            409,
            f"session {session.id!r} belongs to agent {name!r}, which this server does not serve;"
            " serve it again to go on",
            code="no_agent",
        )
    model = session.state(DoorState).language_model
    return with_language_model(call.server.agents[name], model)


@Operation(
    "GET",
    "/v1/sessions/{session}/messages",
    Scope.READ,
    Answer("A page of messages", Messages),
    query=TranscriptQuery,
)
async def get_messages(call: ApiCall) -> Response:
    """List the messages of a conversation, with tool calls and their results."""
    query = call.query(TranscriptQuery)
    session = (await read_session(call)).session
    messages = await transcript_of(call, session, session.root.id, query)
    return json_response(messages, x_run_id=session.id)


@_STEER.at("/v1/sessions/{session}/cancel", Answer("The text so far stays", Session))
async def cancel_turn(call: ApiCall) -> Response:
    """Cancel the present turn; detached tasks go on."""
    session = await find_session(call)
    call.record(session.id)
    await call.journal.orchestrator.cancel(session.root.id)
    return await show_session(call, await read_session(call))


@_STEER.at("/v1/sessions/{session}/close")
async def close_session(call: ApiCall) -> Response:
    """Close a conversation for good, and cancel its tasks."""
    session = await find_session(call)
    call.record(session.id)
    await call.journal.door.close(session)
    return await show_session(call, FoundSession(session, call.journal.read.records))
