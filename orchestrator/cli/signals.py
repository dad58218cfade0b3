"""Ctrl-C, SIGTERM and SIGHUP: the first one drains running tasks, the second one closes at once.

Either way every task is settled in the journal. A task that hangs does not keep the process: it is
abandoned, and the process exits.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol

import trio

from orchestrator.agents import raising_one_error
from orchestrator.cli.exit_codes import SIGNAL_BASE
from orchestrator.cli.terminal.keyboard import terminal_restorer
from orchestrator.ports.errors import ClosedError, JournalError

GRACE_SECONDS: Final = 5
"""The seconds that tasks may run on after the first signal."""
CLOSING_SECONDS: Final = 10
"""The seconds that closing may take after that: a tool in a thread has 5 seconds of its own."""
AT_ONCE_SECONDS: Final = 0.5
"""The same after the second signal."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _handled_signals() -> list[signal.Signals]:
    """Return the signals that stop a command; under `nohup` a closed terminal does not.

    A shell that starts a command with `&` lets it ignore SIGINT, which stops it nevertheless.
    """
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [it for it in SIGNALS if it is not signal.SIGHUP or not ignores_hangup]


SHOW_CURSOR: Final = b"\x1b[?25h"
"""The live tree hides the cursor."""


def run_stoppable(
    work: "Callable[[Stop], Awaitable[int | None]]", grace: float = GRACE_SECONDS
) -> int:
    """Run a command that signals stop in good order, and return its exit code."""
    return trio.run(_run_until_stopped, work, grace)


async def _run_until_stopped(work: "Callable[[Stop], Awaitable[int | None]]", grace: float) -> int:
    stop = Stop(grace)
    code: int | None = None
    handled = _handled_signals()
    with (
        trio.open_signal_receiver(*handled) as signals,
        stop.count_signals(handled),
        raising_one_error(),
    ):
        async with trio.open_nursery() as nursery:
            # Outside of the work, so that signals are handled until all of it is closed.
            nursery.start_soon(stop.handle_signals_forever, signals)
            with stop.command_scope:
                code = await work(stop)
            nursery.cancel_scope.cancel(reason="the work has ended")
    return stop.code if code is None else code


class Drainable(Protocol):
    """The part that the first signal drains: an orchestrator, a whole server, or a worker."""

    @property
    def working(self) -> int:
        """The number of running tasks."""
        ...

    async def drain(self, seconds: float) -> bool:
        """Start no new work, wait for the running work, and return whether all has ended."""
        ...

    async def abandon(self) -> None:
        """Abandon the work that still runs, because the process must exit."""
        ...


class AllOrchestrators:
    """The orchestrators of one process, which a signal drains together."""

    def __init__(self, orchestrators: Sequence[Drainable]) -> None:
        self._orchestrators = orchestrators

    @property
    def working(self) -> int:
        return sum(it.working for it in self._orchestrators)

    async def drain(self, seconds: float) -> bool:
        have_ended: list[bool] = []

        async def drain(orchestrator: Drainable) -> None:
            have_ended.append(await orchestrator.drain(seconds))

        async with trio.open_nursery() as nursery:
            for it in self._orchestrators:
                nursery.start_soon(drain, it)
        return all(have_ended)

    async def abandon(self) -> None:
        await trio.lowlevel.checkpoint()
        for it in self._orchestrators:
            await it.abandon()


class Stop:
    """How signals stop one command."""

    def __init__(self, grace: float) -> None:
        self.code = 0
        """The exit code if a signal stops the command; 0 before the first signal."""
        self.work_scope = trio.CancelScope()
        """Cancelled at the end of the grace. The work waits inside it, and reports after it."""
        self.command_scope = trio.CancelScope()
        self._orchestrator: Drainable | None = None
        self._idle_scope: trio.CancelScope | None = None
        self._has_drained = trio.Event()
        self._grace = grace
        self._count = 0
        self._restore_terminal = terminal_restorer()

    @property
    def is_requested(self) -> bool:
        return self.code != 0

    def set_orchestrator(self, orchestrator: Drainable) -> None:
        """Set the orchestrator that the first signal drains."""
        self._orchestrator = orchestrator

    @contextmanager
    def end_wait_on_signal(self) -> Generator[None]:
        """Let the first signal end a wait for input, which may never end by itself."""
        with trio.CancelScope() as self._idle_scope:
            if self.is_requested:
                self._idle_scope.cancel(reason="a signal came")
            yield
        self._idle_scope = None

    @contextmanager
    def ignore_closed(self) -> Generator[None]:
        """Ignore the error of a closed orchestrator, once a signal has asked it to close."""
        try:
            yield
        except ClosedError:
            if not self.is_requested:
                raise

    async def wait_requested(self) -> None:
        """Wait for the first signal."""
        with self.end_wait_on_signal():
            await trio.sleep_forever()

    async def wait_drained(self) -> None:
        """Wait until all tasks have settled or the grace is over, if a signal came."""
        await trio.lowlevel.checkpoint()
        if self.is_requested:
            await self._has_drained.wait()

    async def handle_signals_forever(self, signals: AsyncIterator[int]) -> None:
        """Handle signals, until cancelled."""
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                async for number in signals:
                    if not self.is_requested:
                        self.code = SIGNAL_BASE + number
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
                    # The work reports its outcome, and ends by itself.
                    await trio.sleep_forever()
            self._has_drained.set()
            self.work_scope.cancel(reason="the grace is over")
        await self._exit_after(CLOSING_SECONDS)

    async def _exit_after(self, seconds: float) -> None:
        """Exit without the tasks that hang. A command that ends in time cancels this."""
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
    def count_signals(self, handled: Iterable[signal.Signals]) -> Generator[None]:
        """Let a third signal kill the process: a blocked event loop does not handle the first."""
        receive: Any = signal.getsignal(signal.SIGINT)

        def count(number: int, frame: FrameType | None) -> None:
            self._count += 1
            if self._count > 2:
                self._exit(SIGNAL_BASE + number)
            receive(number, frame)

        for number in handled:
            signal.signal(number, count)
        # The signal receiver restores the handlers that were there before both of us.
        yield

    def _exit(self, code: int) -> None:
        self._restore_terminal()
        for terminal in filter(os.isatty, (1, 2)):
            os.write(terminal, SHOW_CURSOR)
        os._exit(code)


def _print_status(line: str) -> None:
    print(f"orchestrator: {line}", file=sys.stderr, flush=True)
