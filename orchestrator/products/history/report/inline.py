"""The report of a run inside another page, such as a notebook.

The frame has no origin, so neither its page nor a text of the run can reach the notebook.
"""

from html import escape
from typing import Final

from orchestrator.delegation import SessionId, Tree, printable
from orchestrator.delegation.tree.intervals import last_moment
from orchestrator.ports.journals import RunHistory
from orchestrator.products.history.report.page import build_report
from orchestrator.products.history.report.transcripts import Transcripts
from orchestrator.version import VERSION

HEIGHT: Final = 420
"""The height of the frame in pixels; a longer page scrolls inside it."""
ANSWER_CHARACTERS: Final = 20_000


def inline_report(tree: Tree, *, answer: str = "", error: str = "") -> str:
    """Return a tree as the report's viewer in a frame, with the answer above it.

    Args:
        tree: the tree of a run that has ended, or a copy, so that it does not change meanwhile.
        answer: the answer of the run.
        error: the error of the run.
    """
    page = build_report(_history_of(tree), version=VERSION, transcripts=Transcripts.NONE)
    return (
        f"{_box(answer, 'inherit')}{_box(error, '#b3261e')}"
        '<iframe sandbox="allow-scripts allow-downloads" referrerpolicy="no-referrer"'
        f' title="the tree of the run" style="width:100%;height:{HEIGHT}px;'
        'border:1px solid #8884;border-radius:6px"'
        f' srcdoc="{escape(page.html)}"></iframe>'
    )


def _box(text: str, colour: str) -> str:
    if not text:
        return ""
    shown = printable(text[:ANSWER_CHARACTERS]) + "…" * (len(text) > ANSWER_CHARACTERS)
    return (
        '<div style="white-space:pre-wrap;overflow-wrap:anywhere;margin:0 0 .5em;'
        f'max-height:20em;overflow:auto;color:{colour}">{escape(shown)}</div>'
    )


def _history_of(tree: Tree) -> RunHistory:
    """Return the history of a run as far as its tree has it; the journal has more."""
    last = last_moment(tree, tree)
    return RunHistory(
        run=SessionId(tree.root),
        tree=tree,
        began=tree[tree.root].requested,
        last_at=last,
        facts=0,
        digest="",
        versions=(),
        models={},
        tools=None,
        questions={},
        answer="",
        transcripts={},
        tracebacks={},
        critical_path=tree.critical_path(now=last),
    )
