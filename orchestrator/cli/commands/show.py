"""`orchestrator tree` and `orchestrator show`: a run and a task, as the journal tells them."""

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec
from rich.text import Text

from delegation import SessionRecord, TaskId, Tree, encode, one_line, printable, usd
from delegation.events import Entry
from delegation.tree.exports.node_link import plain
from delegation.tree.tally import FAILURES
from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import fold_run, read_facts, run_of_task
from orchestrator.cli.terminal.console import Terminal
from orchestrator.cli.terminal.style import STATUS_COLOURS
from orchestrator.cli.terminal.transcript import transcript_lines
from orchestrator.cli.terminal.tree_table import print_reasons, print_tree
from orchestrator.cli.watch.journal_tail import is_about

SHOWN_CHILDREN = 20
"""How many of those it asked are listed."""


@attrs.frozen(kw_only=True)
class TreeFilter:
    """What of a tree is shown."""

    failed: bool = False
    depth: int | None = None
    rows: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.depth is not None and self.depth < 0:
            raise CommandError(f"--depth is {self.depth}; it must be 0 or more")
        if self.rows is not None and self.rows < 1:
            raise CommandError(f"--rows is {self.rows}; it must be 1 or more")
        if self.rows is not None and (self.failed or self.depth is not None):
            raise CommandError(
                "--rows folds as it sees fit, and goes with neither --failed nor --depth"
            )

    def require_whole(self) -> None:
        if self != TreeFilter():
            raise CommandError(
                "--failed, --depth and --rows are for people, and go with neither --json nor"
                " --format"
            )


def show_tree(journal: Path, prefix: str | None, tree_filter: TreeFilter) -> None:
    """Print the tree of a run, or what of it is wanted."""
    session, _, now = _read(journal, prefix)
    tree, console = session.tree, Terminal()
    console.print(Text(f"run {session.id}", style="bold"))
    if session.forked_from:
        link = f"forked from {session.forked_from}"
        console.print(Text(link, style="dim"), soft_wrap=True)
    if tree_filter.rows is not None:
        console.print(
            Text(tree.to_text(rows=tree_filter.rows, now=now)), soft_wrap=True
        )
        return
    failed = tree.find(status=FAILURES) if tree_filter.failed else None
    if failed is not None and not failed:
        console.print(f"none of its {len(tree):,} tasks has failed")
        return
    print_tree(tree, console, now=now, depth=tree_filter.depth, only=failed)
    if tree_filter == TreeFilter():
        print_reasons(tree, console)


def show_task(journal: Path, name: str, run: str | None, *, as_json: bool) -> None:
    """Print all that the journal has of a task.

    Args:
        journal: where it is kept.
        name: its id, how that begins, or its path.
        run: how the id of its run begins, if the user says.
        as_json: print it for programs.
    """
    session, entries, now = _read(journal, _run_of(journal, name, run))
    task = _find(session.tree, name)
    own = [entry for entry in entries if is_about(entry, task)]
    if as_json:
        print(msgspec.json.encode(_task_json(session, task, own)).decode())
        return
    console = Terminal()
    for line in _task_lines(session, task, own, now):
        console.print(line, soft_wrap=True)


def _read(
    journal: Path, prefix: str | None
) -> tuple[SessionRecord, Sequence[Entry], float | None]:
    run, entries, is_written = read_facts(journal, prefix)
    ledger = fold_run(entries, journal, has_writer=is_written)
    return ledger.sessions[run], entries, time.time() if is_written else None


def _run_of(journal: Path, name: str, run: str | None) -> str | None:
    if run is not None or name.startswith("/"):
        return run
    found = run_of_task(journal, name) if name else None
    if found is None:
        raise CommandError(
            f"there is no task {name!r}; see: orchestrator tree, orchestrator export"
            " --format json"
        )
    return found


def _find(tree: Tree, name: str) -> TaskId:
    if (task := tree.at(name)) is not None:
        return task
    if tree.root.startswith(name):
        return tree.root
    found = [] if not name else [it for it in tree.graph if it.startswith(name)]
    if len(found) > 1:
        raise CommandError(f"{len(found)} tasks begin with {name!r}; say more of it")
    if not found:
        raise CommandError(
            f"run {tree.root} has no task {name!r}; see: orchestrator tree {tree.root}"
        )
    return TaskId(found[0])


def _task_json(
    session: SessionRecord, task: TaskId, entries: Sequence[Entry]
) -> dict[str, Any]:
    tree = session.tree
    below = tree.tally(task)
    return {
        "run": session.id,
        "id": task,
        **plain(tree, task),
        "needs": tree.needs(task),
        "children": tree.children(task),
        "below": {
            "tasks": below.tasks - 1,
            "counts": below.counts,
            "seconds": below.seconds(),
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
    session: SessionRecord, task: TaskId, entries: Sequence[Entry], now: float | None
) -> Iterator[Text]:
    tree = session.tree
    node = tree[task]
    tally = tree.tally(task)
    status = node["status"]
    yield Text.assemble((node["path"], "bold"), f"  {task}  run {session.id}")
    yield _line("agent", node["agent"])
    yield Text.assemble((f"{'status':<10}", "dim"), (status, STATUS_COLOURS[status]))
    if node["reason"]:
        yield _line("mode", f"{node['mode']}, {node['reason'].replace('_', ' ')}")
    if node["label"]:
        yield _line("label", printable(node["label"]))
    yield _line("times", " · ".join(_times(node)))
    yield _line("own", f"{node['usage'].tokens:,} tok, {usd(node['usage'])}")
    seconds = tally.seconds(now)
    took = "" if seconds is None else f", {seconds:,.1f} s"
    yield _line(
        "subtree",
        f"{tally.tasks:,} tasks ({tally.glyph_counts()}), {tally.tokens:,} tok,"
        f" {usd(tally.usage)}{took}",
    )
    if node["error"]:
        yield _line("error", printable(node["error"]), "red")
    for need in tree.needs(task):
        yield _line("needs", f"{tree[need]['path']} ({tree[need]['status']})")
    children = tree.children(task)
    for child in children[:SHOWN_CHILDREN]:
        yield _child(tree, child)
    if len(children) > SHOWN_CHILDREN:
        yield _line("", f"… {len(children) - SHOWN_CHILDREN:,} more")
    yield Text("")
    yield from transcript_lines(entries)


def _line(name: str, words: str, style: str = "") -> Text:
    return Text.assemble((f"{name:<10}", "dim"), (words, style))


def _child(tree: Tree, child: TaskId) -> Text:
    node = tree[child]
    name = node["path"].rpartition("/")[2]
    about = one_line(node["error"] or node["label"] or node["goal"])
    return Text.assemble(
        (f"{'asked':<10}", "dim"),
        f"{name}  ",
        (node["status"], STATUS_COLOURS[node["status"]]),
        (f"  {child}  {about}", "dim"),
    )


def _times(node: dict[str, Any]) -> Iterator[str]:
    for what in ("requested", "started", "ended"):
        if (at := node[what]) is not None:
            yield f"{what} {dt.datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}"
