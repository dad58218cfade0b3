"""The loop of `orchestrator watch`: reads a run's journal, draws it, and sends actions."""

import os
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import trio
from rich.console import Group
from rich.live import Live

from orchestrator.agents import ToolCall, raising_one_error, unanswered_calls
from orchestrator.cli.errors import CommandError
from orchestrator.cli.exit_codes import SIGNAL_BASE
from orchestrator.cli.terminal.console import Terminal
from orchestrator.cli.terminal.keyboard import KeyReader, raw_terminal
from orchestrator.cli.terminal.style import is_ascii
from orchestrator.cli.terminal.task_line import Canvas
from orchestrator.cli.terminal.transcript import transcript_lines
from orchestrator.cli.terminal.tree_frame import RunSnapshot
from orchestrator.cli.watch.journal_tail import RunReader, is_about, open_run
from orchestrator.cli.watch.state import Quit, ReadTranscript, WatchState
from orchestrator.delegation import Receipt, TaskId
from orchestrator.ports.control import (
    AnswerApproval,
    Cancel,
    ControlClient,
    Pause,
    RefusedError,
    Steer,
    Subscribe,
    connect_control,
)
from orchestrator.ports.journals import Journals

FRAMES_PER_SECOND: Final = 8
POLL_SECONDS: Final = 1
"""The seconds between two polls of a journal without a control socket."""


async def watch_run(journals: Journals, run: str | None) -> int:
    """Watch a run, by default the newest, until the user leaves; return the exit code."""
    if not (os.isatty(0) and os.isatty(1)):
        raise CommandError(
            "watch needs a terminal; elsewhere: orchestrator tree RUN, or"
            " orchestrator run --progress=json"
        )
    watcher = Watcher(await open_run(journals, run), Terminal())
    with raw_terminal() as (terminal, stops), watcher.screen(), raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminal.stop_with_ctrl_z, stops, watcher.hide, watcher.restore)
            nursery.start_soon(watcher.follow_forever)
            await watcher.ready.wait()
            nursery.start_soon(watcher.draw_forever)
            nursery.start_soon(watcher.handle_keys, KeyReader(), nursery)
            with trio.open_signal_receiver(
                signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH
            ) as signals:
                code = await watcher.wait_exit(signals)
            nursery.cancel_scope.cancel(reason="the user has left")
    return code


class Watcher:
    """One terminal that shows one run."""

    def __init__(self, reader: RunReader, console: Terminal) -> None:
        self._reader = reader
        self._console = console
        self._state = WatchState()
        self._client: ControlClient | None = None
        self.ready = trio.Event()
        """Set once the control socket was tried."""
        self._has_changed = trio.Event()
        self._quit = trio.Event()
        self._tick = 0
        # Otherwise rich refreshes from a thread of its own.
        self._live = Live(console=console, auto_refresh=False, screen=True)

    @contextmanager
    def screen(self) -> Generator[None]:
        with self._live:
            yield

    def hide(self) -> None:
        self._live.stop()

    def restore(self) -> None:
        self._live.start(refresh=False)
        self.draw()

    async def wait_exit(self, signals: AsyncIterator[int]) -> int:
        """Wait until the user leaves, and return the exit code; redraw when the size changes."""
        code = 0

        async def handle_signals() -> None:
            nonlocal code
            async for number in signals:
                if number == signal.SIGWINCH:
                    self.draw()
                else:
                    code = SIGNAL_BASE + number
                    self._quit.set()

        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(handle_signals)
                await self._quit.wait()
                nursery.cancel_scope.cancel(reason="the user has left")
        return code

    # Drawing.

    async def draw_forever(self) -> None:
        """Draw on every change, and once a second for the clock."""
        while True:
            self._has_changed = trio.Event()
            self.draw()
            with trio.move_on_after(1):
                await self._has_changed.wait()
            await trio.sleep(1 / FRAMES_PER_SECOND)

    def draw(self) -> None:
        self._tick += 1
        reader, console = self._reader, self._console
        is_live = self._client is not None
        # The clock stands still while no task is at work.
        snapshot = RunSnapshot(
            tree=reader.tree,
            questions=reader.open_questions if reader.has_writer else (),
            calls=self._calls,
            place=self._awaited_place,
            provider=self._awaited_provider,
            paused=self._paused,
            now=time.time() if reader.tree.is_at_work else reader.active_at,
            active_at=reader.active_at,
        )
        canvas = Canvas(
            width=console.width,
            height=console.height,
            ascii=is_ascii(console),
            tick=self._tick if reader.has_writer else 0,
        )
        self._state.can_act = is_live
        lines = self._state.render(snapshot, canvas, self._heading())
        self._live.update(Group(*lines), refresh=True)

    def _heading(self) -> str:
        run = self._reader.session
        if self._client is not None:
            return f"{run} · paused" if self._paused else run
        if not self._reader.tree.tally().unsettled:
            return f"{run} · ended"
        if self._reader.has_writer:
            return f"{run} · read-only: no control socket"
        return f"{run} · read-only: no process runs it"

    def _calls(self, task: TaskId) -> list[ToolCall]:
        return unanswered_calls(self._reader.ledger.tasks[task].transcript)

    @property
    def _paused(self) -> Collection[TaskId]:
        reader = self._reader
        return reader.ledger.sessions[reader.session].slots.paused

    def _awaited_place(self, task: TaskId) -> str:
        return self._reader.ledger.tasks[task].awaits_worker

    def _awaited_provider(self, task: TaskId) -> str:
        return "" if self._client is None else str(self._client.waits.get(task, ""))

    # Following the journal.

    async def follow_forever(self) -> None:
        """Read new entries as they come, from any process that writes them."""
        while True:
            async with _connect(self._reader.file) as client:
                await self._reader.catch_up()
                self._client = client
                self.ready.set()
                await self._refresh_transcript()
                if client is None:
                    # Without a control socket there is nothing to wait for.
                    while not self._reader.has_changed():  # noqa: ASYNC110
                        await trio.sleep(POLL_SECONDS)
                else:
                    await self._follow(client)
                self._client = None

    async def _follow(self, client: ControlClient) -> None:
        with suppress(RefusedError):  # the process has gone: wait_grown returns False
            await client.request(Subscribe(after=self._reader.seq))
        seen = self._reader.seq
        while await client.wait_grown(after=seen):
            seen = client.seq
            new = await self._reader.read_new()
            if any(is_about(entry, self._state.shown_task) for entry in new):
                await self._refresh_transcript()
            self._has_changed.set()

    async def _refresh_transcript(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._state.shown_task is not None:
            await self._load_transcript(self._state.shown_task)
        self._has_changed.set()

    async def _load_transcript(self, task: TaskId) -> None:
        entries = await self._reader.read_task(task)
        if self._state.shown_task == task:
            self._state.set_transcript(transcript_lines(entries))

    # Actions.

    async def handle_keys(self, keys: KeyReader, nursery: trio.Nursery) -> None:
        """Handle keys until the user leaves."""
        while (key := await keys.read()) is not None:
            match self._state.press(key):
                case None:
                    pass
                case Quit():
                    break
                case ReadTranscript(task):
                    await self._load_transcript(task)
                case Cancel() | Pause() | Steer() | AnswerApproval() as request:
                    # It may take a while, and the keys must work meanwhile.
                    nursery.start_soon(self._send_request, request)
            self.draw()
        self._quit.set()

    async def _send_request(self, request: Cancel | Pause | Steer | AnswerApproval) -> None:
        await trio.lowlevel.checkpoint()
        client = self._client
        if client is None:
            self._state.note = "no process runs it any more"
            return
        if isinstance(request, Cancel):
            self._state.note = "cancelling: waiting until all below it has ended"
            self.draw()
        try:
            answer = await client.request(request)
        except RefusedError as exc:
            self._state.note = f"not done: {exc}"
        else:
            self._state.note = _result_note(request, str(answer.get("state", "")))
        self._has_changed.set()


@asynccontextmanager
async def _connect(file: Path | None) -> AsyncGenerator[ControlClient | None]:
    """Connect to the process that writes a journal; only a file has a control socket."""
    if file is None:
        yield None
        return
    async with connect_control(file) as client:
        yield client


def _result_note(request: Cancel | Pause | Steer | AnswerApproval, state: str) -> str:
    match request:
        case Cancel():
            return "cancelled"
        case Pause(paused=paused):
            return "paused: no new task starts below it" if paused else "unpaused"
        case AnswerApproval(_, answer):
            return f"answered: {answer}"
        case Steer():
            if Receipt("gone").state == state:
                return "not told: it has ended"
            return "told: it reads that before its next model call"
