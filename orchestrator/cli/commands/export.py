"""`orchestrator export`: write the tree of a run for another program."""

import sys
import time
from typing import Final, Literal, TypeAlias

from orchestrator.cli import options
from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import read_run
from orchestrator.delegation import SessionId, printable
from orchestrator.ports.journals import Journals
from orchestrator.products.history.export_formats import Format, export_tree, html_report

ExportFormat: TypeAlias = Literal[Format, "otlp"]
COLLAPSED_FORMATS: Final = frozenset({"mermaid", "dot", "svg"})
"""Charts: a tree of any size is collapsed into a fixed number of boxes."""


def export(
    run: options.RunArgument = None,
    /,
    *,
    format: ExportFormat,  # noqa: A002 (the option's name)
    output: options.OutputOption = None,
    journal: options.JournalOption = None,
) -> None:
    """Write the tree of a run for another program.

    Args:
        format: text: a line per task. mermaid, dot, svg: a chart of the collapsed tree, at most 120
            boxes. graphml, json: the whole graph, as networkx reads it. trace: for Perfetto and
            speedscope. html: the report, without transcripts. otlp: send the spans of the run to a
            collector of OpenTelemetry, at OTEL_EXPORTER_OTLP_ENDPOINT or this machine's port 4318.
        output: The file; by default stdout. An existing file is replaced.
    """
    journals = options.journals_of(journal)
    if format == "otlp":
        if output is not None:
            raise CommandError(
                "otlp is sent to a collector, not to a file: leave --output out, and set"
                " OTEL_EXPORTER_OTLP_ENDPOINT"
            )
        _send_spans(journals, run)
        return
    if output is not None:
        options.require_writable(output, journals)
    session, text, tasks = export_run(journals, run, format)
    if output is None:
        print(text)
        return
    options.write_file(output, f"{text}\n")
    collapsed = ", folded into at most 120 boxes" if format in COLLAPSED_FORMATS else ""
    size = f"{len(text.encode()) / 1000:,.0f} kB"
    print(
        f"run {printable(session)}: {tasks:,} tasks{collapsed}, {size}: {output}", file=sys.stderr
    )


def _send_spans(journals: Journals, prefix: str | None) -> None:
    """Send the spans of a run to a collector."""
    # Imported here: the libraries of OpenTelemetry are an extra.
    from orchestrator.products.telemetry.past_runs import send_run
    from orchestrator.products.telemetry.settings import Telemetry

    found = read_run(journals, prefix)
    sent = send_run(found.id, found.entries, Telemetry())
    if sent is None:
        raise CommandError(
            "the collector of OpenTelemetry has not taken the spans: set"
            " OTEL_EXPORTER_OTLP_ENDPOINT to its address, such as http://127.0.0.1:4318"
        )
    print(f"run {printable(found.id)}: {sent:,} spans", file=sys.stderr)


def export_run(
    journals: Journals, prefix: str | None, output_format: Format
) -> tuple[SessionId, str, int]:
    """Return a run's id, its tree in a format, and its number of tasks."""
    found = read_run(journals, prefix)
    if output_format == "html":
        report = html_report(found.id, found.entries, has_writer=found.has_writer)
        return found.id, *report
    tree = found.fold().sessions[found.id].tree
    now = time.time() if tree.is_at_work else None
    return found.id, export_tree(tree, output_format, now=now), len(tree)
