"""`orchestrator report`: write a run as one HTML file."""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal

from delegation import SessionId, printable
from orchestrator.cli.journal_queries import read_run
from orchestrator.cli.options import (
    JournalOption,
    OutputOption,
    journals_of,
    require_writable,
    write_file,
)

FILE_ID_CHARACTERS: Final = 12
"""How many characters of a run's id are in the default file name."""


def report(
    run: str | None = None,
    /,
    *,
    output: OutputOption = None,
    transcripts: Literal["none", "failed", "all"] = "none",
    journal: JournalOption = None,
) -> None:
    """Write a run as one HTML file that needs no network, to look at and to send around.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        output: The file; by default run-ID.html in this directory. One that is there is
            replaced.
        transcripts: Whose go with it: what agents read and wrote may be confidential, so only you
            may read a file with them.
    """
    # Imported late: only this command needs the viewer.
    from orchestrator.report import Transcripts, build_report, read_history

    journals = journals_of(journal)
    if output is not None:
        # Before the work is done: the run may be large.
        require_writable(output, journals)
    found = read_run(journals, run)
    session = found.id
    kind = Transcripts(transcripts)
    history = read_history(
        session,
        found.entries,
        has_writer=found.has_writer,
        wants_transcript=kind.wants,
    )
    page = build_report(
        history, version=version("delegation-orchestrator"), transcripts=kind
    )
    file = _default_file(session) if output is None else output
    require_writable(file, journals)
    write_file(
        file,
        page.html,
        private=kind is not Transcripts.NONE,
        chosen=output is not None,
    )
    size = len(page.html.encode())
    print(
        f"run {printable(session)}: {len(history.tree):,} agents, {size / 1000:,.0f} kB."
        f" {page.transcripts.sentence}",
        file=sys.stderr,
    )
    print(file)


def _default_file(run: SessionId) -> Path:
    safe = "".join(
        character if character.isalnum() or character in "-_" else "-"
        for character in run[:FILE_ID_CHARACTERS]
    )
    return Path(f"run-{safe}.html")
