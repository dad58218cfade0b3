"""The formats into which a run can be exported, with their media types."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs
import trio

from orchestrator.delegation import SessionId, SessionRecord, Tree
from orchestrator.delegation.events import Entry
from orchestrator.ports.journals import read_history
from orchestrator.ports.reads import ReadApi
from orchestrator.version import VERSION

DRAWN_IN_LOOP: Final = 500
"""The most tasks of a tree that is drawn in the event loop; a larger one would block it."""

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
        now: the time up to which running tasks are counted; None if no task runs.
    """
    return _WRITERS[output_format](tree, now)


async def draw_tree(read: ReadApi, session: SessionRecord, output_format: TreeFormat) -> str:
    """Return the current tree of a session in a format."""
    await trio.lowlevel.checkpoint()
    now = read.now() if session.tree.is_at_work else None
    if len(session.tree) <= DRAWN_IN_LOOP:
        return export_tree(session.tree, output_format, now=now)
    # Drawing takes seconds, and the tree grows meanwhile: a thread draws it from its own entries.
    entries = await read.entries(session.id)
    return await trio.to_thread.run_sync(
        lambda: export_tree(_tree_of(session.id, entries), output_format, now=now)
    )


def _tree_of(run: SessionId, entries: Sequence[Entry]) -> Tree:
    return read_history(run, entries, has_writer=True, wants_transcript=lambda _: False).tree


def html_report(
    run: SessionId, entries: Sequence[Entry], *, has_writer: bool, tracebacks: bool = True
) -> tuple[str, int]:
    """Return the report of a run without transcripts, and its number of tasks."""
    # Imported late: only reports need it.
    from orchestrator.products.history.coordination import coordination
    from orchestrator.products.history.report import Transcripts, build_report

    kind = Transcripts.NONE
    story = read_history(run, entries, has_writer=has_writer, wants_transcript=kind.wants)
    if not tracebacks:
        story = attrs.evolve(story, tracebacks={})
    ours = VERSION
    team = coordination(entries)
    page = build_report(story, version=ours, transcripts=kind, team=team)
    return page.html, len(story.tree)
