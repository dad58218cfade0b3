"""One background command: its state, its output and its end."""

import math
import signal
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import trio

from orchestrator.agents import ToolError
from orchestrator.agents.current_span import with_traceparent
from orchestrator.agents.tools.context import current_tool_context
from orchestrator.agents.tools.terminal.output_buffer import OutputBuffer
from orchestrator.agents.tools.terminal.process_group import RunningCommand, open_command
from orchestrator.delegation import TaskId, one_line
from orchestrator.delegation.events.processes import ProcessId, ProcessRecord, describe_unreachable

HEAD_KEPT: Final = 50_000
TAIL_KEPT: Final = 150_000
"""How many characters of an output are kept, from the beginning and from the end."""
PAUSE: Final = 15.0
"""How many seconds pass at least between two notices of matched lines; each time twice as many."""
LONGEST_PAUSE: Final = 900.0
CLOSED: Final = "stopped, because the orchestrator was closed"


class Command:
    """One command, from its request to its end."""

    def __init__(
        self,
        id: ProcessId,  # noqa: A002 (the word of the domain)
        command: str,
        *,
        task: TaskId,
        workdir: Path,
        watch: Sequence[str],
    ) -> None:
        self.id = id
        self.command = command
        self.task = task
        self.workdir = workdir
        context = current_tool_context()
        self._environ, self._sandbox = with_traceparent(context.environ), context.sandbox
        self.output = OutputBuffer(head=HEAD_KEPT, tail=TAIL_KEPT)
        self.exit_code: int | None = None
        self.ended = ""
        self.unknown = ""
        self.polled_to = 0
        """Up to where its output was polled."""
        self.process: RunningCommand | None = None
        self.error: ToolError | None = None
        self.stopped = ""
        """Why it is being ended; empty if it is not."""
        self.begun = trio.Event()
        self.finished = trio.Event()
        self._scope = trio.CancelScope()
        self._watch = tuple(watch)
        self._began = trio.current_time()
        self._took: float | None = None
        self._next_notice_at = -math.inf
        self._pause = PAUSE
        self.left_out = 0
        """How many matching lines came too quickly for a notice."""

    @property
    def pid(self) -> int:
        return 0 if self.process is None else self.process.pid

    @property
    def refused(self) -> Collection[str]:
        return () if self.process is None else self.process.refused

    @property
    def seconds(self) -> float:
        return trio.current_time() - self._began if self._took is None else self._took

    def stop(self, why: str) -> None:
        self.stopped = self.stopped or why
        self._scope.cancel(reason=why)

    def should_notify(self, line: str) -> bool:
        """Return whether a line is due for a notice; count the matches that come too quickly."""
        if not any(text in line for text in self._watch):
            return False
        now = trio.current_time()
        if now < self._next_notice_at:
            self.left_out += 1
            return False
        self._next_notice_at = now + self._pause
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
        return True

    async def run(self, on_line: Callable[[str], None]) -> None:  # noqa: ASYNC910 (a start waits)
        """Run it to its end, or until it is stopped."""
        try:
            with self._scope:
                async with open_command(
                    self.command,
                    cwd=self.workdir,
                    environ=self._environ,
                    sandbox=self._sandbox,
                    tag=self.id,
                    output=self.output,
                    stdin=True,
                    on_line=on_line,
                ) as self.process:
                    self.begun.set()
                    self.exit_code = await self.process.wait()
        except ToolError as exc:
            self.error = exc
        finally:
            self._took = self.seconds
            self.ended = self._describe_end()

    def _describe_end(self) -> str:
        if self.error is not None:
            return f"it could not be run: {self.error}"
        if self.exit_code is None:
            return self.stopped or CLOSED
        how = (
            f"killed by {_signal_name(-self.exit_code)}"
            if self.exit_code < 0
            else f"exit code {self.exit_code}"
        )
        if self.process is not None and self.process.left_behind:
            how += "; what it had left running was ended with it"
        return how


class UnreachableCommand:
    """A command on another machine: whether it runs is not known here."""

    pid = 0
    exit_code = None
    ended = ""
    refused = ()
    seconds = None

    def __init__(self, record: ProcessRecord) -> None:
        self.id = record.id
        self.command = record.command
        self.unknown = describe_unreachable(record.host, record.unreachable_from)
        self.output = OutputBuffer(head=0, tail=0)


def ended_note(commands: Sequence[Command]) -> str:
    """Return the note for the parent of a task about the commands that ended with it."""
    first = one_line(commands[0].command)
    more = f" and {len(commands) - 1} more" if len(commands) > 1 else ""
    return f"Ended with it: the background command `{first}`{more}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
