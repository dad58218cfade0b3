"""`orchestrator report`: from a journal to a file."""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from delegation import SessionId
from orchestrator.cli.errors import CommandError
from orchestrator.cli.past import read_facts
from orchestrator.report import Transcripts, story_of, written

OF_AN_ID: Final = 12
"""How many characters of a run's id are in the name of its file."""


def write_report(
    journal: Path, prefix: str | None, *, output: Path | None, transcripts: str
) -> None:
    """Write the report of a run, and say where it is."""
    if output is not None:
        # Before the work is done: the run may be large.
        _require_a_place(output)
    run, entries, is_written = read_facts(journal, prefix)
    kind = Transcripts(transcripts)
    story = story_of(run, entries, is_written=is_written, listen=kind.wants)
    report = written(
        story, version=version("delegation-orchestrator"), transcripts=kind
    )
    file = _default_for(run) if output is None else output
    _require_a_place(file)
    if file.exists() and file.samefile(journal):
        raise CommandError(f"{file} is the journal itself; say another file with -o")
    try:
        file.write_text(report.html, encoding="utf-8")
    except OSError as exc:
        raise CommandError(
            f"the report cannot be written to {file}: {exc.strerror or exc}; say another"
            " file with -o"
        ) from exc
    size = len(report.html.encode())
    print(
        f"run {run}: {len(story.tree):,} agents, {size / 1000:,.0f} kB."
        f" {report.transcripts.sentence}",
        file=sys.stderr,
    )
    print(file)


def _default_for(run: SessionId) -> Path:
    safe = "".join(it if it.isalnum() or it in "-_" else "-" for it in run[:OF_AN_ID])
    return Path(f"run-{safe}.html")


def _require_a_place(file: Path) -> None:
    if file.is_dir():
        raise CommandError(
            f"{file} is a directory; say a file with -o, such as {file / 'run.html'}"
        )
    if not file.parent.exists():
        raise CommandError(
            f"there is no directory {file.parent} to write {file.name} to"
        )
