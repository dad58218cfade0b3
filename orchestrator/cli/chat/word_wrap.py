"""Streaming text, wrapped to the width of a terminal: words stay whole.

A line is complete after a line end, or after a word that does not fit any more.
"""

from rich.cells import cell_len

from orchestrator.cli.terminal.transcript import cut_at_word


class WrappedStream:
    """The lines of a text that arrives in pieces."""

    def __init__(self) -> None:
        self.text = ""
        """The text so far."""
        self.unfinished = ""
        """The last line, which may still grow."""

    def add(self, text: str, width: int) -> list[str]:
        """Add a piece, and return the lines that are now complete."""
        self.text += text
        *ended, self.unfinished = (self.unfinished + text).split("\n")
        lines = [part for line in ended for part in wrap_line(line, width)]
        *more, self.unfinished = wrap_line(self.unfinished, width)
        return [*lines, *more]

    def end(self) -> list[str]:
        """Return the unfinished line, and start a new text."""
        left = [self.unfinished] if self.unfinished else []
        self.text = self.unfinished = ""
        return left


def wrap_line(line: str, width: int) -> list[str]:
    """Cut a line into parts that fit a width, between words where possible; at least one part."""
    parts: list[str] = []
    while cell_len(line) > width:
        cut = cut_at_word(line, width)
        parts.append(line[:cut].rstrip())
        line = line[cut:]
    return [*parts, line]
