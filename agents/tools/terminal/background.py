"""The port for background commands, as the tools of one task see them.

The orchestrator runs them and ends them: with the task, or with the session if that can be notified
of their end.
"""

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from orchestrator.agents.tools.terminal.output_buffer import OutputBuffer
from orchestrator.agents.tools.tool import CallKey


def tag_of(key: CallKey) -> str:
    """Return the process tag of a call: after a crash it finds the processes of that call."""
    # A key contains ids that a model or a provider chose.
    return hashlib.sha256(key.encode()).hexdigest()[:32]


class BackgroundCommand(Protocol):
    """A command that was started in the background."""

    @property
    def id(self) -> str: ...
    @property
    def command(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def output(self) -> OutputBuffer: ...
    @property
    def exit_code(self) -> int | None:
        """Negative if a signal has ended it; None while it runs, or if it is unknown."""
        ...

    @property
    def ended(self) -> str:
        """How it ended, as text; empty while it runs, or if that is unknown."""
        ...

    @property
    def unknown(self) -> str:
        """Why it is not known whether it runs, as text; empty if it is known."""
        ...

    @property
    def refused(self) -> Collection[str]:
        """The hosts that it was refused so far, with their ports."""
        ...

    @property
    def seconds(self) -> float | None:
        """How long it has run; None if it is unknown."""
        ...


class BackgroundCommands(Protocol):
    """The commands that one task has started in the background."""

    @property
    def can_notify(self) -> bool:
        """Whether the session can be notified of a command that ends after its turn.

        Where it cannot, all commands of the task are ended with the turn.
        """
        ...

    async def start(
        self, command: str, *, workdir: Path, notify: bool, watch: Sequence[str]
    ) -> BackgroundCommand:
        """Start a command, and return when it runs; lines with `watch` words notify the session."""
        ...

    def known(self) -> Sequence[BackgroundCommand]:
        """Return the running ones, and the last ones that have ended, oldest first."""
        ...

    async def wait(self, command: BackgroundCommand, seconds: float) -> None:
        """Wait until a command has ended, for a number of seconds at most."""
        ...

    async def end(self, command: BackgroundCommand) -> None:
        """End a command and all processes that it has started."""
        ...

    async def write(self, command: BackgroundCommand, text: str) -> None:
        """Write to the stdin of a command."""
        ...

    async def close_input(self, command: BackgroundCommand) -> None:
        """Close the stdin of a command."""
        ...

    def unread(
        self, command: BackgroundCommand, *, hold_back: int, context: int
    ) -> tuple[str, str]:
        """Return `context` characters of earlier output, and the output since the last call.

        The last `hold_back` characters are left for the next call.
        """
        ...

    def notices_of(self, command: BackgroundCommand) -> Sequence[int]:
        """Return the unread notices of a command: an answer that contains its end consumes them."""
        ...
