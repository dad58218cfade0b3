"""Options that several commands share, and the checks of their values."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from orchestrator.cli.errors import CommandError
from orchestrator.cli.terminal.style import Progress
from orchestrator.runtime import default_journal

JournalOption = Annotated[
    Path | None,
    Parameter(
        help="The journal, a file with all runs. By default it is in the user's state"
        " directory, or in ORCHESTRATOR_HOME."
    ),
]

ProgressOption = Annotated[
    Progress,
    Parameter(
        help="How to show what happens: live in a terminal, plain lines elsewhere (auto),"
        " or as asked for. json writes the facts of the journal to stdout, one a line, and"
        " nothing else."
    ),
]

OutputOption = Annotated[Path | None, Parameter(name=["--output", "-o"])]


def journal_path(option: Path | None) -> Path:
    """Return the journal of `--journal`, or the user's own."""
    return default_journal(os.environ) if option is None else option


def require_writable(file: Path, journal: Path) -> None:
    """Refuse an output file that cannot be written or is the journal, before any work is done."""
    if file.is_dir():
        raise CommandError(
            f"{file} is a directory; say a file with -o, such as {file / 'run.html'}"
        )
    if not file.parent.exists():
        raise CommandError(
            f"there is no directory {file.parent} to write {file.name} to"
        )
    if file.exists() and journal.exists() and file.samefile(journal):
        raise CommandError(f"{file} is the journal itself; say another file with -o")


def write_file(file: Path, text: str) -> None:
    """Write or replace an output file."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise CommandError(
            f"{file} cannot be written: {exc.strerror or exc}; say another file with -o"
        ) from exc
