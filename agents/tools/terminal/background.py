"""Commands in the background, as the tools of one task see them.

Whoever runs the agent runs these, too, and ends them: with the task, or with the session where that
can be told later how they ended.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from agents.tools.terminal.output_buffer import OutputBuffer
from agents.tools.tool import CallKey


def tag_of(key: CallKey) -> str:
    """Return the tag of what a call runs and waits for: who knows the call finds what it left."""
    # A key may hold anything that a model or a provider has written.
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
        """Negative if a signal has ended it; None while it runs, or if nobody knows."""
        ...

    @property
    def ended(self) -> str:
        """How it ended, in words; empty while it runs."""
        ...

    @property
    def seconds(self) -> float:
        """How long it has run."""
        ...


class BackgroundCommands(Protocol):
    """The commands that one task has started in the background."""

    @property
    def can_notify(self) -> bool:
        """Whether somebody is told when a command ends after the turn that started it."""
        ...

    async def start(
        self,
        command: str,
        *,
        workdir: Path,
        notify: bool,
        watch: Sequence[str],
    ) -> BackgroundCommand:
        """Start a command, and return when it runs.

        Args:
            command: a line of shell.
            workdir: the folder it starts in.
            notify: tell the session when it has ended.
            watch: tell the session of lines with one of these in them.
        """
        ...

    def known(self) -> Sequence[BackgroundCommand]:
        """Return those that run, and the last ones that have ended, oldest first."""
        ...

    async def wait(self, command: BackgroundCommand, seconds: float) -> None:
        """Wait until a command has ended, or until it has taken too long."""
        ...

    async def end(self, command: BackgroundCommand) -> None:
        """End a command and all that it has started."""
        ...

    async def write(self, command: BackgroundCommand, text: str) -> None:
        """Write to what a command reads."""
        ...

    async def close_input(self, command: BackgroundCommand) -> None:
        """Let a command read the end of its input."""
        ...

    def unread(
        self, command: BackgroundCommand, *, hold_back: int, context: int
    ) -> tuple[str, str]:
        """Return what a command has printed since this was asked last, and what came before that.

        Args:
            command: which one.
            but: so many characters from the end, which are left for the next time.
            context: how many characters of what came before.

        Returns:
            what came before, and what is new.
        """
        ...

    def notices_of(self, command: BackgroundCommand) -> Sequence[int]:
        """Return the unread notices of a command: an answer that tells its end consumes them."""
        ...
