"""`orchestrator show`: print everything that the journal has about one task."""

import datetime as dt
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from rich.text import Text

from orchestrator.agents.tools.evidence import MOST
from orchestrator.cli.options import JournalOption, JsonOption, journals_of
from orchestrator.cli.task_lookup import find_task
from orchestrator.cli.terminal.console import Terminal, print_hint, resume_hint
from orchestrator.cli.terminal.style import STATUS_COLOURS
from orchestrator.cli.terminal.transcript import transcript_lines, wrapped
from orchestrator.cli.watch.journal_tail import is_about
from orchestrator.delegation import (
    SessionRecord,
    TaskId,
    TaskNode,
    Tree,
    encode,
    one_line,
    printable,
    usd,
)
from orchestrator.delegation.events import Entry, TaskSettled
from orchestrator.delegation.tree.exports.node_link import plain
from orchestrator.delegation.tree.glyphs import shown_mode
from orchestrator.delegation.tree.safe_text import json_text
from orchestrator.products.history.coordination import coordination

SHOWN_CHILDREN: Final = 20


def show(
    task: str, /, *, run: str | None = None, json: JsonOption = False, journal: JournalOption = None
) -> None:
    """Show a task: its goal, status, usage, transcript and children.

    Args:
        task: The id of the task, or its start; or its path, such as '/editor/researcher[2]'.
        run: The run to look in; by default the run of the task, or the newest for a path.
    """
    of_run, tree, found = find_task(journals_of(journal), task, run)
    session = of_run.fold().sessions[of_run.id]
    now = time.time() if tree.is_at_work else None
    own = [entry for entry in of_run.entries if is_about(entry, found)]
    if json:
        shown = _task_json(session, found, own)
        if found == tree.root:
            shown["coordination"] = msgspec.to_builtins(coordination(of_run.entries))
        print(json_text(shown))
        return
    console = Terminal()
    lines: Iterable[Text] = _task_lines(session, found, own, of_run.entries, now)
    if console.is_terminal:
        lines = wrapped(lines, console.width)
    for line in lines:
        console.print(line, soft_wrap=True)
    if session.awaits_resume:
        print_hint(Terminal(stderr=True), resume_hint(session.id, journal))


def _task_json(session: SessionRecord, task: TaskId, entries: Sequence[Entry]) -> dict[str, Any]:
    tree = session.tree
    below = tree.tally(task)
    return {
        "run": session.id,
        "id": task,
        **plain(tree, task),
        "needs": tree.needs(task),
        "children": tree.children(task),
        "provider_wait": tree.own_provider_wait(task),
        "below": {
            "tasks": below.tasks - 1,
            "counts": below.counts,
            "seconds": below.seconds(),
            "provider_wait": tree.provider_wait(task),
        },
        "facts": [
            {
                "seq": entry.seq,
                "at": entry.at,
                "kind": type(entry.event).__name__,
                "fact": msgspec.Raw(encode(entry.event).body),
            }
            for entry in entries
        ],
    }


def _task_lines(
    session: SessionRecord,
    task: TaskId,
    entries: Sequence[Entry],
    entries_of_run: Sequence[Entry],
    now: float | None,
) -> Iterator[Text]:
    tree = session.tree
    node = tree[task]
    tally = tree.tally(task)
    status = node.status
    yield Text.assemble((node.path, "bold"), f"  {task}  run {session.id}")
    yield _line("agent", node.agent)
    yield Text.assemble((f"{'status':<10}", "dim"), (status, STATUS_COLOURS[status]))
    if node.reason:
        mode = shown_mode(node.mode, node.reason)
        yield _line("mode", f"{mode}, {node.reason.replace('_', ' ')}")
    if node.label:
        yield _line("label", printable(node.label))
    if node.chosen:
        yield _line("chosen", printable(node.chosen))
    yield _line("times", " · ".join(_times(node)))
    own_wait = _wait_text(tree.own_provider_wait(task))
    yield _line("own", f"{node.usage.tokens_text} tok, {usd(node.usage)}{own_wait}")
    seconds = tally.seconds(now)
    took = "" if seconds is None else f", {seconds:,.1f} s"
    yield _line(
        "subtree",
        f"{tally.tasks:,} tasks ({tally.glyph_counts()}), {tally.usage.tokens_text} tok,"
        f" {usd(tally.usage)}{took}{_wait_text(tree.provider_wait(task))}",
    )
    if node.error:
        yield _line("error", printable(node.error), "red")
    for sentence in _evidence(entries):
        yield _line("evidence", printable(sentence))
    for sentence in _coordination(tree, task, entries_of_run):
        yield _line("team", sentence)
    for need in tree.needs(task):
        yield _line("needs", f"{tree[need].path} ({tree[need].status})")
    children = tree.children(task)
    for child in children[:SHOWN_CHILDREN]:
        yield _child(tree, child)
    if len(children) > SHOWN_CHILDREN:
        yield _line("", f"… {len(children) - SHOWN_CHILDREN:,} more")
    yield Text("")
    yield from transcript_lines(entries)


def _coordination(tree: Tree, task: TaskId, entries: Sequence[Entry]) -> list[str]:
    """Return the coordination metrics of a whole run with several tasks."""
    return coordination(entries).lines() if task == tree.root and len(tree) > 1 else []


def _evidence(entries: Sequence[Entry]) -> list[str]:
    """Return the evidence of the effects of a task that has ended."""
    for entry in reversed(entries):
        if isinstance(entry.event, TaskSettled):
            evidence = entry.event.outcome.evidence
            return [] if evidence is None else evidence.lines(MOST)
    return []


def _line(name: str, words: str, style: str = "") -> Text:
    return Text.assemble((f"{name:<10}", "dim"), (words, style))


def _wait_text(seconds: float) -> str:
    return f", waited {seconds:,.1f} s for a provider" if seconds else ""


def _child(tree: Tree, child: TaskId) -> Text:
    node = tree[child]
    name = node.path.rpartition("/")[2]
    about = one_line(node.error or node.label or node.goal)
    return Text.assemble(
        (f"{'asked':<10}", "dim"),
        f"{name}  ",
        (node.status, STATUS_COLOURS[node.status]),
        (f"  {child}  {about}", "dim"),
    )


def _times(node: TaskNode) -> Iterator[str]:
    moments = {"requested": node.requested, "started": node.started, "ended": node.ended}
    for name, at in moments.items():
        if at is not None:
            yield f"{name} {dt.datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}"
