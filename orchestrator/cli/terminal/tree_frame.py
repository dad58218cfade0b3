"""One frame of a tree: open questions, counts by status, and the collapsed tree.

Pure: a snapshot becomes lines, never more than fit. Only visible rows are read, so a frame costs
the same for a tree of any size.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

import attrs
from rich.cells import cell_len
from rich.text import Text

from orchestrator.agents import ToolCall
from orchestrator.cli.terminal.approvals import one_line_subject
from orchestrator.cli.terminal.style import STATUS_COLOURS, format_seconds
from orchestrator.cli.terminal.task_line import Canvas, TaskLine, head_line, mark_of, name_of
from orchestrator.delegation import Ending, Status, TaskId, TaskNode, Tree, one_line
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.delegation.tree.collapse import (
    DEFAULT_STATE,
    CollapsedRow,
    CollapseState,
    RowKind,
    collapse_tree,
)
from orchestrator.delegation.tree.glyphs import STATUS_GLYPHS, shown_mode

SHOWN_QUESTIONS: Final = 3
"""The number of open questions that are shown one by one."""
DELEGATE_TASK: Final = "delegate_task"
"""A call that is not shown: the rows below the task show it better."""
HEADED_LINES: Final = 18
"""From this height on, columns have heads."""


def _no_place(_: TaskId) -> str:
    return ""


@attrs.frozen(kw_only=True)
class RunSnapshot:
    """The state of a run that a frame shows."""

    tree: Tree
    questions: Sequence[ApprovalQuestion]
    """Open approval questions, oldest first."""
    calls: Callable[[TaskId], list[ToolCall]]
    """Returns the tool calls that a task waits for."""
    place: Callable[[TaskId], str] = _no_place
    """Returns the place at which a task waits for a worker; empty if it does not."""
    provider: Callable[[TaskId], str] = _no_place
    """Returns the place of a task's model call in the queue of a provider; empty if none waits."""
    paused: Collection[TaskId] = ()
    """The paused tasks: no new task starts below them."""
    now: float
    active_at: float
    """The time of the last fact."""


@attrs.frozen(kw_only=True)
class Frame:
    lines: list[Text]
    rows: tuple[CollapsedRow, ...]
    """All rows of the collapsed tree, also those that do not fit."""
    top: int
    """The line of the first visible row."""
    first: int
    """The index of the first visible row."""


def render_frame(
    snapshot: RunSnapshot,
    canvas: Canvas,
    *,
    state: CollapseState = DEFAULT_STATE,
    selected: str | None = None,
    first: int = 0,
    heading: str = "",
    bottom_lines: Sequence[Text] = (),
) -> Frame:
    """Return a frame that fits the canvas; the row `selected` stays visible, if any."""
    lines = [_header(snapshot, canvas, heading), *_question_lines(snapshot, canvas)]
    if canvas.height >= HEADED_LINES:
        lines.append(head_line(canvas))
    space = max(1, canvas.height - len(lines) - len(bottom_lines))
    if space > 2 and (len(snapshot.tree) > space or state != DEFAULT_STATE):
        # One row less: the footer counts the tasks that are not shown.
        space -= 1
    collapsed = collapse_tree(snapshot.tree, rows=space, state=state)
    rows = collapsed.rows
    first = _first_shown(rows, space, selected, first)
    footer = collapsed.footer
    if len(rows) > space:
        footer = f"rows {first + 1:,} to {first + space:,} of {len(rows):,}; {footer}"
    top = len(lines)
    lines += (
        _row(row, snapshot, canvas, is_selected=row.key == selected)
        for row in rows[first : first + space]
    )
    if footer:
        lines.append(Text(footer.removesuffix("; "), style="dim"))
    lines += bottom_lines
    lines = [canvas.fit(line) for line in lines[: canvas.height]]
    return Frame(lines=lines, rows=rows, top=top, first=first)


def _first_shown(rows: Sequence[CollapsedRow], space: int, selected: str | None, first: int) -> int:
    """Return the first visible row, as in the last frame if the selection stays visible."""
    at = next((n for n, row in enumerate(rows) if row.key == selected), 0)
    first = min(first, max(0, len(rows) - space))
    return min(max(first, at - space + 1), at) if selected else 0


def _header(snapshot: RunSnapshot, canvas: Canvas, heading: str) -> Text:
    tally = snapshot.tree.tally()
    is_idle = snapshot.tree[snapshot.tree.root].status == Status.WAITING
    number_of = Counter(tally.counts)
    counts = (
        (Status.RUNNING, number_of[Status.RUNNING] + number_of[Status.QUIET], "running"),
        (Status.WAITING, max(0, tally.waiting - is_idle), "waiting"),
        (Status.INTERRUPTED, number_of[Status.INTERRUPTED], "interrupted"),
        (Ending.FAILED, tally.failed, "failed"),
        (Ending.CANCELLED, number_of[Ending.CANCELLED] + number_of[Ending.REFUSED], "cancelled"),
        (Ending.SUCCEEDED, number_of[Ending.SUCCEEDED], "done"),
        (Status.QUEUED, number_of[Status.QUEUED], "queued"),
    )
    # After a kill nothing runs, and the time of the last activity is unknown.
    is_interrupted = bool(number_of[Status.INTERRUPTED])
    always = {"done"} if is_interrupted else {"running", "done"}
    line = Text()
    for status, number, word in counts:
        if number or word in always:
            style = STATUS_COLOURS[status] if number else "dim"
            line.append(f"{STATUS_GLYPHS[status]} {number:,} {word}", style=style)
            line.append("  ")
    if snapshot.tree.to_come:
        found = snapshot.tree.progress(now=snapshot.now)
        left = found.seconds_left
        about = "" if left is None else f", about {format_seconds(left)} left"
        line.append(f"{found.ended:,} of {found.known:,}{about}  ", style="bold")
    quiet_for = format_seconds(max(0, int(snapshot.now - snapshot.active_at)))
    if tally.unsettled and not is_interrupted:
        line.append(f"last activity {quiet_for.removesuffix('.0s')}", style="dim")
        line.append("s ago" if quiet_for.endswith(".0s") else " ago", style="dim")
    if heading:
        gap = canvas.width - cell_len(line.plain) - cell_len(heading) - 1
        line.append(" " * max(2, gap))
        line.append(heading, style="dim")
    return line


def _question_lines(snapshot: RunSnapshot, canvas: Canvas) -> list[Text]:
    if not snapshot.questions:
        return []
    lines = [Text(f"! needs you ({len(snapshot.questions)})", style="bold yellow")]
    most = max(1, min(SHOWN_QUESTIONS, canvas.height // 4))
    for ask in snapshot.questions[:most]:
        line = Text(f"  {ask.id[:10]}  ", style="bold")
        line.append(f"{ask.path}  ", style="not bold dim")
        line.append(f"{ask.tool}: ", style="not bold yellow")
        line.append(one_line_subject(ask.subject), style="not bold")
        lines.append(line)
    if len(snapshot.questions) > most:
        lines.append(Text(f"  … and {len(snapshot.questions) - most} more", style="dim"))
    return lines


def _row(row: CollapsedRow, snapshot: RunSnapshot, canvas: Canvas, *, is_selected: bool) -> Text:
    style = "reverse" if is_selected else ""
    if row.kind is RowKind.TASK:
        node = snapshot.tree[row.task]
        mark, colour = mark_of(node.status, node.mode, canvas.tick)
        about, about_style = _about(row, node, snapshot)
        return TaskLine(
            branch=row.branch,
            mark=mark,
            colour=colour,
            name=name_of(node.path, shown_mode(node.mode, node.reason)),
            about=about,
            about_style=about_style,
            usage=row.tally.usage,
            seconds=node.seconds(snapshot.now),
            style=style,
        ).render(canvas)
    mark = "▾" if row.is_expanded else "▸"
    return TaskLine(
        branch=row.branch,
        mark=" " if row.kind is RowKind.MORE else mark,
        colour="dim",
        name=row.title,
        about=row.summary,
        usage=row.tally.usage,
        seconds=row.tally.seconds(snapshot.now),
        style=style,
        numbers_style="dim",
    ).render(canvas)


def _about(row: CollapsedRow, node: TaskNode, snapshot: RunSnapshot) -> tuple[str, str]:
    """Return the most important text about a task, and its style."""
    if row.summary:
        return row.summary, ""
    if node.error:
        return one_line(node.error), STATUS_COLOURS.get(node.status, "")
    if node.status in {Status.RUNNING, Status.QUIET}:
        calls = [call for call in snapshot.calls(row.task) if call.name != DELEGATE_TASK]
        if calls and (place := snapshot.place(row.task)):
            return f"{calls_text(calls)}: waits for a worker at {place!r}", "yellow"
        if calls:
            return calls_text(calls), "cyan"
        if wait := snapshot.provider(row.task):
            return wait, "yellow"
    return one_line(node.label or node.goal), ""


def calls_text(calls: Sequence[ToolCall]) -> str:
    """Return calls as one line: the first, and the number of others."""
    words = (value for value in calls[0].arguments.values() if isinstance(value, str))
    line = one_line(f"{calls[0].name} {next(words, '')}".strip())
    return f"{line} (+{len(calls) - 1})" if len(calls) > 1 else line
