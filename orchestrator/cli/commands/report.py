"""`orchestrator report`: from a journal to a file."""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from delegation import SessionId
from orchestrator.cli.journal_queries import read_facts
from orchestrator.cli.output_file import require_writable, write_file
from orchestrator.report import Transcripts, build_report, read_history

ID_CHARACTERS: Final = 12
"""How many characters of a run's id are in the name of its file."""


def write_report(
    journal: Path, prefix: str | None, *, output: Path | None, transcripts: str
) -> None:
    """Write the report of a run, and say where it is."""
    if output is not None:
        # Before the work is done: the run may be large.
        require_writable(output, journal)
    run, entries, is_written = read_facts(journal, prefix)
    kind = Transcripts(transcripts)
    story = read_history(
        run, entries, has_writer=is_written, wants_transcript=kind.wants
    )
    report = build_report(
        story, version=version("delegation-orchestrator"), transcripts=kind
    )
    file = _default_for(run) if output is None else output
    require_writable(file, journal)
    write_file(file, report.html)
    size = len(report.html.encode())
    print(
        f"run {run}: {len(story.tree):,} agents, {size / 1000:,.0f} kB."
        f" {report.transcripts.sentence}",
        file=sys.stderr,
    )
    print(file)


def _default_for(run: SessionId) -> Path:
    safe = "".join(
        it if it.isalnum() or it in "-_" else "-" for it in run[:ID_CHARACTERS]
    )
    return Path(f"run-{safe}.html")
