"""`orchestrator export`: a run for other programs."""

import sys
import time
from pathlib import Path
from typing import Final

from delegation import SessionId
from orchestrator.cli.journal_queries import fold_run, read_facts
from orchestrator.cli.output_file import require_a_place, write_out
from orchestrator.exports import Format, drawn, report_of

FOLDED: Final = frozenset({"mermaid", "dot", "svg"})
"""What is drawn, and hence folded."""


def export_run(
    journal: Path,
    prefix: str | None,
    *,
    wanted: Format,
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
        require_a_place(output, journal)
    run, text, tasks = _exported(journal, prefix, wanted)
    if output is None:
        print(text)
        return
    write_out(output, f"{text}\n")
    folded = ", folded into at most 120 boxes" if wanted in FOLDED else ""
    size = f"{len(text.encode()) / 1000:,.0f} kB"
    print(f"run {run}: {tasks:,} tasks{folded}, {size}: {output}", file=sys.stderr)


def _exported(
    journal: Path, prefix: str | None, wanted: Format
) -> tuple[SessionId, str, int]:
    run, entries, is_written = read_facts(journal, prefix)
    if wanted == "html":
        return run, *report_of(run, entries, is_written=is_written)
    ledger = fold_run(entries, journal, is_written=is_written)
    tree = ledger.sessions[run].tree
    now = time.time() if is_written else None
    return run, drawn(tree, wanted, now=now), len(tree)
