"""The port that asks another machine to end the commands left on it.

The writer of a journal asks; a process on that machine ends them, and says so. A request need not
survive: a writer asks again for all commands that its journal still has.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias


class LeftCommands(Protocol):
    """The commands of one journal that were left on other machines, as its writer sees them."""

    async def ask(self, commands: Mapping[str, str]) -> None:
        """Ask for the end of commands on their machines, by tag, or raise `JournalInUseError`."""
        ...

    async def wait_ended(self) -> Sequence[str]:
        """Wait until commands have ended, and return their tags, again until they are forgotten."""
        ...

    async def forget(self, tags: Sequence[str]) -> None:
        """Drop commands whose end is durable in the journal."""
        ...


OpenLeftCommands: TypeAlias = Callable[[], AbstractAsyncContextManager[LeftCommands]]
