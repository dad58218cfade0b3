"""Background commands: the record of one, and the notice that a session gets of it."""

from typing import Final, NewType

import msgspec

from orchestrator.delegation.task import TaskId

ProcessId = NewType("ProcessId", str)

MAX_OUTPUT_TAIL: Final = 2_000
"""How many characters of its output are in the notice that a command has ended."""
MAX_COMMAND_SHOWN: Final = 500
"""How many characters of a command are in a notice: it may contain a whole file."""


class ProcessRecord(msgspec.Struct, frozen=True, gc=False):
    """A command that runs in the background."""

    id: ProcessId
    task: TaskId
    """The task that started it."""
    command: str
    notify: bool
    """Its end is mail for the session."""
    host: str = ""
    """The machine that it runs on."""
    unreachable_from: str = ""
    """The machine that took the journal over and cannot see it: whether it runs is not known."""

    @property
    def is_unreachable(self) -> bool:
        """Whether it runs is not known: the journal was taken over on another machine."""
        return bool(self.unreachable_from)


def describe_unreachable(host: str, here: str) -> str:
    """Return the known state of a command, on a machine that cannot see it.

    Args:
        host: the machine that it was started on.
        here: the machine that cannot see it.
    """
    return (
        f"it was started on {host}, which is not this machine ({here}), and the orchestrator there"
        " is gone; whether it still runs, and what it printed, is not known"
    )


class ProcessNotice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A background command ended, printed a watched line, or went out of sight: mail."""

    process: ProcessId
    command: str
    ended: str = ""
    """How it ended; empty if it printed a watched line."""
    unknown: str = ""
    """Why it is not known whether it runs; empty if that is known."""
    output: str = ""
    """The end of its output, or the watched lines."""
    left_out: int = 0
    """How many watched lines are left out."""

    def text(self, share: int) -> str:
        """Return the message that wakes the session.

        Args:
            share: how many characters of the output it may contain.
        """
        if self.unknown:
            what = f"cannot be seen any more: {self.unknown}"
        elif self.ended:
            what = f"has ended: {self.ended}"
        else:
            what = "has printed what you watch"
        command = self.command
        if len(command) > MAX_COMMAND_SHOWN:
            command = f"{command[:MAX_COMMAND_SHOWN]} [{len(command)} characters in all]"
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
        if self.unknown:
            lines.append(
                "You will be told when it is known that it has ended. Until then do not rely on"
                " it, and do not start it again if two of it would do harm."
            )
        elif not self.ended:
            # Not "it still runs": it may have ended before the model reads this.
            lines.append(f'process(action="log", id="{self.process}") reads all that it printed.')
        return "\n".join(lines)
