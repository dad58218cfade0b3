"""The bodies of `/v1/conversations`, as OpenAI's clients write and read them."""

from typing import Annotated, Any, Final, Literal

import msgspec

from orchestrator.products.server.api.bodies import Metadata

MOST_ITEMS: Final = 20
"""How many items one request may add."""


class NewConversation(msgspec.Struct, kw_only=True):
    """A conversation that is to be kept."""

    items: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MOST_ITEMS)] | None = None
    """The items that it begins with, as in the input of a response."""
    metadata: Metadata | None = None


class ChangedConversation(msgspec.Struct, kw_only=True):
    """What is to be changed of a conversation."""

    metadata: Metadata | None


class NewItems(msgspec.Struct, kw_only=True):
    """Items that are to be added."""

    items: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=MOST_ITEMS)]
    """As in the input of a response."""


class Conversation(msgspec.Struct, kw_only=True):
    """A conversation: its items are a list of their own."""

    id: str
    created_at: int
    metadata: dict[str, str]
    object: Literal["conversation"] = "conversation"


class ConversationDeleted(msgspec.Struct, kw_only=True):
    id: str
    deleted: bool = True
    object: Literal["conversation.deleted"] = "conversation.deleted"


class ConversationItems(msgspec.Struct, kw_only=True):
    """A page of items."""

    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"
