"""One picture of a tree: who needs somebody, how many stand how, and the folded tree.

Pure: from what is true to lines, never more of them than there is room for. Only what is shown is
looked at, so a picture costs the same whatever the size of the tree.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from agents import ToolCall
from delegation import Ending, Mode, Status, TaskId, Tree, one_line
from delegation.events.approvals import ApprovalQuestion
from delegation.tree.collapse import (
    DEFAULT_STATE,
    CollapsedRow,
    CollapseState,
    RowKind,
    fold,
)
from delegation.tree.glyphs import STATUS_GLYPHS, glyph
from orchestrator.cli.terminal.approvals import one_line_subject
from orchestrator.cli.terminal.style import (
    ASCII_FALLBACK,
    SPINNER,
    STATUS_COLOURS,
    format_money,
    format_seconds,
    format_tokens,
)

SHOWN_QUESTIONS: Final = 3
"""How many of those who need somebody are shown one by one."""
DELEGATE_TASK: Final = "delegate_task"
"""What a task waits for that the rows below it show better."""
WIDE: Final = 72
"""From this width on there is room for all the numbers of a row."""
NARROW: Final = 46


@attrs.frozen(kw_only=True)
class RunSnapshot:
    """What is true of a run now, as far as a picture of it shows."""

    tree: Tree
    questions: Sequence[ApprovalQuestion]
    """What somebody is asked to approve, oldest first."""
    calls: Callable[[TaskId], list[ToolCall]]
    """What a task has called, and waits for."""
    now: float
    active_at: float
    """When the last fact became true."""


@attrs.frozen(kw_only=True)
class Canvas:
    """What a picture is drawn on."""

    width: int
    height: int
    ascii: bool = False
    tick: int = 0
    """Counts pictures: what runs is seen to turn."""

    def to_charset(self, words: str) -> str:
        """Return words in the signs that it has."""
        if not self.ascii:
            return words
        return words.translate(ASCII_FALLBACK).encode("ascii", "replace").decode()

    def fit(self, line: Text) -> Text:
        """Return a line that is no wider than this, in the signs that it has."""
        if self.ascii:
            line = _in_ascii(line)
        line.no_wrap = True
        line.truncate(self.width, overflow="crop" if self.ascii else "ellipsis")
        return line


@attrs.frozen(kw_only=True)
class Frame:
    lines: list[Text]
    rows: tuple[CollapsedRow, ...]
    """The rows of the tree, as many as there would be on a larger paper."""
    top: int
    """Which line shows the first of them."""
    first: int
    """Which of them is the first that is shown."""


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
    """Return a picture of a run, in at most as many lines as the paper has.

    Args:
        sight: what is true.
        paper: what it is drawn on.
        state: what was folded by hand.
        selected: the row that the user is at, by its key; it is always on the paper.
        first: the first row that was shown last time.
        heading: what else stands at the top.
        below: what stands at the bottom.
    """
    lines = [_header(snapshot, canvas, heading), *_question_lines(snapshot, canvas)]
    room = max(1, canvas.height - len(lines) - len(bottom_lines))
    if room > 2 and (len(snapshot.tree) > room or state != DEFAULT_STATE):
        # One row less, for the line that says what is not shown.
        room -= 1
    folded = fold(snapshot.tree, rows=room, state=state)
    rows = folded.rows
    first = _first_shown(rows, room, selected, first)
    footer = folded.footer
    if len(rows) > room:
        footer = f"rows {first + 1:,} to {first + room:,} of {len(rows):,}; {footer}"
    top = len(lines)
    lines += (
        _row(row, snapshot, canvas, is_selected=row.key == selected)
        for row in rows[first : first + room]
    )
    if footer:
        lines.append(Text(footer.removesuffix("; "), style="dim"))
    lines += bottom_lines
    lines = [canvas.fit(line) for line in lines[: canvas.height]]
    return Frame(lines=lines, rows=rows, top=top, first=first)


def _first_shown(
    rows: Sequence[CollapsedRow], room: int, selected: str | None, first: int
) -> int:
    """Return which row is the first to be shown: the one of last time, if that will do."""
    at = next((n for n, row in enumerate(rows) if row.key == selected), 0)
    first = min(first, max(0, len(rows) - room))
    return min(max(first, at - room + 1), at) if selected else 0


def _header(snapshot: RunSnapshot, canvas: Canvas, heading: str) -> Text:
    tally = snapshot.tree.tally()
    is_at_rest = snapshot.tree[snapshot.tree.root]["status"] == Status.WAITING
    number_of = Counter(tally.counts)
    counts = (
        (
            Status.RUNNING,
            number_of[Status.RUNNING] + number_of[Status.QUIET],
            "running",
        ),
        (Status.WAITING, max(0, tally.waiting - is_at_rest), "waiting"),
        (Status.INTERRUPTED, number_of[Status.INTERRUPTED], "interrupted"),
        (Ending.FAILED, tally.failed, "failed"),
        (
            Ending.CANCELLED,
            number_of[Ending.CANCELLED] + number_of[Ending.REFUSED],
            "cancelled",
        ),
        (Ending.SUCCEEDED, number_of[Ending.SUCCEEDED], "done"),
        (Status.QUEUED, number_of[Status.QUEUED], "queued"),
    )
    # Where a process was killed, nothing runs, and nobody knows when it was last heard of.
    is_interrupted = bool(number_of[Status.INTERRUPTED])
    always = {"done"} if is_interrupted else {"running", "done"}
    line = Text()
    for status, number, word in counts:
        if number or word in always:
            style = STATUS_COLOURS[status] if number else "dim"
            line.append(f"{STATUS_GLYPHS[status]} {number:,} {word}", style=style)
            line.append("  ")
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
        lines.append(
            Text(f"  … and {len(snapshot.questions) - most} more", style="dim")
        )
    return lines


def _row(
    row: CollapsedRow, snapshot: RunSnapshot, canvas: Canvas, *, is_selected: bool
) -> Text:
    line = Text(row.branch, style="reverse" if is_selected else "")
    line.stylize("dim")
    seconds: float | None
    if row.kind is RowKind.TASK:
        node = snapshot.tree[row.task]
        status = node["status"]
        is_root_waiting = node["mode"] == Mode.ROOT and status == Status.WAITING
        sign = glyph(status, node["mode"])
        if status == Status.RUNNING:
            sign = SPINNER[canvas.tick % len(SPINNER)]
        colour = "dim cyan" if is_root_waiting else STATUS_COLOURS[status]
        name = node["path"].rpartition("/")[2]
        if node["mode"] == Mode.DETACHED:
            name += " &"
        about, style = _about(row, node, snapshot)
        seconds = _seconds(node, snapshot.now)
    else:
        sign, colour = ("▸" if not row.is_expanded else "▾"), "dim"
        name, about, style = row.title, row.summary, ""
        seconds = row.tally.seconds(snapshot.now)
        if row.kind is RowKind.MORE:
            sign = " "
    line.append(f"{sign} ", style=colour)
    line.append(name)
    numbers = canvas.to_charset(_numbers(row, seconds, canvas))
    room = canvas.width - cell_len(numbers) - cell_len(line.plain) - 3
    if about and room > 6:
        line.append("  ")
        line.append(_cut(canvas.to_charset(about), room, canvas), style=style or "dim")
    if canvas.ascii:
        line = _in_ascii(line)
    gap = canvas.width - cell_len(line.plain) - cell_len(numbers)
    line.append(" " * max(1, gap))
    line.append(numbers, style="dim" if row.kind is not RowKind.TASK else "")
    return line


def _numbers(row: CollapsedRow, seconds: float | None, canvas: Canvas) -> str:
    parts = f"{format_seconds(seconds):>7}"
    if canvas.width >= NARROW:
        parts = f"{format_money(row.tally.usage):>10} {parts}"
    if canvas.width >= WIDE:
        parts = f"{format_tokens(row.tally.tokens):>7} tok {parts}"
    return parts


def _about(
    row: CollapsedRow, node: dict[str, Any], snapshot: RunSnapshot
) -> tuple[str, str]:
    """Return what is most worth knowing of a task, and how it looks."""
    if row.summary:
        return row.summary, ""
    if node["error"]:
        return one_line(node["error"]), STATUS_COLOURS.get(node["status"], "")
    if node["status"] in {Status.RUNNING, Status.QUIET}:
        calls = [it for it in snapshot.calls(row.task) if it.name != DELEGATE_TASK]
        if calls:
            return calls_text(calls), "cyan"
    return one_line(node["label"] or node["goal"]), ""


def calls_text(calls: Sequence[ToolCall]) -> str:
    """Return calls as one line: the first, and how many there are besides."""
    words = (value for value in calls[0].arguments.values() if isinstance(value, str))
    line = one_line(f"{calls[0].name} {next(words, '')}".strip())
    return f"{line} (+{len(calls) - 1})" if len(calls) > 1 else line


def _seconds(node: dict[str, Any], now: float) -> float | None:
    if node["started"] is None:
        return None
    ended: float = now if node["ended"] is None else node["ended"]
    return ended - float(node["started"])


def _cut(words: str, width: int, canvas: Canvas) -> str:
    if cell_len(words) <= width:
        return words
    end = canvas.to_charset("…")
    return set_cell_size(words, width - len(end)) + end


def _in_ascii(line: Text) -> Text:
    whole = Text(style=line.style)
    for part in line.divide(sorted({at for it in line.spans for at in it[:2]})):
        plain = part.plain.translate(ASCII_FALLBACK).encode("ascii", "replace").decode()
        style = part.spans[0].style if part.spans else ""
        whole.append(plain, style=style)
    return whole
