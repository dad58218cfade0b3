"""`/v1/conversations`: items that responses read and add to, independent of agents."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.responses import Response

from orchestrator.delegation import SessionRecord
from orchestrator.products.server.api.bodies import Metadata
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.openai.conversations import kept_items
from orchestrator.products.server.openai.pages import ItemsQuery, Page
from orchestrator.products.server.openai.public_ids import CONVERSATION
from orchestrator.products.server.openai.responses.bodies import Item
from orchestrator.products.server.openai.responses.request import read_items
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.idempotency import session_exists, session_for_key

MOST_ITEMS: Final = 20
"""The most items that one request may add."""


class NewConversation(msgspec.Struct, kw_only=True):
    """A new conversation."""

    items: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MOST_ITEMS)] | None = None
    """The first items, as in the input of a response."""
    metadata: Metadata | None = None


class ChangedConversation(msgspec.Struct, kw_only=True):
    """The changes of a conversation."""

    metadata: Metadata | None


class NewItems(msgspec.Struct, kw_only=True):
    """Items to add to a conversation."""

    items: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=MOST_ITEMS)]
    """As in the input of a response."""


class Conversation(msgspec.Struct, kw_only=True):
    """A conversation; its items are listed separately."""

    id: str
    created_at: int
    metadata: dict[str, str]
    object: Literal["conversation"] = "conversation"


class ConversationDeleted(msgspec.Struct, kw_only=True):
    id: str
    deleted: bool = True
    object: Literal["conversation.deleted"] = "conversation.deleted"


class ConversationItems(Page[dict[str, Any]], kw_only=True):
    """A page of items."""


_PATH: Final = "/v1/conversations/{conversation}"
_CONVERSATION: Final = Answer("The conversation", Conversation)


@Operation(
    "POST",
    "/v1/conversations",
    Scope.RUN,
    _CONVERSATION,
    body=NewConversation,
    errors=(422, 503),
    takes_idempotency_key=True,
)
async def create_conversation(call: ApiCall) -> Response:
    """Create a conversation that responses continue."""
    body = await call.body(NewConversation)
    await _check(call, body.items or ())
    items = await kept_items.prepare(call, body.items or ())
    id_ = call.ids.new_session(call.journal.name)
    if session_exists(call, id_):
        session = await session_for_key(call, id_)
    else:
        session = call.journal.door.open_record(
            id_,
            owner=call.owner,
            metadata=body.metadata or {},
            states=(
                call.request_state(),
                kept_items.ConversationState(items=kept_items.numbered(items), next=len(items)),
            ),
        )
        call.record(session.id)
    return await _show(call, session)


@Operation("GET", _PATH, Scope.READ, _CONVERSATION)
async def get_conversation(call: ApiCall) -> Response:
    """Return a conversation without its items."""
    return await _show(call, await kept_items.find_conversation(call, call.path("conversation")))


@Operation("POST", _PATH, Scope.STEER, _CONVERSATION, body=ChangedConversation, errors=(503,))
async def update_conversation(call: ApiCall) -> Response:
    """Change the metadata of a conversation."""
    body = await call.body(ChangedConversation)
    session = await kept_items.find_conversation(call, call.path("conversation"))
    call.journal.door.change_metadata(session, body.metadata or {})
    call.record(session.id)
    return await _show(call, session)


@Operation("DELETE", _PATH, Scope.STEER, Answer("The conversation is deleted", ConversationDeleted))
async def delete_conversation(call: ApiCall) -> Response:
    """Delete a conversation with its items."""
    session = await kept_items.find_conversation(call, call.path("conversation"))
    call.record(session.id)
    await call.journal.door.close(session, deleted=True)
    return json_response(ConversationDeleted(id=CONVERSATION.of(session)))


@Operation(
    "POST",
    f"{_PATH}/items",
    Scope.RUN,
    Answer("The items", ConversationItems),
    body=NewItems,
    errors=(503,),
)
async def create_items(call: ApiCall) -> Response:
    """Add items to a conversation."""
    body = await call.body(NewItems)
    await _check(call, body.items)
    session = await kept_items.find_conversation(call, call.path("conversation"))
    added = await _add(call, session, body.items)
    call.record(session.id)
    return await call.durable_response(ConversationItems.of({it["id"]: it for it in added}))


@Operation(
    "GET",
    f"{_PATH}/items",
    Scope.READ,
    Answer("A page of items", ConversationItems),
    query=ItemsQuery,
)
async def list_items(call: ApiCall) -> Response:
    """List the items of a conversation."""
    query = call.query(ItemsQuery)
    session = await kept_items.find_conversation(call, call.path("conversation"))
    page = ConversationItems.select(kept_items.KeptItems(session).shown(), query)
    return await call.durable_response(page)


@Operation("GET", f"{_PATH}/items/{{item}}", Scope.READ, Answer("The item", dict[str, Any]))
async def get_item(call: ApiCall) -> Response:
    """Return one item of a conversation."""
    session = await kept_items.find_conversation(call, call.path("conversation"))
    item = kept_items.KeptItems(session).shown().get(call.path("item"))
    if item is None:
        raise _no_item(call)
    return await call.durable_response(item)


@Operation("DELETE", f"{_PATH}/items/{{item}}", Scope.STEER, _CONVERSATION, errors=(400,))
async def delete_item(call: ApiCall) -> Response:
    """Delete an item of a conversation."""
    session = await kept_items.find_conversation(call, call.path("conversation"))
    kept = kept_items.KeptItems(session)
    if call.path("item") not in kept.shown():
        raise _no_item(call)
    kept.require_unlocked()
    number = kept.numbers()[call.path("item")]
    call.journal.door.change_state(session, kept_items.ConversationState, items={number: None})
    call.record(session.id)
    return await _show(call, session)


async def _check(call: ApiCall, items: Sequence[dict[str, Any]]) -> None:
    """Refuse items that no response could read."""
    try:
        read = msgspec.convert(items, list[Item])
    except msgspec.ValidationError as exc:
        raise HttpError(
            400, f"an item is invalid: {exc}", code="invalid_body", param="items"
        ) from exc
    instructions, messages = read_items(read, "items")
    await call.take_texts([*instructions, *(it.text for it in messages)])


async def _add(
    call: ApiCall, session: SessionRecord, items: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    kept = kept_items.KeptItems(session)
    kept.require_unlocked()
    version = kept.version
    added = await kept_items.prepare(call, items, session)
    kept.require_unlocked(version)
    call.journal.door.change_state(
        session,
        kept_items.ConversationState,
        items=kept_items.numbered(added, version),
        next=version + len(added),
    )
    return added


async def _show(call: ApiCall, session: SessionRecord) -> Response:
    """Respond with the present state of a conversation, once it is durable."""
    created = session.tree[session.root.id].requested
    body = Conversation(
        id=CONVERSATION.of(session), created_at=int(created), metadata=dict(session.metadata)
    )
    return await call.durable_response(body)


def _no_item(call: ApiCall) -> HttpError:
    return HttpError(404, f"there is no item {call.path('item')!r}", code="not_found")
