"""`/v1/sessions`: conversations that go on until somebody closes them."""

import base64
import binascii
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from starlette.responses import Response

from agents import (
    Agent,
    DefinitionError,
    MessageId,
    Part,
    Usage,
    UserMessage,
    well_formed,
)
from delegation import SessionRecord
from delegation.events import MessageReceived
from orchestrator.doors.http import CONVERSATION, KIND
from orchestrator.doors.inbound import InboundRequest
from orchestrator.errors import UnknownIdError
from orchestrator.read_api import FoundSession
from orchestrator.server.api.bodies import (
    METADATA,
    Metadata,
    encode_metadata,
    metadata_of,
    status_of,
)
from orchestrator.server.api.lookup import PageQuery, page_of, read_run
from orchestrator.server.api.transcripts import (
    Messages,
    TranscriptQuery,
    transcript_of,
)
from orchestrator.server.operation import (
    ApiCall,
    Operation,
    ResponseSpec,
    json_response,
)
from orchestrator.server.transport.errors import HttpError
from orchestrator.server.transport.idempotency import (
    FINGERPRINT,
    message_id,
    session_exists,
    session_for_key,
)
from orchestrator.server.transport.session_headers import context_of

BASE64: Final = (
    "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"
)
MediaType: TypeAlias = Annotated[
    str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*$")
]


class NewSession(msgspec.Struct, kw_only=True):
    """Whom to talk to."""

    model: Annotated[str, msgspec.Meta(description="Which agent.")]
    metadata: Metadata = {}


class Session(msgspec.Struct, kw_only=True):
    """A conversation."""

    id: str
    object: Literal["session"] = "session"
    agent: str
    status: Annotated[
        Literal["idle", "in_progress", "waiting", "closed"],
        msgspec.Meta(description="`waiting` is for an approval."),
    ]
    turns: Annotated[int, msgspec.Meta(description="How many it has begun.")]
    inbox: Annotated[
        int, msgspec.Meta(description="How many replies nobody has taken yet.")
    ]
    usage: Usage
    metadata: dict[str, str]
    created: float
    seq: Annotated[
        int, msgspec.Meta(description="The number of the journal's last fact.")
    ]


class Sessions(msgspec.Struct, kw_only=True):
    """Some of the conversations, the newest first."""

    object: Literal["list"] = "list"
    data: list[Session]
    has_more: bool
    last_id: Annotated[
        str | None, msgspec.Meta(description="Go on with `?after=` this.")
    ]


class DataPart(msgspec.Struct, kw_only=True, tag="data"):
    """A file that is sent along."""

    media_type: MediaType
    data: Annotated[str, msgspec.Meta(pattern=BASE64, description="In base64.")]
    name: str = ""

    def part(self) -> Part:
        data = base64.b64decode(self.data, validate=True)
        return Part(self.media_type, data=data, name=self.name)


class LinkPart(msgspec.Struct, kw_only=True, tag="url"):
    """A file that the provider fetches."""

    media_type: MediaType
    url: Annotated[str, msgspec.Meta(pattern="^https?://[!-~]+$")]
    name: str = ""

    def part(self) -> Part:
        return Part(self.media_type, url=self.url, name=self.name)


class NewMessage(msgspec.Struct, kw_only=True):
    """Something to say."""

    text: str
    parts: list[DataPart | LinkPart] = []
    instructions: Annotated[
        str,
        msgspec.Meta(
            description="What holds for the turn that reads it, and no longer."
        ),
    ] = ""


class ReceivedMessage(msgspec.Struct, kw_only=True):
    """A message that a session will read."""

    session: str
    message: Annotated[str, msgspec.Meta(description="Its id in the transcript.")]
    seq: Annotated[
        int,
        msgspec.Meta(description="The fact that says so; replies name it in `read`."),
    ]


def _shown(found: FoundSession, seq: int) -> Session:
    session, tree = found.session, found.session.tree
    return Session(
        id=session.id,
        agent=session.root.agent,
        status=_status(found),
        turns=session.turns,
        inbox=len(session.undelivered),
        usage=tree.total,
        metadata=metadata_of(session),
        created=tree[tree.root]["requested"],
        seq=seq,
    )


def _status(found: FoundSession) -> Literal["idle", "in_progress", "waiting", "closed"]:
    if found.session.closed:
        return "closed"
    if status_of(found.session, found.ledger) == "waiting":
        return "waiting"
    return "idle" if found.session.has_nothing_pending else "in_progress"


async def _show(call: ApiCall, found: FoundSession, status: int = 200) -> Response:
    """Answer with a conversation as it is in this moment, once that is durable."""
    shown = _shown(found, call.server.book.ledger.last_seq)
    await call.server.book.wait_durable()
    return json_response(shown, status, x_run_id=shown.id)


async def read_session(call: ApiCall) -> FoundSession:
    seen = await read_run(call.server, call.path("session"))
    _require_conversation(seen.session)
    return seen


async def find_session(call: ApiCall) -> SessionRecord:
    """Return a conversation to act on."""
    session = await call.server.door.find(call.path("session"))
    _require_conversation(session)
    return session


def _require_conversation(session: SessionRecord) -> None:
    if session.labels.get(KIND) != CONVERSATION:
        raise UnknownIdError(
            f"there is no session {session.id!r}; it is a run: see /v1/runs/{session.id}"
        )


async def create_session(call: ApiCall) -> Response:
    wanted = call.body(NewSession)
    agent = call.server.agent(wanted.model)
    id_ = call.session_id_from_key()
    if session_exists(call, id_):
        session = await session_for_key(call, id_)
    else:
        labels = {
            FINGERPRINT: call.fingerprint,
            METADATA: encode_metadata(wanted.metadata),
        }
        session = call.server.door.open_conversation(agent, labels, id_)
    return await _show(call, FoundSession(session, call.server.book.ledger), 201)


async def list_sessions(call: ApiCall) -> Response:
    def show(seen: FoundSession) -> Session | None:
        is_one = seen.session.labels.get(KIND) == CONVERSATION
        return _shown(seen, call.server.book.ledger.last_seq) if is_one else None

    page = await page_of(call.server, call.query(PageQuery), show)
    await call.server.book.wait_durable()
    return json_response(
        Sessions(data=page.items, has_more=page.has_more, last_id=page.last)
    )


async def get_session(call: ApiCall) -> Response:
    return await _show(call, await read_session(call))


async def tell_session(call: ApiCall) -> Response:
    wanted = call.body(NewMessage)
    context = context_of(call.request.headers)
    parts = _parts(wanted)
    session = await find_session(call)
    said = _known_messages(session)
    id_ = message_id(call, said)
    seq = said.get(id_)
    if seq is None:
        asked = InboundRequest(
            agent=_agent(call, session),
            message=UserMessage(well_formed(wanted.text), parts, id=id_),
            context=context,
            instructions=well_formed(wanted.instructions),
        )
        seq = call.server.door.receive(session, asked)
    book = call.server.book
    await book.wait_durable()
    # What was sent before has the number that it had then, though it is read by now.
    for entry in () if seq else await book.read_naming(MessageReceived, id_):
        if isinstance(entry.event, MessageReceived) and entry.event.id == id_:
            seq = entry.seq
    received = ReceivedMessage(session=session.id, message=id_, seq=seq)
    return json_response(received, 202, x_run_id=session.id)


def _parts(wanted: NewMessage) -> tuple[Part, ...]:
    try:
        return tuple(sent.part() for sent in wanted.parts)
    except (DefinitionError, binascii.Error) as exc:
        raise HttpError(400, str(exc), code="invalid_part", param="parts") from exc


def _known_messages(session: SessionRecord) -> dict[MessageId, int]:
    """Return what was said to a session, and by which fact where it has not read it yet."""
    read = {said.id: 0 for said in session.root.transcript}
    mail = {
        said.id: seq
        for seq, said in session.mail.items()
        if isinstance(said, UserMessage)
    }
    return read | mail


def _agent(call: ApiCall, session: SessionRecord) -> Agent[object]:
    name = session.root.agent
    if name not in call.server.agents:
        raise HttpError(
            409,
            f"session {session.id!r} talks to {name!r}, whom this server does not serve; serve"
            " it again to go on",
            code="no_agent",
        )
    return call.server.agents[name]


async def get_messages(call: ApiCall) -> Response:
    query = call.query(TranscriptQuery)
    seen = await read_session(call)
    said = await transcript_of(call.server, seen, seen.session.root.id, query)
    return json_response(said, x_run_id=seen.session.id)


async def close_session(call: ApiCall) -> Response:
    session = await find_session(call)
    await call.server.door.close(session)
    return await _show(call, FoundSession(session, call.server.book.ledger))


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/sessions",
        handle=create_session,
        summary="Begin a conversation with an agent",
        body=NewSession,
        responses={201: ResponseSpec(description="It is open", body=Session)},
        error_statuses=(400, 404, 422, 503),
        takes_idempotency_key=True,
    ),
    Operation(
        method="GET",
        path="/v1/sessions",
        handle=list_sessions,
        summary="All conversations, the newest first",
        query=PageQuery,
        responses={200: ResponseSpec(description="Some of them", body=Sessions)},
        error_statuses=(400, 404),
    ),
    Operation(
        method="GET",
        path="/v1/sessions/{session}",
        handle=get_session,
        summary="How a conversation is",
        responses={200: ResponseSpec(description="It", body=Session)},
        error_statuses=(404,),
    ),
    Operation(
        method="POST",
        path="/v1/sessions/{session}/messages",
        handle=tell_session,
        summary="Say something; the reply comes into the inbox",
        body=NewMessage,
        responses={
            202: ResponseSpec(description="It will be read", body=ReceivedMessage)
        },
        error_statuses=(400, 404, 409, 422, 503),
        takes_idempotency_key=True,
    ),
    Operation(
        method="GET",
        path="/v1/sessions/{session}/messages",
        handle=get_messages,
        summary="All that was said, with calls of tools and their answers",
        query=TranscriptQuery,
        responses={200: ResponseSpec(description="A part of it", body=Messages)},
        error_statuses=(400, 404),
    ),
    Operation(
        method="POST",
        path="/v1/sessions/{session}/close",
        handle=close_session,
        summary="End a conversation for good, with all that it does",
        responses={200: ResponseSpec(description="All of it has ended", body=Session)},
        error_statuses=(404,),
        takes_idempotency_key=True,
    ),
)
