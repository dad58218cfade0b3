"""Progress as plain lines: for files, pipes and simple terminals.

A run of any size stays readable: the first tasks have a line for every change, later ones only for
important changes, with a heartbeat in between. Omitted lines are counted.
"""

from collections.abc import Callable, Sequence
from typing import Final, NoReturn, assert_never

import trio
from rich.console import Console
from rich.text import Text

from orchestrator.cli.terminal import style as styles
from orchestrator.delegation import (
    Ending,
    SessionId,
    Status,
    TaskId,
    Tree,
    events,
    one_line,
    printable,
)
from orchestrator.delegation.tree.glyphs import STATUS_GLYPHS
from orchestrator.delegation.tree.tally import FAILURES
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.reads import FactQueue
from orchestrator.ports.sessions import Orchestrator

DETAILED_TASKS: Final = 200
"""The largest number of tasks of a run that has a line for every change."""
DETAILED_DEPTH: Final = 1
"""The largest depth of a task that has a line for every change in any run."""
LOGGED_FAILURES: Final = 40
LISTED_FAILURES: Final = 20
HEARTBEAT_SECONDS: Final = 30
BATCH_SECONDS: Final = 0.1
"""The seconds to batch changes: a task that starts at once is not shown as queued."""


class ProgressLog:
    """Writes the progress of one run after another."""

    def __init__(
        self,
        console: Console,
        tree_of: Callable[[SessionId], Tree | None],
        began: float | None = None,
    ) -> None:
        self._console = console
        self._is_ascii = styles.is_ascii(console)
        self._tree_of = tree_of
        self._began = began
        self._active_at = 0.0
        self._session: SessionId | None = None
        self._tasks = 0
        self._failed: list[tuple[str, str]] = []

    def write(self, entries: Sequence[events.Entry]) -> None:
        """Write a line for each important fact."""
        entries = [*events.in_parts(entries)]
        started = {
            entry.event.task for entry in entries if isinstance(entry.event, events.TaskStarted)
        }
        for entry in entries:
            if self._began is None:
                self._began = entry.at
            self._active_at = entry.at
            self._write_entry(entry, started)

    def _write_entry(self, entry: events.Entry, started: set[TaskId]) -> None:  # noqa: C901 (a case a fact)
        event = entry.event
        if isinstance(event, events.OversightFact):
            self._write_oversight(entry, event)
            return
        match event:
            case events.TaskRequested(request):
                self._tasks += 1
                if self._tasks == DETAILED_TASKS + 1:
                    self._write_line(
                        entry.at,
                        f"more than {DETAILED_TASKS} tasks: from here on only those of the first"
                        f" level, {LOGGED_FAILURES} failures, and approvals",
                        "dim",
                    )
                if request.id not in started:
                    about = request.label or request.goal
                    self._write_change(entry, request.id, Status.QUEUED, about)
            case events.TaskStarted(task):
                self._write_change(entry, task, Status.RUNNING, "")
            case events.QuietChanged(task, quiet):
                status = Status.QUIET if quiet else Status.RUNNING
                self._write_change(entry, task, status, "")
            case events.CallPlaced(task, _, place, execution="", wants=wants, turn=turn):
                what = "its turn" if turn else "a call"
                about = f"{what} waits for a worker at {place!r}"
                about += f" with version {wants}" if wants else ""
                self._write_change(entry, task, Status.RUNNING, about)
            case events.TaskSettled(task, outcome):
                self._write_settled(entry, task, outcome.ending, outcome.error)
            case events.TurnStarted(session) | events.TurnResumed(session):
                self._session = session
                self._write_change(entry, TaskId(session), Status.RUNNING, "")
            case events.TurnEnded(session, _, outcome):
                task = TaskId(session)
                self._write_change(entry, task, outcome.ending, outcome.error)
            case _:
                pass  # the fact changes the status of no task

    def _write_oversight(self, entry: events.Entry, event: events.OversightFact) -> None:
        match event:
            case events.ApprovalAsked(task, id_, _, tool, subject):
                about = f"{tool}: {subject} ({id_})"
                self._write_change(entry, task, Status.WAITING, about, always=True)
            case events.ApprovalAnswered(task, _, answer, reason):
                about = f"{answer}{': ' * bool(reason)}{reason}"
                self._write_change(entry, task, Status.RUNNING, about, always=True)
            case events.StartsPaused():
                pass
            case _:
                assert_never(event)

    def _write_settled(self, entry: events.Entry, task: TaskId, ending: Ending, error: str) -> None:
        is_logged = False
        if ending in FAILURES:
            path, _ = self._path_and_depth(entry.session, task)
            self._failed.append((path, error))
            is_logged = len(self._failed) <= LOGGED_FAILURES
        self._write_change(entry, task, ending, error, always=is_logged)
        if len(self._failed) == LOGGED_FAILURES and is_logged:
            words = f"{LOGGED_FAILURES} tasks have failed: further ones are only counted"
            self._write_line(entry.at, words, "dim")

    def _write_change(
        self, entry: events.Entry, task: TaskId, status: str, about: str, *, always: bool = False
    ) -> None:
        path, depth = self._path_and_depth(entry.session, task)
        if always or self._tasks <= DETAILED_TASKS or depth <= DETAILED_DEPTH:
            colon = ": " if about else ""
            line = f"{STATUS_GLYPHS[status]} {path} {status}{colon}{one_line(about)}"
            self._write_line(entry.at, line, styles.STATUS_COLOURS[status])

    def _path_and_depth(self, session: SessionId, task: TaskId) -> tuple[str, int]:
        """Return the path and the depth of a task."""
        tree = self._tree_of(session)
        path: str = task if tree is None else tree[task].path
        return path, path.count("/") - 1

    def write_heartbeat(self, now: float) -> None:
        """Write a line with the counts and the last activity."""
        tree = None if self._session is None else self._tree_of(self._session)
        if tree is None:
            return
        tally = tree.tally()
        counts = ", ".join(f"{number:,} {status}" for status, number in tally.counts.items())
        quiet_for = styles.format_seconds(max(0, now - self._active_at))
        self._write_line(
            now,
            f"{tally.tasks:,} tasks: {counts}; {styles.format_tokens(tally.usage)} tokens,"
            f" {styles.format_money(tally.usage)}; last activity {quiet_for} ago",
            "dim",
        )

    def write_failures(self) -> None:
        """List the tasks that failed."""
        if not self._failed:
            return
        failed = len(self._failed)
        self._print(f"{failed:,} of {self._tasks:,} tasks failed:", "bold red")
        for path, error in self._failed[:LISTED_FAILURES]:
            self._print(f"  {path}  {one_line(error)}", "red")
        if failed > LISTED_FAILURES:
            self._print(f"  … and {failed - LISTED_FAILURES:,} more", "red")

    def _write_line(self, at: float, line: str, style: str) -> None:
        since = styles.format_seconds(at - (at if self._began is None else self._began))
        self._print(f"{since:>7} {line}", style)

    def _print(self, line: str, style: str) -> None:
        line = printable(line)
        if self._is_ascii:
            line = line.translate(styles.ASCII_FALLBACK)
        self._console.print(Text(line, style=style), soft_wrap=True)


def new_log(
    orchestrator: Orchestrator, console: Console, *, began: float | None = None
) -> ProgressLog:
    """Return a log whose times count from the first fact that it writes, or from a time."""

    def tree_of(session: SessionId) -> Tree | None:
        try:
            return orchestrator.tree(session)
        except UnknownIdError:
            return None  # the session is not in memory any more

    return ProgressLog(console, tree_of, began)


async def write_log(orchestrator: Orchestrator, facts: FactQueue, log: ProgressLog) -> NoReturn:
    """Write facts as they come, and a heartbeat, until cancelled."""
    due = trio.current_time() + HEARTBEAT_SECONDS
    while True:
        with trio.move_on_at(due):
            await facts.wait()
            await trio.sleep(BATCH_SECONDS)
        log.write([entry for entry, _ in facts.take()])
        if trio.current_time() >= due:
            log.write_heartbeat(orchestrator.now())
            due += HEARTBEAT_SECONDS
