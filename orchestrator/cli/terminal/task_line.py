"""One line of a tree in a terminal: name, text, tokens, cost and time.

The same line is drawn while a run goes on and after it has ended. It fits any width: first the text
is cut, then the numbers go, the time last.
"""

from typing import Final

import attrs
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from orchestrator.agents import Usage
from orchestrator.cli.terminal import style as styles
from orchestrator.delegation import Mode, Status
from orchestrator.delegation.tree.glyphs import glyph

WIDE: Final = 72
"""From this width on, all numbers of a row fit."""
NARROW: Final = 46


@attrs.frozen(kw_only=True)
class Canvas:
    """The size and the character set of a frame."""

    width: int
    height: int
    ascii: bool = False
    tick: int = 0
    """Counts frames: it turns the spinner."""

    def to_charset(self, words: str) -> str:
        """Return a text in the characters that the terminal has."""
        if not self.ascii:
            return words
        return words.translate(styles.ASCII_FALLBACK).encode("ascii", "replace").decode()

    def fit(self, line: Text) -> Text:
        """Cut a line to the width, in the characters that the terminal has."""
        if self.ascii:
            line = _in_ascii(line)
        line.no_wrap = True
        line.truncate(self.width, overflow="crop" if self.ascii else "ellipsis")
        return line


@attrs.frozen(kw_only=True)
class TaskLine:
    """The parts of one line."""

    branch: str
    """The lines that connect it to its parent."""
    mark: str
    colour: str
    """The style of the mark."""
    name: str
    about: str
    about_style: str = ""
    usage: Usage
    seconds: float | None
    style: str = ""
    numbers_style: str = ""

    def render(self, canvas: Canvas) -> Text:
        """Return the line: as wide as the canvas, or wider if not even the name fits."""
        line = Text(self.branch, style=self.style)
        line.stylize("dim")
        line.append(f"{self.mark} ", style=self.colour)
        line.append(self.name)
        numbers = canvas.to_charset(
            _columns(
                canvas,
                styles.format_tokens(self.usage),
                styles.format_money(self.usage),
                styles.format_seconds(self.seconds),
            )
        )
        space = canvas.width - cell_len(numbers) - cell_len(line.plain) - 3
        if self.about and space > 6:
            line.append("  ")
            about = _cut(canvas.to_charset(self.about), space, canvas)
            line.append(about, style=self.about_style or "dim")
        if canvas.ascii:
            line = _in_ascii(line)
        gap = canvas.width - cell_len(line.plain) - cell_len(numbers)
        line.append(" " * max(1, gap))
        line.append(numbers, style=self.numbers_style)
        return line


def head_line(canvas: Canvas) -> Text:
    """Return the heads of the columns."""
    heads = _columns(canvas, "tokens", "cost", "time")
    return Text(f"{'task':<{canvas.width - len(heads)}}{heads}", style="dim")


def _columns(canvas: Canvas, tokens: str, money: str, seconds: str) -> str:
    parts = f"{seconds:>8}"
    if canvas.width >= NARROW:
        parts = f"{money:>11}{parts}"
    if canvas.width >= WIDE:
        parts = f"{tokens:>8}{parts}"
    return parts


def mark_of(status: str, mode: str, tick: int = 0) -> tuple[str, str]:
    """Return the glyph of a task, and its colour."""
    is_root_waiting = mode == Mode.ROOT and status == Status.WAITING
    colour = "dim cyan" if is_root_waiting else styles.STATUS_COLOURS[status]
    if status == Status.RUNNING:
        return styles.SPINNER[tick % len(styles.SPINNER)], colour
    return glyph(status, mode), colour


def name_of(path: str, mode: str) -> str:
    """Return the name of a task in its row: a detached one is marked."""
    name = path.rpartition("/")[2]
    return f"{name} &" if mode == Mode.DETACHED else name


def _cut(words: str, width: int, canvas: Canvas) -> str:
    if cell_len(words) <= width:
        return words
    end = canvas.to_charset("…")
    return set_cell_size(words, width - len(end)) + end


def _in_ascii(line: Text) -> Text:
    whole = Text(style=line.style)
    for part in line.divide(sorted({at for span in line.spans for at in span[:2]})):
        plain = part.plain.translate(styles.ASCII_FALLBACK).encode("ascii", "replace").decode()
        style = part.spans[0].style if part.spans else ""
        whole.append(plain, style=style)
    return whole
