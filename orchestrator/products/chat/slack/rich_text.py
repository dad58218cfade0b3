"""Slack's rich text as values.

A text in it is literal, so no text of a model becomes markup or a mention. A long text is split
between paragraphs, items and lines; a long paragraph, between words. Code stays code in each part.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import attrs
import msgspec

from orchestrator.products.chat.markdown import ITEMS, Piece, Run, gap_between, pieces_of

LONGEST: Final = 4_000
"""The most characters of a message, by Slack's recommendation."""
LARGEST: Final = 10_000
"""The most bytes of a block's JSON; Slack refuses about 13,000."""
JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f\u20e3")
"""Characters that join their neighbours into one visible character."""

Json: TypeAlias = dict[str, Any]


def element_of(run: Run) -> Json:
    """Return a run as an element."""
    found: Json = {"type": "text", "text": run.text}
    if run.url:
        found = {"type": "link", "url": run.url, "text": run.text}
    if run.styles:
        found["style"] = dict.fromkeys(sorted(run.styles), True)
    return found


def _size(piece: Piece) -> int:
    """Return the bytes that a piece adds to the JSON of a block, or slightly less."""
    return 80 + len(msgspec.json.encode([element_of(run) for run in piece.runs]))


def _fits(piece: Piece) -> bool:
    """Return whether a piece fits into one message."""
    return len(piece.plain) <= LONGEST and _size(piece) <= LARGEST


@attrs.frozen
class RichText:
    """The content of one message."""

    pieces: tuple[Piece, ...]

    @property
    def plain(self) -> str:
        """Return the message without styles."""
        pairs = zip((None, *self.pieces), self.pieces, strict=False)
        return "".join(gap_between(before, piece) + piece.plain for before, piece in pairs)

    def block(self) -> Json:
        """Return the message as a block."""
        elements: list[Json] = []
        before: Piece | None = None
        for piece in self.pieces:
            content = [element_of(run) for run in piece.runs]
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


def rich_texts(markdown: str) -> list[RichText]:
    """Return a text as messages, each short enough for Slack."""
    messages: list[RichText] = []
    held: list[Piece] = []
    length = size = 0
    for piece in (part for whole in pieces_of(markdown) for part in _cut(whole)):
        more, bytes_ = len(piece.plain) + 2, _size(piece)
        if held and (length + more > LONGEST or size + bytes_ > LARGEST):
            messages.append(RichText(tuple(held)))
            held, length, size = [], 0, 0
        held.append(piece)
        length, size = length + more, size + bytes_
    if held:
        messages.append(RichText(tuple(held)))
    return messages


def _is_one_list(one: Piece, other: Piece) -> bool:
    follows = one.kind == "bullet" or other.number == one.number + 1
    return follows and (one.kind, one.indent) == (other.kind, other.indent)


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
    while not _fits(piece):
        first, rest = _halves(piece)
        yield first
        piece = rest
    yield piece


def _halves(piece: Piece) -> tuple[Piece, Piece]:
    """Return as much of a piece as fits into a message, and the rest."""
    taken: list[Run] = []
    for at, run in enumerate(piece.runs):
        longer = attrs.evolve(piece, runs=(*taken, run))
        if _fits(longer):
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
        if _fits(attrs.evolve(piece, runs=(*taken, head))):
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
