"""The layout of a diagram: the place of each box, frame and arrow, in pixels."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from orchestrator.agents.pictures.diagram import Box, Diagram, Frame, Node, Row

SANS: Final = 7.1
"""The width of a letter at 13 pixels, at most, in the usual fonts."""
MONO: Final = 7.6
BOLD: Final = 8.8
"""The width of a letter of a name."""
PAD: Final = 12
LINE: Final = 17
NAME_LINE: Final = 22
BAR: Final = 6
"""The height of the bar of counts."""
COUNTS: Final = LINE + BAR
"""The height of the counts of a run, which replace the limits."""
NARROWEST, WIDEST = 120, 230
"""The widths of a box."""
GAP: Final = 44
"""The least space between two parts of a row."""
BESIDE: Final = 14
"""The space between boxes side by side."""
BELOW: Final = 54
"""The space between an agent and its delegates, or the parts of a loop."""
HEAD: Final = 32
"""The height of the head of a frame."""
STACK: Final = 5
"""How far the boxes of a stack are apart."""
TRUNK: Final = 22
"""How far rows of delegates are indented, and how far they are below their line."""
WIDEST_ROW: Final = 1_150
"""A longer row continues in the next line."""
WIDEST_TEAM: Final = 620
"""Wider teams have several rows."""


@attrs.frozen
class PlacedBox:
    x: float
    y: float
    width: float
    height: float
    box: Box


@attrs.frozen
class PlacedFrame:
    x: float
    y: float
    width: float
    height: float
    title: str
    note: str


@attrs.frozen
class Arrow:
    """A line with a head at its last point."""

    points: tuple[tuple[float, float], ...]
    label: str = ""
    label_at: tuple[float, float] = (0, 0)
    anchor: str = "middle"
    is_type: bool = True
    """The label is a type."""
    is_dashed: bool = False


Placed = PlacedBox | PlacedFrame | Arrow


@attrs.frozen
class Piece:
    """A part of the picture, from its own left upper corner."""

    width: float
    height: float
    port: float
    """How far down the arrows end and begin."""
    entry: float
    """Where an arrow from the left ends."""
    exit: float
    """Where an arrow to the right begins."""
    placed: tuple[Placed, ...]

    def moved(self, x: float, y: float) -> "list[Placed]":
        return [_moved(it, x, y) for it in self.placed]


def layout(diagram: Diagram) -> Piece:
    """Return the places of all parts of a diagram."""
    body = diagram.body
    row = body if isinstance(body, Row) else Row(parts=(body,), types=())
    return _wrapped(row, diagram.takes, diagram.gives)


def text_width(words: str, letter: float) -> float:
    """Return how wide a text is at most."""
    wide = sum(unicodedata.east_asian_width(it) in "WF" for it in words)
    return letter * (len(words) + wide)


def _piece(node: Node) -> Piece:
    if isinstance(node, Box):
        return _with_delegates(node)
    if isinstance(node, Row):
        return _row([_piece(part) for part in node.parts], node.types)
    return _frame(node)


def _box(box: Box) -> Piece:
    lines = [(box.model, SANS), (box.tools, MONO), *((limit, SANS) for limit in box.limits)]
    label = text_width(box.label, SANS) + PAD if box.label else 0
    widest = max(
        [text_width(box.agent, BOLD) + label, *(text_width(*it) for it in lines)], default=0
    )
    width = min(max(widest + 2 * PAD, NARROWEST), WIDEST + label)
    shown = bool(box.model) + bool(box.tools)
    lower = max(LINE * len(box.limits), COUNTS) + 8 if box.limits else 0
    height = 2 * PAD + NAME_LINE + LINE * shown + lower - 4
    stack = 2 * STACK if box.is_stacked else 0
    placed = PlacedBox(0, 0, width, height, box)
    port = PAD + NAME_LINE
    return Piece(width + stack, height + stack, port, 0, width + stack, (placed,))


def _with_delegates(box: Box) -> Piece:
    own = _box(box)
    if not box.delegates:
        return own
    pieces = [_piece(it) for it in box.delegates]
    total = sum(it.width for it in pieces) + BESIDE * (len(pieces) - 1)
    top = own.height + BELOW
    if total > WIDEST_TEAM:
        return _in_rows(own, pieces, box.delegates_note)
    width = max(total, own.width)
    left, x = (width - own.width) / 2, (width - total) / 2
    middle = left + own.width / 2
    placed = own.moved(left, 0)
    for number, piece in enumerate(pieces):
        placed += piece.moved(x, top)
        end = x + (piece.entry + piece.exit) / 2
        turn = own.height + BELOW / 2
        points = [(middle, turn), (end, turn), (end, top)]
        if number == 0:
            # The others branch off from this one.
            points.insert(0, (middle, own.height))
        if abs(end - middle) < 1:
            points = [(middle, own.height if len(pieces) == 1 else turn), (end, top)]
        label = box.delegates_note if number == 0 else ""
        placed.append(
            Arrow(
                tuple(points),
                label,
                (middle + 8, turn - 8),
                anchor="start",
                is_type=False,
                is_dashed=True,
            )
        )
        x += piece.width + BESIDE
    note = middle + 8 + text_width(box.delegates_note, SANS)
    height = top + max(it.height for it in pieces)
    return Piece(
        max(width, note), height, own.port, left + own.entry, left + own.exit, tuple(placed)
    )


def _in_rows(own: Piece, pieces: Sequence[Piece], note: str) -> Piece:
    """Return an agent with its delegates in several rows below it."""
    rows: list[list[Piece]] = [[]]
    width = 0.0
    for piece in pieces:
        if rows[-1] and width + piece.width > WIDEST_TEAM:
            rows.append([])
            width = 0
        rows[-1].append(piece)
        width += piece.width + BESIDE
    placed = list(own.placed)
    widest, y = own.width, own.height + BELOW / 2
    for number, row in enumerate(rows):
        x, top = 2.0 * TRUNK, y + TRUNK
        for at, piece in enumerate(row):
            placed += piece.moved(x, top)
            end = x + (piece.entry + piece.exit) / 2
            points = [(end, y), (end, top)]
            if at == len(row) - 1:
                # One line leads to the row, and one down to all rows.
                points.insert(0, (TRUNK, y))
                if number == len(rows) - 1:
                    points.insert(0, (TRUNK, own.height))
            label = note if number == at == 0 else ""
            place = (TRUNK + 8, own.height + 16)
            placed.append(
                Arrow(tuple(points), label, place, anchor="start", is_type=False, is_dashed=True)
            )
            x += piece.width + BESIDE
        widest = max(widest, x - BESIDE)
        y = top + max(it.height for it in row) + BESIDE
    return Piece(widest, y - BESIDE, own.port, own.entry, own.exit, tuple(placed))


def _frame(frame: Frame) -> Piece:
    pieces = [_piece(part) for part in frame.parts]
    if frame.flow == "row":
        inner = _row(pieces, frame.types[:-1])
    elif frame.flow == "loop" and len(pieces) == 2:
        inner = _loop(pieces[0], pieces[1], frame.types)
    else:
        inner = _column(pieces)
    head = text_width(frame.title, MONO) + text_width(frame.note, SANS) + 2 * PAD + 24
    width = max(inner.width + 2 * PAD, head)
    height = inner.height + HEAD + PAD
    left = (width - inner.width) / 2
    placed = [PlacedFrame(0, 0, width, height, frame.title, frame.note), *inner.moved(left, HEAD)]
    return Piece(width, height, HEAD + inner.port, 0, width, tuple(placed))


def _column(pieces: Sequence[Piece]) -> Piece:
    width = max(it.width for it in pieces)
    placed: list[Placed] = []
    y = 0.0
    for piece in pieces:
        placed += piece.moved((width - piece.width) / 2, y)
        y += piece.height + BESIDE
    return Piece(width, y - BESIDE, pieces[0].port, 0, width, tuple(placed))


def _loop(first: Piece, second: Piece, types: Sequence[str]) -> Piece:
    labels = [text_width(words, MONO) for words in types[:2]]
    width = max(first.width, second.width, sum(labels) + 64)
    left, right = (width - first.width) / 2, (width - second.width) / 2
    top = first.height + BELOW
    middle = width / 2
    down, up = middle + 24, middle - 24
    turn = first.height + BELOW / 2 + 4
    placed = [
        *first.moved(left, 0),
        *second.moved(right, top),
        Arrow(((down, first.height), (down, top)), types[0], (down + 6, turn), anchor="start"),
        Arrow(((up, top), (up, first.height)), types[1], (up - 6, turn), anchor="end"),
    ]
    return Piece(width, top + second.height, first.port, 0, width, tuple(placed))


def _row(pieces: Sequence[Piece], types: Sequence[str]) -> Piece:
    port = max(it.port for it in pieces)
    placed: list[Placed] = []
    x = last = 0.0
    for at, piece in enumerate(pieces):
        if at:
            label = types[at - 1]
            x = max(x + BESIDE, last + max(GAP, text_width(label, MONO) + 20) - piece.entry)
            middle = (last + x + piece.entry) / 2
            points = ((last, port), (x + piece.entry, port))
            placed.append(Arrow(points, label, (middle, port - 8)))
        placed += piece.moved(x, port - piece.port)
        last = x + piece.exit
        x += piece.width
    height = max(port - it.port + it.height for it in pieces)
    return Piece(x, height, port, pieces[0].entry, last, tuple(placed))


def _wrapped(row: Row, takes: str, gives: str) -> Piece:
    """Return a row between the input and the output, in as many lines as it needs."""
    pieces = [_piece(part) for part in row.parts]
    types = [takes, *row.types]
    lines: list[list[int]] = [[]]
    width = 0.0
    for at, piece in enumerate(pieces):
        needed = piece.width + max(GAP, text_width(types[at], MONO) + 20)
        if lines[-1] and width + needed > WIDEST_ROW:
            lines.append([])
            width = 0
        lines[-1].append(at)
        width += needed
    placed: list[Placed] = []
    y = widest = last_x = last_y = 0.0
    for number, line in enumerate(lines):
        inner = _row([pieces[at] for at in line], [types[at] for at in line[1:]])
        label = types[line[0]]
        lead = max(GAP, text_width(label, MONO) + 20)
        port = y + inner.port
        points: list[tuple[float, float]] = [(0, port), (lead + inner.entry, port)]
        if number:
            # The arrow comes from the end of the line above, and passes between both.
            turn = y - BESIDE
            beside = last_x + 16
            points[:0] = [(last_x, last_y), (beside, last_y), (beside, turn), (0, turn)]
            widest = max(widest, last_x + 16)
        placed.append(Arrow(tuple(points), label, ((lead + inner.entry) / 2, port - 8)))
        placed += inner.moved(lead, y)
        last_x, last_y = lead + inner.exit, port
        widest = max(widest, lead + inner.width)
        y += inner.height + 2 * BESIDE + 8
    end = last_x + max(GAP, text_width(gives, MONO) + 20)
    placed.append(Arrow(((last_x, last_y), (end, last_y)), gives, ((last_x + end) / 2, last_y - 8)))
    first = next(it for it in placed if isinstance(it, Arrow) and it.points[0][0] == 0)
    return Piece(max(widest, end), y - 2 * BESIDE - 8, first.points[0][1], 0, end, tuple(placed))


def _moved(placed: Placed, x: float, y: float) -> Placed:
    if isinstance(placed, Arrow):
        return attrs.evolve(
            placed,
            points=tuple(_shifted(placed.points, x, y)),
            label_at=(placed.label_at[0] + x, placed.label_at[1] + y),
        )
    return attrs.evolve(placed, x=placed.x + x, y=placed.y + y)


def _shifted(
    points: Iterable[tuple[float, float]], x: float, y: float
) -> Iterable[tuple[float, float]]:
    return ((px + x, py + y) for px, py in points)
