"""The progress display of a command, whose errors never end the work, and its control socket."""

import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Final, NoReturn

import trio
from rich.text import Text

from orchestrator.agents import raising_one_error
from orchestrator.cli.progress.live_tree import show_live, shown_tree
from orchestrator.cli.progress.log_lines import ProgressLog, new_log, write_log
from orchestrator.cli.terminal.approvals import answer_in_terminal, is_attended, pending_approvals
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.cli.terminal.style import Progress, choose_progress
from orchestrator.delegation import SessionId
from orchestrator.delegation.tree.safe_text import printable_json
from orchestrator.ports.control import open_control
from orchestrator.ports.reads import FactQueue, fact_line
from orchestrator.ports.sessions import Orchestrator

WATCH_HINT: Final = "Tasks are at work. To watch and to steer them, in another terminal:"


class ProgressDisplay:
    """How one command shows its progress. `open_display` makes it."""

    def __init__(
        self, progress: Progress, console: Terminal, journal: str | None, exit_stack: ExitStack
    ) -> None:
        self.progress = progress
        self._console = console
        self._journal = journal
        self._exit_stack = exit_stack
        self._has_failed = False

    @asynccontextmanager
    async def open_view(
        self,
        orchestrator: Orchestrator,
        *,
        run: SessionId | None = None,
        ask_approvals: bool = True,
    ) -> AsyncGenerator[None]:
        """Show progress for the block; ask no approvals if a chat reads stdin."""
        console, progress = self._console, self.progress
        is_shown = progress in {"live", "plain"} and not console.quiet
        shows_hint = is_attended() and not console.quiet and progress != "json"
        async with _open_control_socket(orchestrator) as socket:
            with raising_one_error():
                async with trio.open_nursery() as nursery:
                    if socket is not None and shows_hint:
                        nursery.start_soon(self._print_watch_hint, orchestrator, run)
                    if ask_approvals and is_attended() and not (is_shown and progress == "live"):
                        stderr = Terminal(stderr=True)
                        nursery.start_soon(
                            answer_in_terminal,
                            orchestrator,
                            stderr,
                            pending_approvals(orchestrator),
                        )
                    with self._open_progress(orchestrator, nursery, run, is_shown=is_shown):
                        yield
                    nursery.cancel_scope.cancel(reason="the block has ended")

    @contextmanager
    def _open_progress(
        self,
        orchestrator: Orchestrator,
        nursery: trio.Nursery,
        run: SessionId | None,
        *,
        is_shown: bool,
    ) -> Generator[None]:
        console = self._console
        if self.progress == "json":
            facts = self._exit_stack.enter_context(orchestrator.subscribe())
            # The facts of closing are written, too.
            self._exit_stack.callback(_write_lines, facts)
            nursery.start_soon(_write_facts, orchestrator, facts)
        if is_shown and self.progress == "live":
            nursery.start_soon(self._show_live_tree, orchestrator, run)
        if not (is_shown and self.progress == "plain"):
            yield
            return
        with orchestrator.subscribe() as facts:
            log = new_log(orchestrator, console)
            nursery.start_soon(self._write_log_lines, orchestrator, facts, log)
            try:
                yield
            finally:
                with self._contain_errors():
                    log.write([entry for entry, _ in facts.take()])
                    log.write_failures()

    async def _show_live_tree(self, orchestrator: Orchestrator, run: SessionId | None) -> None:
        # In raw mode, so that typed keys do not spoil the frame.
        attended, others = is_attended(), pending_approvals(orchestrator)
        with self._contain_errors():
            await show_live(orchestrator, self._console, attended=attended, run=run)
        if attended:
            # The frame has failed, and questions still need answers.
            await answer_in_terminal(orchestrator, Terminal(stderr=True), others)

    async def _write_log_lines(
        self, orchestrator: Orchestrator, facts: FactQueue, log: ProgressLog
    ) -> None:
        with self._contain_errors():
            await write_log(orchestrator, facts, log)

    @contextmanager
    def _contain_errors(self) -> Generator[None]:
        """Let no display error end the work. It is printed once."""
        try:
            yield
        except BrokenPipeError:
            raise  # the reader has left, so the command ends
        except Exception as exc:  # noqa: BLE001 (a bulkhead)
            if not self._has_failed:
                self._has_failed = True
                self._console.print(Text(display_failure_text(exc), style="yellow"), soft_wrap=True)

    async def _print_watch_hint(self, orchestrator: Orchestrator, run: SessionId | None) -> None:
        await wait_delegated(orchestrator, run)
        watched = orchestrator.runs[-1] if run is None else run
        again = command("watch", watched, journal=self._journal)
        print_hint(self._console, WATCH_HINT, f"  {again}")


def display_failure_text(exc: Exception) -> str:
    """Return the message about an error of a display."""
    (*_, (frame, line)) = walk_tb(exc.__traceback__)
    where = f"{Path(frame.f_code.co_filename).name}, line {line}"
    return (
        f"orchestrator: what happens cannot be shown ({type(exc).__name__}: {exc}, in {where});"
        " the work goes on without that. This is our mistake: please report it."
    )


async def wait_delegated(orchestrator: Orchestrator, run: SessionId | None = None) -> None:
    """Wait until a run, or the newest one, has delegated a task."""
    seen = 0
    while (tree := shown_tree(orchestrator, run)) is None or len(tree) < 2:
        seen = await orchestrator.wait_changed(after=seen)
    await trio.lowlevel.checkpoint()


@asynccontextmanager
async def _open_control_socket(orchestrator: Orchestrator) -> AsyncGenerator[Path | None]:
    file = orchestrator.read.journal_file
    if file is None:
        yield None
        return
    async with open_control(orchestrator, file) as path:
        yield path


@asynccontextmanager
async def open_display(
    progress: Progress, console: Terminal, journal: str | None
) -> AsyncGenerator[ProgressDisplay]:
    """Open the display of a command, and flush it at the end."""
    stream = sys.stderr if console.stderr else sys.stdout
    with ExitStack() as exit_stack:
        kind = choose_progress(progress, stream, os.environ)
        yield ProgressDisplay(kind, console, journal, exit_stack)


async def _write_facts(orchestrator: Orchestrator, facts: FactQueue) -> NoReturn:
    """Write facts as NDJSON on stdout when they are durable, until cancelled."""
    while True:
        await facts.wait()
        _write_lines(facts, until=await orchestrator.wait_durable())


def _write_lines(facts: FactQueue, *, until: int | None = None) -> None:
    """Write the pending facts: all, or up to a sequence number."""
    for entry, encoded in facts.take(until=until):
        line = printable_json(fact_line(entry, encoded).decode())
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
