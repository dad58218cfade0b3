"""The tools that a server lists, as an agent gets them: named, bounded and checked.

A server may list anything. An entry that cannot be a tool is left out and reported; a long text is
cut; invisible characters are removed, because a model reads them.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.messages import well_formed
from orchestrator.agents.output.json_schema import require_schema, require_short
from orchestrator.agents.tools.mcp.json_values import list_in, object_in
from orchestrator.agents.tools.mcp.server import McpServer
from orchestrator.agents.tools.model_names import model_name

if TYPE_CHECKING:
    from orchestrator.agents.tools.mcp.listed_skills import ListedSkill

SEPARATOR: Final = "__"
MOST_TOOLS: Final = 1_000
LONGEST_OWN_NAME: Final = 256
"""Of a tool, as its server calls it."""
LONGEST_DESCRIPTION: Final = 8_192
MOST_PROBLEMS: Final = 5
"""How many of the tools that were left out are named."""
# Tags, the zero-width ones, those that turn the direction of a line, variation selectors, fillers.
_UNSEEN: Final = re.compile(
    "[\U000e0000-\U000e0fff\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\u00ad"
    "\ufe00-\ufe0f\u061c\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0]"
)


@attrs.frozen(kw_only=True)
class ListedTool:
    """A tool of a server that an agent can have."""

    name: str
    """As a model calls it: `server__tool`."""
    own_name: str
    """As its server calls it."""
    description: str
    parameters: Mapping[str, Any]
    output: Mapping[str, Any] | None = None
    """The schema that the server promises for its answers; None if it cannot be checked."""
    repeatable: bool = False
    """Whether the server declares the tool idempotent. By this hint a call that may have run is
    repeated; it approves no call."""


@attrs.frozen
class Listing:
    """The tools and skills that an agent gets from a server, and the entries that were left out."""

    tools: tuple[ListedTool, ...]
    problems: tuple[str, ...] = ()
    """Why entries were left out: some of them, and how many more."""
    skills: "tuple[ListedSkill, ...]" = ()


def visible_text(text: object, limit: int = LONGEST_DESCRIPTION) -> str:
    """Return a text of a server without what people cannot see, and cut."""
    if not isinstance(text, str):
        return ""
    seen = _UNSEEN.sub("", well_formed(text[: 4 * limit])).strip()
    return seen if len(seen) <= limit else f"{seen[:limit]} […]"


def tool_name(server: str, tool: str) -> str:
    """Return how models call a tool of a server."""
    return model_name(tool, f"{server}{SEPARATOR}")


class ListingReader:
    """Reads a listing tool by tool, so that a listing of megabytes is no long step of its reader.

    Any of the tools may be wrong; `find_problem` returns why a schema cannot be used otherwise.
    """

    def __init__(
        self, server: McpServer, find_problem: Callable[[object], str | None] | None
    ) -> None:
        self._server = server
        self._find_problem = find_problem
        self._listed: dict[str, ListedTool] = {}
        self._problems: list[str] = []

    def add(self, tool: Mapping[str, Any]) -> None:
        """Read the next tool."""
        own_name = tool.get("name")
        if isinstance(own_name, str) and own_name and not self._server.offers(own_name):
            return
        try:
            found = self._read(tool)
        except DefinitionError as exc:
            self._problems.append(f"{visible_text(own_name, 64)!r}: {exc}")
        else:
            self._listed[found.name] = found

    def _read(self, tool: Mapping[str, Any]) -> ListedTool:
        if len(self._listed) == MOST_TOOLS:
            raise DefinitionError(f"its server has more than {MOST_TOOLS:,} tools")
        found = _listed_tool(self._server, tool)
        if self._find_problem and (problem := self._find_problem(tool.get("inputSchema"))):
            raise DefinitionError(problem)
        if found.name in self._listed:
            raise DefinitionError("there are two of that name")
        return found

    def listing(self) -> Listing:
        """Return the tools that an agent gets."""
        more = len(self._problems) - MOST_PROBLEMS
        shown = self._problems[:MOST_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
        # By name: prompt caches serve only requests whose tools have the same order.
        return Listing(tuple(self._listed[name] for name in sorted(self._listed)), tuple(shown))


def _listed_tool(server: McpServer, tool: Mapping[str, Any]) -> ListedTool:
    own_name = tool.get("name")
    if not isinstance(own_name, str) or not own_name.strip():
        raise DefinitionError("it has no name")
    if len(own_name) > LONGEST_OWN_NAME:
        raise DefinitionError(f"its name has {len(own_name)} characters")
    given = tool.get("inputSchema")
    schema = object_in(given)
    if not isinstance(given, dict) or schema.get("type", "object") != "object":
        raise DefinitionError("the schema of its arguments does not describe an object")
    require_short(schema)
    schema = object_in(_visible_tree({"type": "object", **schema}))
    require_schema(schema)
    annotations = object_in(tool.get("annotations"))
    title = visible_text(tool.get("title"), 200)
    return ListedTool(
        name=tool_name(server.name, own_name),
        own_name=own_name,
        description=visible_text(tool.get("description")) or title,
        parameters=schema,
        output=_output_schema(tool.get("outputSchema")),
        repeatable=annotations.get("readOnlyHint") is True
        or annotations.get("idempotentHint") is True,
    )


def _output_schema(given: object) -> Mapping[str, Any] | None:
    schema = object_in(given)
    try:
        require_schema(schema)
    except DefinitionError:
        # Its answers are read all the same: a schema that cannot be checked promises nothing.
        return None
    return schema or None


def _visible_tree(value: object) -> object:
    """Return a schema without the characters that people cannot see."""
    if isinstance(value, str):
        return visible_text(value)
    if items := list_in(value):
        return [_visible_tree(it) for it in items]
    if entries := object_in(value):
        # `$schema` names a draft, and a pattern is no prose.
        return {
            name: it if name in {"pattern", "enum", "const"} else _visible_tree(it)
            for name, it in entries.items()
        }
    return value
