"""The machine that tools use: its workspaces and background commands.

Most of its code is imported when a task opens its first workspace: an agent without tools does not
need it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from orchestrator.agents import raising_one_error, unanswered_calls
from orchestrator.delegation import TaskId
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.workspace.settings import WorkspaceSettings
from orchestrator.kernel.journal.bookkeeper import Bookkeeper

if TYPE_CHECKING:
    from orchestrator.kernel.execution.workspace.background_commands import BackgroundRunner
    from orchestrator.kernel.execution.workspace.command import Command
    from orchestrator.kernel.execution.workspace.task_workspace import TaskWorkspaces


class ToolMachine:
    """Opens workspaces and runs background commands."""

    def __init__(
        self, book: Bookkeeper, registry: AgentRegistry, settings: WorkspaceSettings
    ) -> None:
        self._book = book
        self._registry = registry
        self.settings = settings
        self.opened_workspaces: TaskWorkspaces | None = None
        """The workspaces; None if no task has needed one yet."""
        self._commands: BackgroundRunner | None = None
        self._used = trio.Event()
        self._is_closed = False

    @property
    def workspaces(self) -> "TaskWorkspaces":
        """The workspaces of all tasks."""
        if self.opened_workspaces is None:
            from orchestrator.kernel.execution.workspace.task_workspace import TaskWorkspaces

            self.opened_workspaces = TaskWorkspaces(
                self._book, self._registry, self.commands, self.settings
            )
        return self.opened_workspaces

    @property
    def commands(self) -> "BackgroundRunner":
        """The background commands of all tasks."""
        if self._commands is None:
            from orchestrator.kernel.execution.workspace.background_commands import BackgroundRunner

            self._commands = BackgroundRunner(self._book, self.settings.host)
            if self._is_closed:
                self._commands.close()
            self._used.set()
        return self._commands

    async def run_forever(self) -> None:
        """Run background commands as tasks start them."""
        try:
            await self._used.wait()
            with raising_one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.commands.run_forever)
                    nursery.start_soon(self.commands.wait_ended_elsewhere)
        finally:
            self._is_closed = True

    async def end_leftovers(self, last_host: str) -> None:
        """End the commands that an earlier process left (`BackgroundRunner.end_leftovers`)."""
        ledger = self._book.records
        await trio.lowlevel.checkpoint()
        if any(session.processes for session in ledger.sessions.values()) or any(
            unanswered_calls(task.transcript) for task in ledger.tasks.values()
        ):
            await self.commands.end_leftovers(last_host)

    def commands_of(self, task: TaskId) -> "Sequence[Command]":
        """Return the background commands of a task that are remembered."""
        return () if self._commands is None else self._commands.commands_of(task)

    async def end_commands_of(self, task: TaskId, why: str) -> None:
        """End the background commands of a task, and forget them."""
        await trio.lowlevel.checkpoint()
        if self._commands is not None:
            await self._commands.end_commands_of(task, why)

    def kill_now(self) -> None:
        """Kill all commands at once, for a process that is about to exit."""
        if self._commands is not None:
            self._commands.kill_now()
