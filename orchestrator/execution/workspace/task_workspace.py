"""The workspace of a task, and the context of its tools: folder, environment, background commands.

What a task opens here is closed before the task is settled: its background commands, and its git
worktree if there is no work in it.
"""

import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from agents import Agent
from agents.tools.context import ToolContext, use_tool_context
from agents.tools.files.seen_files import FileRegistry, SeenFiles
from delegation import DeliveryCapability, Origin, TaskId, TaskRecord, one_line
from delegation.session_context import session_environ
from orchestrator.execution.agent_registry import AgentRegistry
from orchestrator.execution.executor import TaskHost, WorkOrder
from orchestrator.execution.workspace.background_commands import (
    BackgroundRunner,
    Command,
    TaskCommands,
)
from orchestrator.execution.workspace.worktrees import Worktree, Worktrees
from orchestrator.journal.bookkeeper import Bookkeeper

CLOSE_SECONDS: Final = 30
"""How long all that a task has opened may take to close; each part takes far less."""
TASK_ENDED: Final = "stopped, because its task has ended"
TASK_VARIABLE: Final = "ORCHESTRATOR_TASK"
"""Has the path of the task that started a process."""


@attrs.frozen(kw_only=True)
class WorkspaceSettings:
    """The folders and the environment of an orchestrator."""

    workspace: Path
    """The folder of all agents that name no other."""
    environ: Mapping[str, str]
    """The environment of their commands, without secrets."""
    state: Path
    """The folder of the worktrees."""


NO_WORKSPACE: Final = WorkspaceSettings(workspace=Path(), environ={}, state=Path())
"""For a run whose tools have no effect."""


class TaskWorkspaces:
    """Opens and closes the workspaces of tasks."""

    def __init__(
        self,
        book: Bookkeeper,
        registry: AgentRegistry,
        background: BackgroundRunner,
        settings: WorkspaceSettings,
    ) -> None:
        self._book = book
        self._registry = registry
        self._background = background
        self._settings = settings
        self._files = FileRegistry()
        self._worktrees = Worktrees(settings.state / "worktrees", settings.environ)
        self._worktree_by_task: dict[TaskId, Worktree] = {}
        self._notes: dict[TaskId, str] = {}

    @asynccontextmanager
    async def open_for(self, order: WorkOrder, host: TaskHost) -> AsyncGenerator[None]:
        """Open the workspace of a task, and the context of its tools, for the block."""
        record, agent, origin = order.task, order.agent, order.origin
        await self._open_worktrees(record, agent)
        context = ToolContext(
            workspace=self.workspace_of(record),
            environ={
                **self._settings.environ,
                **session_environ(),
                TASK_VARIABLE: record.path,
            },
            seen_files=SeenFiles(self._files, record.path),
            processes=TaskCommands(
                self._background,
                record,
                can_notify=not _ends_with_turn(record, origin),
            ),
            redact=self._book.redactor.redact,
        )
        has_ended = False
        try:
            with use_tool_context(context):
                yield
            has_ended = True
        except Exception:
            has_ended = True
            raise
        finally:
            is_over = (
                has_ended
                or host.is_cancelled
                or self._book.ledger.settles_on_teardown(record.id)
            )
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                if _ends_with_turn(record, origin):
                    left = await self._background.end_commands_of(record.id, TASK_ENDED)
                    if left and has_ended:
                        self._note(record, f"Ended with it: {_listed(left)}")
                await self._close_worktree(record, is_over=is_over)

    def _note(self, record: TaskRecord, note: str) -> None:
        """Add to what is left in the workspace of a task."""
        before = self._notes.get(record.id)
        self._notes[record.id] = f"{before}. {note}" if before else note

    async def _close_worktree(self, record: TaskRecord, *, is_over: bool) -> None:
        await trio.lowlevel.checkpoint()
        # A task that is only interrupted goes on in it.
        if record.id not in self._worktree_by_task or not is_over:
            return
        path = self._worktree_by_task[record.id].path
        # Detached tasks go on in it after the turn that began them; the turn that is notified of
        # their end looks again.
        if record.children.unsettled:
            self._note(record, f"Its tasks still work in {path}")
        elif not all(
            it.finished.is_set() for it in self._background.commands_of(record.id)
        ):
            self._note(record, f"Its commands still run in {path}")
        elif note := await self._worktrees.close(self._worktree_by_task.pop(record.id)):
            self._note(record, f"{note[0].upper()}{note[1:]}")

    def tasks_with_worktree_below(self, task: TaskId) -> list[TaskRecord]:
        """Return the unsettled tasks below a task that have a worktree."""
        if not self._worktree_by_task:
            return []
        below = self._book.ledger.unsettled_below(task)
        return [record for record in below if record.id in self._worktree_by_task]

    async def close_worktrees(self, records: Iterable[TaskRecord]) -> None:
        """Close the worktrees of tasks that will not be resumed."""
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await trio.lowlevel.checkpoint()
            for record in records:
                await self._close_worktree(record, is_over=True)

    def pop_note(self, task: TaskId) -> str:
        """Return once what is left in the workspace of a settled task."""
        return self._notes.pop(task, "")

    def workspace_of(self, record: TaskRecord) -> Path:
        """Return the folder that the tools of a task work in."""
        folder = self._base_folder(record)
        for each in _lineage(record):
            folder = self._folder_below(folder, each)
        return folder

    async def _open_worktrees(self, record: TaskRecord, agent: Agent[Any]) -> None:
        """Open the worktree of a task, and those above it that it works in."""
        await trio.lowlevel.checkpoint()
        folder = self._base_folder(record)
        for each in _lineage(record):
            owner = agent if each is record else self._registry.agent_of(each)
            # A task above may have no turn now, or none yet since a restart.
            is_due = each is record or each.id not in self._worktree_by_task
            if owner.workspace == "worktree" and is_due:
                opened = await self._worktrees.open(folder, name=each.id)
                self._worktree_by_task[each.id] = opened
            folder = self._folder_below(folder, each)

    def _base_folder(self, record: TaskRecord) -> Path:
        # Of the message that it works for: the session may have received another since.
        return self._settings.workspace / record.context.get("cwd", "")

    def _folder_below(self, above: Path, record: TaskRecord) -> Path:
        if record.id in self._worktree_by_task:
            return self._worktree_by_task[record.id].workspace
        own = self._registry.agent_of(record).workspace
        # A copy of an agent works where that agent does.
        return above / own if isinstance(own, Path) and not record.is_copy else above


def _ends_with_turn(record: TaskRecord, origin: Origin) -> bool:
    """Return whether the background commands of a task end with this turn of it."""
    # A task never has another turn; a session has, if it can be notified.
    return not record.is_root or origin.capability is DeliveryCapability.NONE


def _listed(commands: Sequence[Command]) -> str:
    """Return the commands that were ended, shortly."""
    first = one_line(commands[0].command)
    more = f" and {len(commands) - 1} more" if len(commands) > 1 else ""
    return f"the background command `{first}`{more}"


def _lineage(record: TaskRecord) -> list[TaskRecord]:
    """Return a task and all above it: the root first, the task last."""
    lineage = [record]
    while (parent := lineage[-1].parent) is not None:
        lineage.append(parent)
    return lineage[::-1]


def resolve_workspace_settings(
    environ: Mapping[str, str], workspace: str | os.PathLike[str] | None, state: Path
) -> WorkspaceSettings:
    """Return the settings with absolute paths: a process may change its folder."""
    return WorkspaceSettings(
        workspace=Path.cwd() if workspace is None else Path(workspace).absolute(),
        environ=environ,
        state=state,
    )
