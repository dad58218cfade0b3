"""Pages of items, as OpenAI's clients ask for them."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import attrs
import msgspec

from orchestrator.products.server.transport.errors import not_found

PAGE: Final = 20
LONGEST_PAGE: Final = 100


@attrs.frozen(kw_only=True)
class ItemsQuery:
    """Which items are listed."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_PAGE)] = PAGE
    order: Literal["asc", "desc"] = "desc"
    after: str = ""
    """The id of the last item that the client has."""


def page_of_items(ids: Sequence[str], query: ItemsQuery) -> tuple[list[str], bool]:
    """Return the ids of a page, and whether there are more behind it.

    Args:
        ids: those of all items, oldest first.
        query: which page.
    """
    ordered = [*ids] if query.order == "asc" else [*ids][::-1]
    if query.after:
        if query.after not in ordered:
            raise not_found(f"there is no item {query.after!r} to go on after")
        del ordered[: ordered.index(query.after) + 1]
    return ordered[: query.limit], len(ordered) > query.limit
