"""`orchestrator export`: write the tree of a run for another program."""

import sys
import time
from pathlib import Path
from typing import Final

from delegation import SessionId
from orchestrator.cli.journal_queries import fold_run, read_facts
from orchestrator.cli.options import (
    JournalOption,
    OutputOption,
    journal_path,
    require_writable,
    write_file,
)
from orchestrator.export_formats import Format, export_tree, html_report

COLLAPSED_FORMATS: Final = frozenset({"mermaid", "dot", "svg"})
"""Charts: a tree of any size is collapsed into a fixed number of boxes."""


def export(
    run: str | None = None,
    /,
    *,
    format: Format,  # noqa: A002 (the option's name)
    output: OutputOption = None,
    journal: JournalOption = None,
) -> None:
    """Write the tree of a run for another program.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        format: text: a line a task. mermaid, dot, svg: a chart of the collapsed tree, at most 120
            boxes. graphml, json: the whole graph, as networkx reads it. trace: for Perfetto and
            speedscope. html: the report, without transcripts.
        output: The file; by default stdout. One that is there is replaced.
    """
    path = journal_path(journal)
    if output is not None:
        require_writable(output, path)
    session, text, tasks = export_run(path, run, format)
    if output is None:
        print(text)
        return
    write_file(output, f"{text}\n")
    collapsed = ", folded into at most 120 boxes" if format in COLLAPSED_FORMATS else ""
    size = f"{len(text.encode()) / 1000:,.0f} kB"
    print(
        f"run {session}: {tasks:,} tasks{collapsed}, {size}: {output}", file=sys.stderr
    )


def export_run(
    journal: Path, prefix: str | None, output_format: Format
) -> tuple[SessionId, str, int]:
    """Return a run's id, its tree in a format, and its number of tasks."""
    run, entries, has_writer = read_facts(journal, prefix)
    if output_format == "html":
        return run, *html_report(run, entries, has_writer=has_writer)
    ledger = fold_run(entries, journal, has_writer=has_writer)
    tree = ledger.sessions[run].tree
    now = time.time() if tree.is_at_work else None
    return run, export_tree(tree, output_format, now=now), len(tree)
