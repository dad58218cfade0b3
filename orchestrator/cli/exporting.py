"""`orchestrator export`: a run for other programs."""

import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal, TypeAlias

from delegation import SessionId, Tree
from orchestrator.cli.output_file import require_a_place, write_out
from orchestrator.cli.past import fold_run, read_facts

Format: TypeAlias = Literal[
    "text", "mermaid", "dot", "svg", "graphml", "json", "trace", "html"
]
FOLDED: Final = frozenset({"mermaid", "dot", "svg"})
"""What is drawn, and hence folded."""
WRITERS: Final[dict[str, Callable[[Tree, float | None], str]]] = {
    "text": lambda tree, now: tree.to_text(now=now),
    "mermaid": lambda tree, _: tree.to_mermaid(),
    "dot": lambda tree, _: tree.to_dot(),
    "svg": lambda tree, now: tree.to_svg(now=now),
    "graphml": lambda tree, _: tree.to_graphml(),
    "json": lambda tree, _: tree.to_json(),
    "trace": lambda tree, now: tree.to_trace(now=now),
}
"""What is made of a tree; the report is made of the facts."""


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
        # Imported late: nobody else needs it.
        from orchestrator.report import Transcripts, story_of, written

        kind = Transcripts.NONE
        story = story_of(run, entries, is_written=is_written, listen=kind.wants)
        ours = version("delegation-orchestrator")
        report = written(story, version=ours, transcripts=kind)
        return run, report.html, len(story.tree)
    ledger = fold_run(entries, journal, is_written=is_written)
    tree = ledger.sessions[run].tree
    now = time.time() if is_written else None
    return run, WRITERS[wanted](tree, now), len(tree)
