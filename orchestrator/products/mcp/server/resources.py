"""The executed tree of a run as a resource: `run://{run}/tree`, and the same drawn.

Only the owner of a run finds its resources.
"""

import re
from collections.abc import Mapping
from typing import Final

import attrs

from orchestrator.delegation import SessionRecord, one_line
from orchestrator.ports.errors import UnknownIdError
from orchestrator.products.history.ports import MEDIA_TYPES, TreeFormat
from orchestrator.products.mcp.server.caller import Caller
from orchestrator.products.mcp.server.results import Json

FORMATS: Final[Mapping[str, TreeFormat]] = {
    "tree": "json",
    "tree.txt": "text",
    "tree.mermaid": "mermaid",
    "tree.svg": "svg",
}
"""The formats of a tree, by the last part of their addresses."""
_ABOUT: Final[Mapping[str, str]] = {
    "tree": "The executed tree of a run: its tasks, how each ended, and what they used.",
    "tree.txt": "The same as lines of text.",
    "tree.mermaid": "The same as a Mermaid diagram.",
    "tree.svg": "The same as a picture.",
}
_URI: Final = re.compile(r"run://(?P<run>[^/?#]+)/(?P<last>[^/?#]+)")


@attrs.frozen
class TreeAddress:
    """The tree of a resource, and its format."""

    run: str
    format: TreeFormat


def parse_uri(uri: str) -> TreeAddress:
    """Return the tree and format of a resource's address; raise `UnknownIdError` for any other."""
    found = _URI.fullmatch(uri)
    if found is None or found["last"] not in FORMATS:
        known = ", ".join(f"run://RUN/{it}" for it in FORMATS)
        raise UnknownIdError(f"there is no resource {uri!r}; there are: {known}")
    return TreeAddress(found["run"], FORMATS[found["last"]])


def resource_templates() -> list[Json]:
    """Return the templates of all addresses."""
    return [
        {
            "name": last,
            "uriTemplate": f"run://{{run}}/{last}",
            "description": about,
            "mimeType": MEDIA_TYPES[FORMATS[last]],
        }
        for last, about in _ABOUT.items()
    ]


async def list_resources(caller: Caller, cursor: str | None) -> Json:
    """Return the trees of the caller's runs, newest first, a page of them."""
    page = await caller.list_runs(cursor)
    listed: Json = {"resources": [_resource_of(it) for it in page.runs]}
    return listed if page.next is None else {**listed, "nextCursor": page.next}


def _resource_of(session: SessionRecord) -> Json:
    node = session.tree[session.root.id]
    about = one_line(node.goal)
    return {
        "uri": f"run://{session.id}/tree",
        "name": f"{session.root.agent}: {about}" if about else session.root.agent,
        "description": f"The executed tree of run {session.id}.",
        "mimeType": MEDIA_TYPES["json"],
    }


async def read_resource(caller: Caller, uri: str) -> Json:
    """Return the current tree, once it is durable."""
    address = parse_uri(uri)
    text = await caller.draw_tree(address.run, address.format)
    await caller.wait_durable()
    media_type = MEDIA_TYPES[address.format]
    return {"contents": [{"uri": uri, "mimeType": media_type, "text": text}]}
