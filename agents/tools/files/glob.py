"""Glob patterns, matched name by name while a folder is walked.

The match is a set of positions in the pattern, so a folder that cannot match is never entered.
"""

from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from orchestrator.agents.errors import ToolError

# Each name of a folder is compared with each name of the pattern.
MAX_CHARACTERS: Final = 1_000
MAX_NAMES: Final = 30

Positions: TypeAlias = frozenset[int]
"""How many names of the pattern may be matched by now; `**` makes it more than one number."""


class Glob:
    """A pattern of paths."""

    def __init__(self, pattern: str, *, hidden: bool) -> None:
        """Parse names with `*`, `?`, `[...]` and `**`; wildcards match dot files if `hidden`."""
        if "{" in pattern:
            raise ToolError(
                f"{pattern!r} is refused: braces are not known here; call once for each"
            )
        names = [name for name in pattern.split("/") if name not in {"", "."}]
        # `**/**` means the same as `**`.
        self._names = [
            name
            for index, name in enumerate(names)
            if name != "**" or names[index - 1 : index] != ["**"]
        ]
        if len(pattern) > MAX_CHARACTERS or len(self._names) > MAX_NAMES:
            raise ToolError(
                f"a pattern has at most {MAX_CHARACTERS} characters, in {MAX_NAMES} names"
            )
        self._hidden = hidden

    def start(self) -> Positions:
        return self._skip_empty({0})

    def step(self, positions: Positions, name: str) -> Positions:
        """Return the positions after a name; none means that nothing below can match."""
        after: set[int] = set()
        for position in positions:
            if position == len(self._names):
                continue
            expected = self._names[position]
            if name.startswith(".") and not (self._hidden or expected.startswith(".")):
                continue
            if expected == "**":
                after.add(position)
            elif fnmatchcase(name, expected):
                after.add(position + 1)
        return self._skip_empty(after)

    def matches(self, positions: Positions) -> bool:
        return len(self._names) in positions

    def can_continue(self, positions: Positions) -> bool:
        return any(position < len(self._names) for position in positions)

    def has_literal(self, name: str) -> bool:
        """Return whether the pattern spells this name out."""
        return name in self._names

    def _skip_empty(self, positions: set[int]) -> Positions:
        # `**` also stands for no folder at all.
        for position, name in enumerate(self._names):
            if position in positions and name == "**":
                positions.add(position + 1)
        return frozenset(positions)
