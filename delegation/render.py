"""Trees as text. Pure: from a tree to a string, the same for the same facts."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs

from delegation.news import usd
from delegation.task import Ending, Mode, Status, TaskId

if TYPE_CHECKING:
    from delegation.tree import Tree

GLYPHS: Final[dict[str, str]] = {
    Status.QUEUED: "·",
    Status.RUNNING: "◐",
    Status.QUIET: "◔",
    Status.WAITING: "◌",
    Status.INTERRUPTED: "!",
    Ending.SUCCEEDED: "✓",
    Ending.FAILED: "✗",
    Ending.CANCELLED: "⊘",
    Ending.TIMED_OUT: "✗",
    Ending.OVER_BUDGET: "✗",
    Ending.REFUSED: "⊘",
    Ending.LOST: "✗",
}
MERMAID_NODES: Final = 120
"""More than this no viewer draws readably, and the usual ones refuse at 500 edges."""
SHOWN_OF_A_GOAL: Final = 60


@attrs.frozen(kw_only=True)
class Row:
    """One task as one line, in parts that a view can align and colour."""

    task: TaskId
    branch: str
    """The lines that connect it to its parent."""
    name: str
    status: str
    mode: str
    seconds: float | None
    tokens: int
    """Its own and those of all below it."""
    money: str
    about: str
    """What went wrong, else what it is about."""

    @property
    def glyph(self) -> str:
        return GLYPHS[self.status]


def rows(tree: "Tree", *, now: float | None = None) -> Iterator[Row]:
    """Yield the tasks of a tree, each parent before its children.

    Args:
        tree: what to show.
        now: counts the time of what still runs; without it that time is not shown.
    """
    pending = [(tree.root, "", "")]
    while pending:
        task, branch, indent = pending.pop()
        yield _row(tree, task, branch, now)
        children = tree.children(task)
        for child in reversed(children):
            last = child == children[-1]
            pending.append(
                (
                    child,
                    indent + ("└─ " if last else "├─ "),
                    indent + ("   " if last else "│  "),
                )
            )


def _row(tree: "Tree", task: TaskId, branch: str, now: float | None) -> Row:
    node = tree[task]
    _, _, name = node["path"].rpartition("/")
    return Row(
        task=task,
        branch=branch,
        name=name,
        status=node["status"],
        mode=node["mode"],
        seconds=_seconds(node, now),
        tokens=node["total"].tokens,
        money=usd(node["total"]),
        about=one_line(node["error"] or node["label"] or node["goal"]),
    )


def _seconds(node: dict[str, Any], now: float | None) -> float | None:
    ended: float | None = node["ended"] if node["ended"] is not None else now
    if node["started"] is None or ended is None:
        return None
    return ended - float(node["started"])


def text(tree: "Tree", *, now: float | None = None) -> str:
    """Return one line a task: status, mode, time, tokens and cost with all below, what about."""
    table = [
        (
            row.branch + row.name,
            f"{row.glyph} {row.status}",
            "" if row.mode == Mode.ROOT else row.mode,
            "" if row.seconds is None else f"{row.seconds:.1f} s",
            f"{row.tokens:,} tok",
            row.money,
            row.about,
        )
        for row in rows(tree, now=now)
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(map(_aligned, cells, widths, "<<<>>><")).rstrip() for cells in table
    )


def _aligned(cell: str, width: int, direction: str) -> str:
    return f"{cell:{direction}{width}}"


# Control characters but for line ends and tabs, and those that turn the direction of writing.
CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(words: str) -> str:
    """Return a text that a terminal only shows: what agents say may hold control sequences."""
    return CONTROLS.sub(" ", words)


def one_line(words: str) -> str:
    """Return the beginning of a text, on one line."""
    words = " ".join(printable(words).split())
    if len(words) <= SHOWN_OF_A_GOAL:
        return words
    return words[: SHOWN_OF_A_GOAL - 1] + "…"


def mermaid(tree: "Tree") -> str:
    """Return a flowchart: solid arrows to joined tasks, dotted ones to detached tasks, thick
    ones from a task to those that need it.

    A large tree is cut after `MERMAID_NODES` tasks, and the chart says so.
    """
    lines = ["flowchart TD"]
    drawn: dict[TaskId, str] = {}
    for row in rows(tree):
        if len(drawn) == MERMAID_NODES:
            lines.append(f'  more["… {len(tree) - len(drawn)} more tasks"]')
            break
        name = drawn[row.task] = f"n{len(drawn)}"
        label = f"{row.glyph} {row.name}<br/>{_escaped(row.about)}"
        lines.append(f'  {name}["{label}"]')
        if (parent := tree[row.task]["parent"]) is not None:
            arrow = "-.->" if row.mode == Mode.DETACHED else "-->"
            lines.append(f"  {drawn[parent]} {arrow} {name}")
    lines += (
        f"  {drawn[need]} ==> {drawn[task]}"
        for task in drawn
        for need in tree.needs(task)
        if need in drawn
    )
    return "\n".join(lines)


def _escaped(words: str) -> str:
    # What agents say is never markup: Mermaid reads HTML, and its own entities begin with '#'.
    return "".join(
        character
        if character.isalnum() or character in " .,:;!?-_/()"
        else f"#{ord(character)};"
        for character in words
    )
