"""The formats into which a run can be exported, with their media types."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Final, Literal, TypeAlias

import attrs

from orchestrator.delegation import SessionId, Tree
from orchestrator.delegation.events import Entry

TreeFormat: TypeAlias = Literal["text", "mermaid", "dot", "svg", "graphml", "json", "trace"]
Format: TypeAlias = Literal[TreeFormat, "html"]

MEDIA_TYPES: Final[Mapping[Format, str]] = {
    "text": "text/plain",
    "mermaid": "text/vnd.mermaid",
    "dot": "text/vnd.graphviz",
    "svg": "image/svg+xml",
    "graphml": "application/graphml+xml",
    "json": "application/json",
    "trace": "application/json",
    "html": "text/html",
}
_WRITERS: Final[Mapping[TreeFormat, Callable[[Tree, float | None], str]]] = {
    "text": lambda tree, now: tree.to_text(now=now),
    "mermaid": lambda tree, _: tree.to_mermaid(),
    "dot": lambda tree, _: tree.to_dot(),
    "svg": lambda tree, now: tree.to_svg(now=now),
    "graphml": lambda tree, _: tree.to_graphml(),
    "json": lambda tree, _: tree.to_json(),
    "trace": lambda tree, now: tree.to_trace(now=now),
}


def export_tree(tree: Tree, output_format: TreeFormat, *, now: float | None) -> str:
    """Return a tree in a format.

    Args:
        tree: the tree of a run.
        output_format: the format.
        now: the time until which running tasks are counted; None if nothing runs.
    """
    return _WRITERS[output_format](tree, now)


def html_report(
    run: SessionId, entries: Sequence[Entry], *, has_writer: bool, tracebacks: bool = True
) -> tuple[str, int]:
    """Return the report of a run without transcripts, and how many tasks are in it.

    Args:
        run: its id.
        entries: all of its entries.
        has_writer: a process writes its journal; without one, nothing runs.
        tracebacks: show where in the code tools and functions have failed.
    """
    # Imported late: only reports need it.
    from orchestrator.products.history.report import Transcripts, build_report, read_history

    kind = Transcripts.NONE
    story = read_history(run, entries, has_writer=has_writer, wants_transcript=kind.wants)
    if not tracebacks:
        story = attrs.evolve(story, tracebacks={})
    ours = version("delegation-orchestrator")
    return build_report(story, version=ours, transcripts=kind).html, len(story.tree)
