"""Text that streams, wrapped to the width of a terminal: words stay whole.

A line is whole once a line end, or a word that does not fit any more, has come after it.
"""

from rich.cells import cell_len

from orchestrator.cli.terminal.transcript import cut_at_word


class WrappedStream:
    """The lines of a text that comes piece by piece."""

    def __init__(self) -> None:
        self.text = ""
        """All that has come."""
        self.unfinished = ""
        """The last line, to which more may come."""

    def add(self, text: str, width: int) -> list[str]:
        """Add a piece, and return the lines that are whole now."""
        self.text += text
        *ended, self.unfinished = (self.unfinished + text).split("\n")
        lines = [part for line in ended for part in wrap_line(line, width)]
        *more, self.unfinished = wrap_line(self.unfinished, width)
        return [*lines, *more]

    def end(self) -> list[str]:
        """Return what is left, and begin anew."""
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
