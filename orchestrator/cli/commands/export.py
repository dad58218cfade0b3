"""`orchestrator export`: a run for other programs."""

import sys
import time
from pathlib import Path
from typing import Final

from delegation import SessionId
from orchestrator.cli.journal_queries import fold_run, read_facts
from orchestrator.cli.output_file import require_writable, write_file
from orchestrator.exports import Format, export_tree, html_report

COLLAPSED_FORMATS: Final = frozenset({"mermaid", "dot", "svg"})
"""What is drawn, and hence folded."""


def export_run(
    journal: Path,
    prefix: str | None,
    *,
    output_format: Format,
    output: Path | None,
) -> None:
    """Write a run to a file, or to stdout.

    Args:
        journal: where it is kept.
        prefix: how its id begins; None is the newest.
        wanted: what for.
        output: the file, which is replaced if it is there; None is stdout.
    """
    if output is not None:
        require_writable(output, journal)
    run, text, tasks = _exported(journal, prefix, output_format)
    if output is None:
        print(text)
        return
    write_file(output, f"{text}\n")
    folded = (
        ", folded into at most 120 boxes" if output_format in COLLAPSED_FORMATS else ""
    )
    size = f"{len(text.encode()) / 1000:,.0f} kB"
    print(f"run {run}: {tasks:,} tasks{folded}, {size}: {output}", file=sys.stderr)


def _exported(
    journal: Path, prefix: str | None, output_format: Format
) -> tuple[SessionId, str, int]:
    run, entries, is_written = read_facts(journal, prefix)
    if output_format == "html":
        return run, *html_report(run, entries, has_writer=is_written)
    ledger = fold_run(entries, journal, has_writer=is_written)
    tree = ledger.sessions[run].tree
    now = time.time() if is_written else None
    return run, export_tree(tree, output_format, now=now), len(tree)
