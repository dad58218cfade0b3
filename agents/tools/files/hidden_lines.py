"""The lines of a file that are partly hidden from a reader, because they contain secrets.

An edit keeps them unchanged and hidden. Otherwise a model that renames `DB_PASSWORD` reads its
value, and a model that guesses learns from the answer whether it was right.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Final

from orchestrator.agents.errors import ToolError

SHORTEST: Final = 4
"""A shorter text is in any file."""


class HiddenLines:
    """The hidden parts of one version of a file, whose text has plain line ends."""

    def __init__(self, text: str, redact: Callable[[str], str]) -> None:
        self.shown = redact(text)
        """The text of the file that is shown."""
        self._redact = redact
        self._hidden = _hidden_by_line(text, self.shown)
        self._numbers = sorted(self._hidden)

    def __bool__(self) -> bool:
        """Return whether anything is hidden."""
        return bool(self._hidden)

    def are_among(self, first: int, last: int) -> bool:
        """Return whether something is hidden in some lines, counted from 1."""
        at = bisect_left(self._numbers, first)
        return at < len(self._numbers) and self._numbers[at] <= last

    def require_hidden_in(self, text: str, *, added: str, path: str) -> None:
        """Refuse a change that would show a hidden part."""
        if not self._hidden:
            return
        shown = self._redact(text)
        for secret in self._hidden.values():
            known = self.shown.count(secret) + added.count(secret)
            if len(secret) >= SHORTEST and shown.count(secret) > known:
                raise ToolError(
                    f"{path} was not changed: it holds secrets that you are not shown, and this"
                    " would show one; do not edit the lines around them"
                )


def _hidden_by_line(text: str, shown: str) -> Mapping[int, str]:
    """Return the hidden part of each line that is not shown in full, by its number from 1."""
    if shown == text:
        return {}
    lines, shown_lines = text.split("\n"), shown.split("\n")
    if len(lines) != len(shown_lines):
        # A secret of several lines has become one placeholder.
        visible = frozenset(shown_lines)
        return {number: line for number, line in enumerate(lines, start=1) if line not in visible}
    pairs = zip(lines, shown_lines, strict=True)
    return {
        number: _difference(line, shown_line)
        for number, (line, shown_line) in enumerate(pairs, start=1)
        if line != shown_line
    }


def _difference(line: str, shown: str) -> str:
    """Return a line without the shown parts at its start and its end."""
    begin = _common_length(line, shown)
    rest, shown = line[begin:], shown[begin:]
    end = _common_length(rest[::-1], shown[::-1])
    return rest[: len(rest) - end]


def _common_length(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    differences = (at for at, (mine, theirs) in enumerate(pairs) if mine != theirs)
    return next(differences, min(len(one), len(other)))
