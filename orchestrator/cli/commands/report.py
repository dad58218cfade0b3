"""`orchestrator report`: write a run as one HTML file."""

import sys
import webbrowser
from pathlib import Path
from typing import Final, Literal

import attrs

from orchestrator.cli import options
from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import read_run
from orchestrator.delegation import SessionId, printable
from orchestrator.ports.journals import Journals
from orchestrator.version import VERSION

FILE_ID_CHARACTERS: Final = 12
"""The number of characters of a run's id in the default file name."""


@attrs.frozen
class WrittenReport:
    """A report that was written."""

    file: Path
    sentence: str
    """A sentence about its contents."""


def report(
    run: options.RunArgument = None,
    /,
    *,
    output: options.OutputOption = None,
    transcripts: Literal["auto", "none", "failed", "all"] = "auto",
    open: bool = False,  # noqa: A002 (the option's name)
    journal: options.JournalOption = None,
) -> None:
    """Write a run as one HTML file that needs no network, to look at and to send around.

    Args:
        output: The file; by default run-ID.html in this directory. An existing file is replaced.
        transcripts: The transcripts in the file: as many as fit 5 MB (auto), none (and no answer),
            those of unsuccessful tasks, or all. They may be confidential, so only you may read the
            file, unless it has none.
        open: Open the file in the browser.
    """
    written = report_run(options.journals_of(journal), run, output=output, transcripts=transcripts)
    print(written.sentence, file=sys.stderr)
    print(written.file)
    if open and not webbrowser.open(written.file.resolve().as_uri()):
        raise CommandError(f"there is no browser to open; open the file yourself: {written.file}")


def report_run(
    journals: Journals,
    run: str | None,
    *,
    output: Path | None = None,
    transcripts: Literal["auto", "none", "failed", "all"] = "auto",
) -> WrittenReport:
    """Write the report of a run: to a file, or to run-ID.html in this directory."""
    # Imported late: only this command needs the viewer.
    from orchestrator.ports.journals import read_history
    from orchestrator.products.history.coordination import coordination
    from orchestrator.products.history.report import Transcripts, build_report

    if output is not None:
        # Before the work is done: the run may be large.
        options.require_writable(output, journals)
    found = read_run(journals, run)
    session = found.id
    kind = Transcripts(transcripts)
    history = read_history(
        session, found.entries, has_writer=found.has_writer, wants_transcript=kind.wants
    )
    team = coordination(found.entries)
    page = build_report(history, version=VERSION, transcripts=kind, team=team)
    file = _default_file(session) if output is None else output
    options.require_writable(file, journals)
    options.write_file(
        file, page.html, private=kind is not Transcripts.NONE, chosen=output is not None
    )
    size = len(page.html.encode())
    return WrittenReport(
        file,
        f"run {printable(session)}: {len(history.tree):,} agents, {size / 1000:,.0f} kB."
        f" {page.transcripts.sentence}",
    )


def _default_file(run: SessionId) -> Path:
    safe = "".join(
        character if character.isalnum() or character in "-_" else "-"
        for character in run[:FILE_ID_CHARACTERS]
    )
    return Path(f"run-{safe}.html")
