"""Commands in the background: what is known of each, and what a session is told of them."""

from typing import Final, NewType

import attrs

from delegation.task import TaskId

ProcessId = NewType("ProcessId", str)

MAX_OUTPUT_TAIL: Final = 2_000
"""How many characters of the output a session is told when a command has ended."""
MAX_COMMAND_SHOWN: Final = 500
"""How many characters of a command it is told: it may have written a whole file with it."""


@attrs.frozen
class ProcessRecord:
    """A command that runs in the background."""

    id: ProcessId
    task: TaskId
    """Who has started it."""
    command: str
    notify: bool
    """The session is told when it ends."""


@attrs.frozen(kw_only=True)
class ProcessNotice:
    """Something that a command in the background did: mail for the session that started it."""

    process: ProcessId
    command: str
    ended: str = ""
    """How it ended, if that is the news."""
    output: str = ""
    """The end of what it printed, or the lines that were watched for."""
    left_out: int = 0
    """How many lines that were watched for are not told."""

    def text(self, share: int) -> str:
        """Return what wakes the session.

        Args:
            share: how many characters of the output may be in it.
        """
        what = (
            f"has ended: {self.ended}" if self.ended else "has printed what you watch"
        )
        command = self.command
        if len(command) > MAX_COMMAND_SHOWN:
            command = (
                f"{command[:MAX_COMMAND_SHOWN]} [{len(command)} characters in all]"
            )
        lines = [
            f"A command that runs in the background {what} ({self.process}).",
            f"Command: {command}",
        ]
        if self.left_out:
            line, are = ("line", "is") if self.left_out == 1 else ("lines", "are")
            lines.append(
                f"{self.left_out} more {line} that you watch for came too quickly, and {are} not"
                " told."
            )
        if self.output:
            cut = self.output[-share:]
            start = "The end of its output" if self.ended else "Lines"
            lines.append(f"{start}:\n{cut}")
        if not self.ended:
            # Not that it goes on: it may have ended before anybody reads this.
            lines.append(
                f'process(action="log", id="{self.process}") reads all that it printed.'
            )
        return "\n".join(lines)
