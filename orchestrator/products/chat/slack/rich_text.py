"""Slack's rich text as values.

A text in it is literal, so no text of a model becomes markup or a mention. A long text is split
between paragraphs, items and lines; a long paragraph, between words. Code stays code in each part.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

LONGEST: Final = 4_000
"""The most characters of a message, by Slack's recommendation."""
LARGEST: Final = 10_000
"""The most bytes of a block's JSON; Slack refuses about 13,000."""
BULLET: Final = "•"
JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f\u20e3")
"""Characters that join their neighbours into one visible character."""

Json: TypeAlias = dict[str, Any]
ITEMS: Final = frozenset({"bullet", "ordered"})
Kind: TypeAlias = Literal["section", "bullet", "ordered", "quote", "preformatted"]


@attrs.frozen
class Run:
    """Characters of one style; a link if it has a URL."""

    text: str
    styles: frozenset[str] = frozenset()
    url: str = ""

    def element(self) -> Json:
        """Return the run as an element."""
        found: Json = {"type": "text", "text": self.text}
        if self.url:
            found = {"type": "link", "url": self.url, "text": self.text}
        if self.styles:
            found["style"] = dict.fromkeys(sorted(self.styles), True)
        return found


@attrs.frozen
class Piece:
    """A paragraph, an item of a list, a quotation, or code."""

    kind: Kind
    runs: tuple[Run, ...]
    indent: int = 0
    """The number of lists around an item's own list."""
    number: int = 1
    """The number of an item."""

    @property
    def text(self) -> str:
        return "".join(run.text for run in self.runs)

    @property
    def size(self) -> int:
        """The bytes that the piece adds to the JSON of a block, or slightly less."""
        return 80 + len(msgspec.json.encode([run.element() for run in self.runs]))

    @property
    def plain(self) -> str:
        """Return the piece without styles."""
        match self.kind:
            case "bullet":
                return f"{'  ' * self.indent}{BULLET} {self.text}"
            case "ordered":
                return f"{'  ' * self.indent}{self.number}. {self.text}"
            case "quote":
                return "\n".join(f"> {line}" for line in self.text.splitlines())
            case "section" | "preformatted":
                return self.text

    def fits(self) -> bool:
        """Return whether the piece fits into one message."""
        return len(self.plain) <= LONGEST and self.size <= LARGEST


@attrs.frozen
class RichText:
    """The content of one message."""

    pieces: tuple[Piece, ...]

    @property
    def plain(self) -> str:
        """Return the message without styles."""
        lines: list[str] = []
        before: Piece | None = None
        for piece in self.pieces:
            is_item = piece.kind in ITEMS
            if before is not None and not (is_item and before.kind in ITEMS):
                lines.append("")
            lines.append(piece.plain)
            before = piece
        return "\n".join(lines)

    def block(self) -> Json:
        """Return the message as a block."""
        elements: list[Json] = []
        before: Piece | None = None
        for piece in self.pieces:
            content = [run.element() for run in piece.runs]
            if piece.kind in ITEMS:
                item = {"type": "rich_text_section", "elements": content}
                if before is not None and _is_one_list(before, piece):
                    elements[-1]["elements"].append(item)
                else:
                    elements.append(_list_with(piece, item))
            elif piece.kind == "section" and before and before.kind == "section":
                gap = {"type": "text", "text": "\n\n"}
                elements[-1]["elements"] += [gap, *content]
            else:
                elements.append({"type": f"rich_text_{piece.kind}", "elements": content})
            before = piece
        return {"type": "rich_text", "elements": elements}


def split_pieces(pieces: Sequence[Piece]) -> list[RichText]:
    """Return the messages for all pieces, in order."""
    messages: list[RichText] = []
    held: list[Piece] = []
    length = size = 0
    for piece in (part for whole in pieces for part in _cut(whole)):
        more, bytes_ = len(piece.plain) + 2, piece.size
        if held and (length + more > LONGEST or size + bytes_ > LARGEST):
            messages.append(RichText(tuple(held)))
            held, length, size = [], 0, 0
        held.append(piece)
        length, size = length + more, size + bytes_
    if held:
        messages.append(RichText(tuple(held)))
    return messages


def _is_one_list(one: Piece, other: Piece) -> bool:
    return (one.kind, one.indent) == (other.kind, other.indent)


def _list_with(piece: Piece, item: Json) -> Json:
    found: Json = {
        "type": "rich_text_list",
        "style": piece.kind,
        "indent": piece.indent,
        "elements": [item],
    }
    if piece.kind == "ordered" and piece.number > 1:
        found["offset"] = piece.number - 1
    return found


def _cut(piece: Piece) -> Iterator[Piece]:
    """Cut a piece until each part fits into a message."""
    while not piece.fits():
        first, rest = _halves(piece)
        yield first
        piece = rest
    yield piece


def _halves(piece: Piece) -> tuple[Piece, Piece]:
    """Return as much of a piece as fits into a message, and the rest."""
    taken: list[Run] = []
    for at, run in enumerate(piece.runs):
        longer = attrs.evolve(piece, runs=(*taken, run))
        if longer.fits():
            taken.append(run)
            continue
        rest = piece.runs[at:]
        # A link is cut only if it alone is longer than a message.
        if not taken or (not run.url and len(run.text) > 1):
            room = _room(piece, taken, run)
            if room:
                end = _end_of_words(run.text, room)
                taken.append(attrs.evolve(run, text=run.text[:end], url=""))
                left = run.text[end:].lstrip() or " "
                rest = (attrs.evolve(run, text=left), *piece.runs[at + 1 :])
        return (attrs.evolve(piece, runs=tuple(taken)), attrs.evolve(piece, runs=rest))
    raise AssertionError("a piece that does not fit has a run that does not")


def _room(piece: Piece, taken: list[Run], run: Run) -> int:
    """Return the number of characters of a run that fit after the runs already taken."""
    low, high = 0, len(run.text)
    while low < high:
        middle = (low + high + 1) // 2
        head = attrs.evolve(run, text=run.text[:middle], url="")
        if attrs.evolve(piece, runs=(*taken, head)).fits():
            low = middle
        else:
            high = middle - 1
    return low


def _end_of_words(text: str, most: int) -> int:
    """Return where to cut a text: after a line, else after a word, else between two characters."""
    for mark in ("\n", " "):
        at = text.rfind(mark, most // 2, most)
        if at >= 0:
            return at + 1
    at = most
    while at > 1 and (text[at : at + 1] in JOINERS or text[at - 1] in JOINERS):
        at -= 1
    return at
