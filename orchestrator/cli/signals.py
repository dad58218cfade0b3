"""Ctrl-C and SIGTERM: the first lets what runs finish for a while, the second closes at once.

Either way the journal says how everything ended. Whatever hangs does not keep the process: it is
written off, and the process leaves without it.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import trio

from agents import raising_one_error
from orchestrator.cli.terminal.keyboard import terminal_restorer
from orchestrator.errors import JournalError
from orchestrator.runtime import Orchestrator

GRACE_SECONDS: Final = 5
"""How long what runs may go on after the first signal."""
CLOSING_SECONDS: Final = 10
"""How long closing may take after that: a tool in a thread has 5 seconds of its own."""
AT_ONCE_SECONDS: Final = 0.5
"""The same after the second signal."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
SIGNAL_EXIT_BASE: Final = 128
"""What a shell adds to the number of a signal: 130 is Ctrl-C, 143 is SIGTERM."""
SHOW_CURSOR: Final = b"\x1b[?25h"
"""A tree that grows in the terminal hides it."""


async def run_until_stopped(
    work: "Callable[[Stop], Awaitable[int | None]]", grace: float = GRACE_SECONDS
) -> int:
    """Do the work of a command, and return its exit code.

    Args:
        work: returns its own exit code, or None if a signal has stopped it before its end.
        grace: how long what runs may go on after the first signal.
    """
    stop = Stop(grace)
    code: int | None = None
    with (
        trio.open_signal_receiver(*SIGNALS) as signals,
        stop.count_signals(),
        raising_one_error(),
    ):
        async with trio.open_nursery() as nursery:
            # Outside of the work, so that it lives until all of that is closed.
            nursery.start_soon(stop.handle_signals_forever, signals)
            with stop.command_scope:
                code = await work(stop)
            nursery.cancel_scope.cancel(reason="the work has ended")
    return stop.code if code is None else code


class Stop:
    """What signals do to a command."""

    def __init__(self, grace: float) -> None:
        self.code = 0
        """How the command exits if a signal stops it."""
        self.work_scope = trio.CancelScope()
        """What is cancelled when the grace is over. The work waits in it, and reports behind it."""
        self.command_scope = trio.CancelScope()
        self._orchestrator: Orchestrator | None = None
        self._idle_scope: trio.CancelScope | None = None
        self._has_drained = trio.Event()
        self._grace = grace
        self._count = 0
        self._restore_terminal = terminal_restorer()

    @property
    def is_requested(self) -> bool:
        return self.code != 0

    def set_orchestrator(self, orchestrator: Orchestrator) -> None:
        """Say who is to be drained."""
        self._orchestrator = orchestrator

    @contextmanager
    def end_wait_on_signal(self) -> Generator[None]:
        """Wait for somebody who may never say anything: the first signal ends that."""
        with trio.CancelScope() as self._idle_scope:
            if self.is_requested:
                self._idle_scope.cancel(reason="a signal came")
            yield
        self._idle_scope = None

    async def wait_requested(self) -> None:
        """Wait for the first signal."""
        with self.end_wait_on_signal():
            await trio.sleep_forever()

    async def wait_drained(self) -> None:
        """Wait until what runs has ended or its grace is over, if a signal came."""
        await trio.lowlevel.checkpoint()
        if self.is_requested:
            await self._has_drained.wait()

    async def handle_signals_forever(self, signals: AsyncIterator[int]) -> None:
        """Act on signals, until cancelled."""
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                async for number in signals:
                    if not self.is_requested:
                        self.code = SIGNAL_EXIT_BASE + number
                        nursery.start_soon(self._drain)
                    else:
                        self.command_scope.cancel(reason="a second signal came")
                        nursery.start_soon(self._exit_after, AT_ONCE_SECONDS)

    async def _drain(self) -> None:
        orchestrator = self._orchestrator
        if self._idle_scope is not None:
            self._idle_scope.cancel(reason="a signal came")
        if orchestrator is None:
            self.command_scope.cancel(reason="a signal came before anything was open")
        else:
            if running := orchestrator.working:
                _print_status(
                    f"stopping: waiting up to {self._grace:g} s for {running}"
                    f" task{'s' * (running != 1)}; again to stop at once"
                )
            with trio.move_on_after(self._grace):
                has_ended = await orchestrator.drain(self._grace)
                self._has_drained.set()
                if has_ended:
                    # The work reports what has come of it, and ends by itself.
                    await trio.sleep_forever()
            self._has_drained.set()
            self.work_scope.cancel(reason="the grace is over")
        await self._exit_after(CLOSING_SECONDS)

    async def _exit_after(self, seconds: float) -> None:
        """Leave without whatever hangs. Whoever ends in time cancels this."""
        await trio.sleep(seconds)
        if self._orchestrator is not None:
            try:
                await self._orchestrator.abandon()
            except JournalError as exc:
                _print_status(str(exc))
        _print_status("something hangs, and is left behind")
        sys.stdout.flush()
        self._exit(self.code)

    @contextmanager
    def count_signals(self) -> Generator[None]:
        """Let a third signal end the process whatever happens, as `kill -9` does.

        Somebody may have blocked the event loop, so that nobody sees the first two.
        """
        notice: Any = signal.getsignal(signal.SIGINT)

        def count(number: int, frame: FrameType | None) -> None:
            self._count += 1
            if self._count > 2:
                self._exit(SIGNAL_EXIT_BASE + number)
            notice(number, frame)

        for number in SIGNALS:
            signal.signal(number, count)
        # Whoever listens for signals puts back what was there before both of us.
        yield

    def _exit(self, code: int) -> None:
        self._restore_terminal()
        for terminal in filter(os.isatty, (1, 2)):
            os.write(terminal, SHOW_CURSOR)
        os._exit(code)


def _print_status(line: str) -> None:
    print(f"orchestrator: {line}", file=sys.stderr, flush=True)
