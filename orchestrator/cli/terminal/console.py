"""The terminal we print to, and how a user calls us again from it."""

import shlex
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text


class Terminal(Console):
    """A console that lets the command end quietly when its reader has left."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def command(*arguments: str, journal: Path | None) -> str:
    """Return a command line of ours that works from here, with the same journal."""
    options = [] if journal is None else ["--journal", str(journal)]
    return shlex.join([*_program(), *arguments, *options])


def _program() -> list[str]:
    """Return how we were called, or our name where that is enough."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return ["python", "-m", "orchestrator"]
    found = shutil.which(called.name)
    is_enough = found is not None and Path(found) == called.resolve()
    return [called.name if is_enough else str(called)]


def resume_hint(run: str, journal: Path | None) -> str:
    """Return how a run goes on whose process died."""
    return f"It was interrupted. Resume it with: {command('resume', 'FILE', run, journal=journal)}"


def print_hint(console: Console, *lines: str) -> None:
    """Print dim lines: what the user may do next."""
    for line in lines:
        console.print(Text(line, style="dim"), soft_wrap=True)
