"""Pages of lists for OpenAI's clients."""

from collections.abc import Mapping
from typing import Annotated, Final, Generic, Literal, Self, TypeVar

import attrs
import msgspec

from orchestrator.products.server.transport.errors import not_found

T = TypeVar("T")
PAGE: Final = 20
LONGEST_PAGE: Final = 100


@attrs.frozen(kw_only=True)
class ItemsQuery:
    """The page and order of a list of items."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_PAGE)] = PAGE
    order: Literal["asc", "desc"] = "desc"
    after: str = ""
    """The id of the last item that the client has."""


class Page(msgspec.Struct, Generic[T], kw_only=True):
    """A part of a list."""

    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"

    @classmethod
    def of(cls, items: Mapping[str, T], *, has_more: bool = False) -> Self:
        """Return a page of items, given by their ids."""
        ids: list[str | None] = [*items] or [None]
        return cls(data=[*items.values()], first_id=ids[0], last_id=ids[-1], has_more=has_more)

    @classmethod
    def select(cls, items: Mapping[str, T], query: ItemsQuery) -> Self:
        """Return the page of a query from all items, given by their ids, oldest first."""
        ordered = [*items] if query.order == "asc" else [*items][::-1]
        if query.after:
            if query.after not in items:
                raise not_found(f"there is no item {query.after!r} to continue the list after")
            del ordered[: ordered.index(query.after) + 1]
        shown = {id_: items[id_] for id_ in ordered[: query.limit]}
        return cls.of(shown, has_more=len(ordered) > query.limit)
