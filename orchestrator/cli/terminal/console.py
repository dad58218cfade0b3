"""The terminal that commands print to, and the command lines that they suggest."""

import os
import shlex
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from orchestrator.backends import is_database, journals_at
from orchestrator.cli.terminal.style import ASCII_FALLBACK, is_ascii
from orchestrator.delegation import printable
from orchestrator.ports.files import JOURNAL_VARIABLE


class Terminal(Console):
    """A console that lets the command end quietly when its reader has left."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            shown = text if control is not None else self._to_charset(printable(text))
            yield Segment(shown, style, control)

    def _to_charset(self, text: str) -> str:
        """Return a text with our glyphs replaced where the terminal lacks them."""
        return text.translate(ASCII_FALLBACK) if is_ascii(self) else text

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def command(*arguments: str, journal: str | os.PathLike[str] | None) -> str:
    """Return a command line of ours that works from here, with the same journal."""
    return shlex.join([*_program(), *arguments, *_journal_options(journal)])


def _journal_options(journal: str | os.PathLike[str] | None) -> list[str]:
    if not journal or journal == os.environ.get(JOURNAL_VARIABLE):
        return []
    text = os.fspath(journal)
    # The address of a database has a password, which is not to be shown.
    return ["--journal", journals_at(text).address if is_database(text) else text]


def _program() -> list[str]:
    """Return the program as the user called it, or our name if that is enough."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return ["python", "-m", "orchestrator"]
    found = shutil.which(called.name)
    is_enough = found is not None and Path(found) == called.resolve()
    return [called.name if is_enough else str(called)]


def resume_hint(run: str, journal: str | None) -> str:
    """Return the command that continues a run whose process died."""
    return f"It was interrupted. Resume it with: {command('resume', 'FILE', run, journal=journal)}"


def print_table(
    console: Console,
    headings: Sequence[str],
    rows: Iterable[Iterable[str | Text]],
    wrapped: Collection[str] = (),
) -> None:
    """Print a table; only the columns `wrapped` may take several lines."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(
            heading,
            no_wrap=heading not in wrapped,
            overflow="fold" if heading in wrapped else "ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    if not console.is_terminal:
        # A file or a pipe has no width; a line must not be cut for it.
        console.width = 1000
    console.print(table)


def print_text(console: Console, text: Text) -> None:
    """Print a text with whole words on each line; a file or a pipe gets the lines unchanged."""
    console.print(text, soft_wrap=not console.is_terminal)


def print_dim(console: Console, *lines: str) -> None:
    """Print dim sentences."""
    for line in lines:
        print_text(console, Text(line, style="dim"))


def print_hint(console: Console, *lines: str) -> None:
    """Print dim lines with commands, without breaking them: a user may copy them."""
    for line in lines:
        console.print(Text(line, style="dim"), soft_wrap=True)
