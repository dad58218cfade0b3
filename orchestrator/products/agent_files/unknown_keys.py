"""Keys of an agent that have no meaning here: a mistyped one is an error, another one is left out.

An agent without the limit or the rule that its file means would do what its author has forbidden.
"""

from collections.abc import Collection, Mapping
from typing import Final

import attrs

from orchestrator.agents import Agent, Budget, Limits
from orchestrator.agents.nearest_name import nearest_name
from orchestrator.products.agent_files.entry import AgentEntry
from orchestrator.products.agent_files.located import Located

CLAUDE_KEYS: Final = frozenset(
    {
        *("background", "color", "effort", "hooks", "initialPrompt", "isolation"),
        *("maxTurns", "memory", "permissionMode", "skills"),
    }
)
"""Keys of Claude Code without a counterpart here, whatever they look like."""
OTHER_WORDS: Final[Mapping[str, str]] = {
    "allowed-tools": "tools",
    "allowed_tools": "tools",
    "allowedTools": "tools",
    "permissions": "approve",
}
"""Keys whose nearest name would mislead."""
INSIDE: Final[Mapping[str, str]] = {
    **{field.name: "limits: {%s: ...}" for field in attrs.fields(Limits)},
    **{field.name: "budget: {%s: ...}" for field in attrs.fields(Budget) if field.name != "name"},
    **dict.fromkeys(("allow", "ask", "deny"), "approve: [{%s: ...}]"),
}
"""Keys that belong into another one, and how that is written."""
IN_PYTHON: Final = frozenset(field.name for field in attrs.fields(Agent))
NEAR: Final = 0.75
"""A letter or two of a word; `scope` is no mistyped `copies`."""


def left_out_keys(entry: AgentEntry, known: Collection[str]) -> dict[str, Located]:
    """Return the keys without a meaning here; raise `AgentFileError` if one looks meant for us."""
    is_markdown = entry.at.file.suffix.lower() == ".md"
    names = {*known, "name" if is_markdown else "instructions"}
    found = {key: it for key, it in entry.fields.items() if key not in names}
    for key, value in found.items():
        if key not in CLAUDE_KEYS and (problem := _problem(key, names)):
            value.refuse(problem)
    return found


def _problem(key: str, names: Collection[str]) -> str | None:
    """Return the probable meaning of a key, unless it is to be left out."""
    if key == "instructions":
        return "the instructions are the text below the front matter: write them there"
    if key in INSIDE:
        return f"an agent has no key {key!r}: write {INSIDE[key] % key!r}"
    if key in IN_PYTHON and key not in names:
        return f"a file cannot give {key!r}: make this agent in Python"
    meant = OTHER_WORDS.get(key) or nearest_name(key, names, cutoff=NEAR)
    return meant and f"an agent has no key {key!r}; did you mean {meant!r}?"
