"""Stored chat completions, which clients retrieve, list, change and delete.

A chat with `store: true` is its session, marked in a state. The list finds the facts with this
state, and loads only the sessions on its page.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import attrs
import msgspec
import trio
from starlette.responses import Response

from orchestrator.agents import AssistantMessage, ToolMessage, UserMessage
from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.delegation.events import SessionOpened
from orchestrator.delegation.session_state import SessionState, read_state
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.sessions import is_over
from orchestrator.products.server.api.bodies import Metadata
from orchestrator.products.server.api.lookup import read_other_run
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.openai.chat import bodies
from orchestrator.products.server.openai.chat.response import completion, function_call
from orchestrator.products.server.openai.choices import ChoicesState, choices_of
from orchestrator.products.server.openai.failures import session_error
from orchestrator.products.server.openai.pages import ItemsQuery, Page
from orchestrator.products.server.openai.public_ids import COMPLETION, find_object
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.transport.errors import not_found


class StoredChatState(SessionState, frozen=True):
    """Whether a chat is stored. The facts of stored chats are found by the name of the state."""

    NAME: ClassVar[str] = "stored_chat"
    is_stored: bool = False
    instructions: str = ""
    """The system and developer messages of a stored chat."""


@attrs.frozen(kw_only=True)
class StoredQuery:
    """The page and filters of a list of stored chats; `metadata[name]=text` is a filter, too."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "asc"
    after: str = ""
    """The id of the last completion that the client has."""
    model: str = ""


class StoredCompletion(bodies.ChatCompletion, kw_only=True):
    """A chat completion with the client's metadata."""

    metadata: dict[str, str]


class StoredCompletions(Page[StoredCompletion], kw_only=True):
    """A page of chat completions."""


class ChangedCompletion(msgspec.Struct, kw_only=True):
    """The changes of a stored chat completion."""

    metadata: Metadata | None


class CompletionDeleted(msgspec.Struct, kw_only=True):
    id: str
    deleted: bool = True
    object: Literal["chat.completion.deleted"] = "chat.completion.deleted"


class StoredMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message that a stored chat completion answers."""

    id: str
    role: str
    content: str | None
    tool_calls: list[bodies.FunctionCall] | None = None
    tool_call_id: str | None = None


class StoredMessages(Page[StoredMessage], kw_only=True):
    """A page of messages."""


_PATH: Final = "/v1/chat/completions/{completion}"
_COMPLETION: Final = Answer("The chat completion", StoredCompletion)


@Operation("GET", _PATH, Scope.READ, _COMPLETION)
async def get_completion(call: ApiCall) -> Response:
    """Return a stored chat completion."""
    return await _show(call, await _find(call))


@Operation("POST", _PATH, Scope.STEER, _COMPLETION, body=ChangedCompletion, errors=(503,))
async def update_completion(call: ApiCall) -> Response:
    """Change the metadata of a stored chat completion."""
    body = await call.body(ChangedCompletion)
    session = await _find(call)
    call.journal.door.change_metadata(session, body.metadata or {})
    call.record(session.id)
    return await _show(call, session)


@Operation(
    "DELETE", _PATH, Scope.STEER, Answer("The chat completion is deleted", CompletionDeleted)
)
async def delete_completion(call: ApiCall) -> Response:
    """Delete a stored chat completion."""
    session = await _find(call)
    call.record(session.id)
    for choice in await choices_of(call, session):
        await call.journal.door.close(choice, deleted=True)
    return json_response(CompletionDeleted(id=COMPLETION.of(session)))


@Operation(
    "GET",
    "/v1/chat/completions",
    Scope.READ,
    Answer("A page of chat completions", StoredCompletions),
    query=StoredQuery,
    errors=(404,),
)
async def list_completions(call: ApiCall) -> Response:
    """List stored chat completions."""
    query = call.query(StoredQuery)
    metadata = _metadata_in(call.request.query_params)
    found: list[StoredCompletion] = []
    has_begun = not query.after
    for id_ in await _stored(call, query):
        try:
            session = await read_other_run(call, id_)
        except UnknownIdError:
            continue  # it was deleted
        if not has_begun:
            has_begun = COMPLETION.of(session) == query.after
            continue
        is_wanted = metadata.items() <= session.metadata.items()
        if is_wanted and _is_answered(session):
            found.append(await _body(call, session))
        if len(found) > query.limit:
            break
    if not has_begun:
        raise not_found(f"there is no completion {query.after!r} to continue the list after")
    page = {it.id: it for it in found[: query.limit]}
    return json_response(StoredCompletions.of(page, has_more=len(found) > query.limit))


@Operation(
    "GET",
    f"{_PATH}/messages",
    Scope.READ,
    Answer("A page of messages", StoredMessages),
    query=ItemsQuery,
)
async def list_messages(call: ApiCall) -> Response:
    """List the messages that a stored chat completion answers."""
    asked = call.query(ItemsQuery)
    session = await _find(call)
    messages = {it.id: it for it in _messages(session)}
    # The oldest messages come first by default.
    if "order" not in call.request.query_params:
        asked = attrs.evolve(asked, order="asc")
    return json_response(StoredMessages.select(messages, asked))


async def _stored(call: ApiCall, query: StoredQuery) -> list[SessionId]:
    """Return the stored chats that the key of a request sees, in the requested order."""
    await trio.lowlevel.checkpoint()
    opened: list[tuple[float, SessionId]] = []
    for journal in call.server.journals:
        for entry in await journal.read.entries_naming(SessionOpened, StoredChatState.NAME):
            fact = entry.event
            if (
                isinstance(fact, SessionOpened)
                and StoredChatState.NAME in fact.states
                and not read_state(fact.states, ChoicesState).number
                and query.model in {"", fact.agent}
                and journal.owners.sees(call.key, fact.session)
            ):
                opened.append((entry.at, fact.session))
    opened.sort(key=lambda it: it[0], reverse=query.order == "desc")
    return [id_ for _, id_ in opened]


def _metadata_in(query: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix("metadata[").removesuffix("]"): text
        for name, text in query.items()
        if name.startswith("metadata[") and name.endswith("]")
    }


async def _find(call: ApiCall) -> SessionRecord:
    """Return the first session of a stored chat."""
    return await find_object(
        call, COMPLETION, call.path("completion"), _is_stored, "stored chat completion"
    )


def _is_stored(session: SessionRecord) -> bool:
    return session.state(StoredChatState).is_stored and _is_answered(session)


def _is_answered(session: SessionRecord) -> bool:
    return is_over(session) and session.last_outcome is not None and session_error(session) is None


async def _show(call: ApiCall, session: SessionRecord) -> Response:
    return await call.durable_response(await _body(call, session), x_run_id=session.id)


async def _body(call: ApiCall, session: SessionRecord) -> StoredCompletion:
    await trio.lowlevel.checkpoint()
    answer = completion(await choices_of(call, session))
    fields: dict[str, Any] = msgspec.structs.asdict(answer)
    return StoredCompletion(**fields, metadata=dict(session.metadata))


def _messages(session: SessionRecord) -> list[StoredMessage]:
    """Return the messages of the request: all before the first answer of the agent."""
    found: list[StoredMessage] = []

    def add(role: str, content: str | None, **more: Any) -> None:
        id_ = f"{COMPLETION.of(session)}-{len(found)}"
        found.append(StoredMessage(id=id_, role=role, content=content, **more))

    if instructions := session.state(StoredChatState).instructions:
        add("system", instructions)
    for message in session.root.transcript:
        match message:
            case UserMessage():
                add("user", message.text)
            case ToolMessage():
                add("tool", message.text, tool_call_id=message.call)
            case AssistantMessage() if message.id.startswith("h_"):
                calls = [function_call(it) for it in message.calls]
                add("assistant", message.text or None, tool_calls=calls or None)
            case AssistantMessage():
                break
    return found
