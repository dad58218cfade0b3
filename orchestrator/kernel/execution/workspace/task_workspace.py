"""The workspace of a task, and the context of its tools: folder, environment, background commands.

The workspace is closed before the task is settled: its background commands end, and its git
worktree is removed if it contains no work.
"""

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio

from orchestrator.agents import Agent, AgentError, Sandbox, ToolError
from orchestrator.agents.redaction.command_environment import only_named
from orchestrator.agents.sandbox.backend import SandboxBackend, TaskSandbox
from orchestrator.agents.sandbox.closed_home import home_access
from orchestrator.agents.sandbox.network.requests import NetworkRequest
from orchestrator.agents.sandbox.no_commands import NO_COMMANDS
from orchestrator.agents.sandbox.sensitive_paths import startup_files_in
from orchestrator.agents.tools.context import ToolContext, use_tool_context
from orchestrator.agents.tools.files.own_code import own_code_in, search_last
from orchestrator.agents.tools.files.seen_files import FileRegistry, SeenFiles
from orchestrator.agents.tools.files.workspace import resolve_folder
from orchestrator.delegation import DeliveryCapability, Origin, TaskId, TaskRecord
from orchestrator.delegation.events import NetworkRequested, WorkspaceOpened
from orchestrator.delegation.session_context import session_environ
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.executor import TaskHost, WorkOrder
from orchestrator.kernel.execution.program_sandbox import ProgramSandbox
from orchestrator.kernel.execution.workspace import background_commands
from orchestrator.kernel.execution.workspace.command import ended_note
from orchestrator.kernel.execution.workspace.settings import WorkspaceSettings, elsewhere
from orchestrator.kernel.execution.workspace.worktrees import Worktree, Worktrees
from orchestrator.kernel.journal.bookkeeper import Bookkeeper

CLOSE_SECONDS: Final = 30
"""How long all that a task has opened may take to close; each part takes far less."""
TASK_VARIABLE: Final = "ORCHESTRATOR_TASK"
"""Has the path of the task that started a process."""


class WorkspaceError(AgentError):
    """The workspace of a task is on another machine, or leads out of its parent's workspace."""


class _Folder(msgspec.Struct, frozen=True, gc=False):
    """A folder, and the one above it that a person has named: nothing between is a link."""

    path: Path
    top: Path


class TaskWorkspaces:
    """Opens and closes the workspaces of tasks."""

    def __init__(
        self,
        book: Bookkeeper,
        registry: AgentRegistry,
        background: background_commands.BackgroundRunner,
        settings: WorkspaceSettings,
    ) -> None:
        self._book = book
        self._registry = registry
        self._background = background
        self._settings = settings
        top = settings.workspace.resolve()
        self._top = _Folder(top, top)
        self._files = FileRegistry()
        self._worktrees = Worktrees(
            settings.state / "worktrees",
            settings.environ,
            ProgramSandbox(choice=settings.sandbox, hidden=settings.hidden),
        )
        self._worktree_by_task: dict[TaskId, Worktree] = {}
        self._open_folders: dict[TaskId, _Folder] = {}
        self._notes: dict[TaskId, str] = {}

    @asynccontextmanager
    async def open_for(self, order: WorkOrder, host: TaskHost) -> AsyncGenerator[None]:
        """Open the workspace of a task, and the context of its tools, for the block."""
        record, agent, origin = order.task, order.agent, order.origin
        session = self._book.records.sessions[record.session]
        has_files = agent.workspace is not None or agent.plan.reads_notes
        touches = has_files or any(tool.machine is not None for tool in agent.tools)
        if touches and (why := elsewhere(session, self._settings.host)):
            raise WorkspaceError(f"{record.path} cannot work here: {why}")
        await self._open_worktrees(record, agent)
        folder = self._folder_of(record)
        backend: SandboxBackend = NO_COMMANDS
        if touches and not (self._settings.host.is_only or session.workspace_host):
            # From here on the session goes on where its files are.
            self._book.post(WorkspaceOpened(record.id, self._settings.host.files, str(folder.path)))
        if any(tool.machine is not None for tool in agent.tools):
            backend = await self._settings.sandbox.backend()
        context = ToolContext(
            workspace=folder.path,
            workspace_top=folder.top,
            make_sandbox=partial(self._sandbox_of, record, agent, backend),
            environ={
                **self._environ_of(record, agent),
                **session_environ(),
                TASK_VARIABLE: record.path,
            },
            seen_files=SeenFiles(self._files, record.path),
            processes=background_commands.TaskCommands(
                self._background, record, can_notify=not _ends_with_turn(record, origin)
            ),
            redact=self._book.redactor.redact,
        )
        if backend is not NO_COMMANDS:
            search_last(context.sandbox.writable)
        has_ended = False
        self._open_folders[record.id] = folder
        try:
            with use_tool_context(context):
                yield
            has_ended = True
        except Exception:
            has_ended = True
            raise
        finally:
            del self._open_folders[record.id]
            # Most tasks have opened nothing that must be closed.
            if record.id in self._worktree_by_task or self._background.commands_of(record.id):
                # Its waits are shielded and bounded.
                await self._close(order, host, has_ended=has_ended)  # noqa: ASYNC102

    async def _close(self, order: WorkOrder, host: TaskHost, *, has_ended: bool) -> None:
        """End the background commands of a task, and close its worktree."""
        record = order.task
        is_over = (
            has_ended or host.is_cancelled or self._book.records.settles_on_teardown(record.id)
        )
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            if _ends_with_turn(record, order.origin):
                left = await self._background.end_commands_of(
                    record.id, background_commands.TASK_ENDED
                )
                if left and has_ended:
                    self._note(record, ended_note(left))
            await self._close_worktree(record, is_over=is_over)

    def _note(self, record: TaskRecord, note: str) -> None:
        """Add a sentence to the note about the workspace of a task."""
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
        elif not all(it.finished.is_set() for it in self._background.commands_of(record.id)):
            self._note(record, f"Its commands still run in {path}")
        elif note := await self._worktrees.close(self._worktree_by_task.pop(record.id)):
            self._note(record, f"{note[0].upper()}{note[1:]}")

    def tasks_with_worktree_below(self, task: TaskId) -> list[TaskRecord]:
        """Return the unsettled tasks below a task that have a worktree."""
        if not self._worktree_by_task:
            return []
        below = self._book.records.unsettled_below(task)
        return [record for record in below if record.id in self._worktree_by_task]

    async def close_worktrees(self, records: Iterable[TaskRecord]) -> None:
        """Close the worktrees of tasks that will not be resumed."""
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await trio.lowlevel.checkpoint()
            for record in records:
                await self._close_worktree(record, is_over=True)

    def pop_note(self, task: TaskId) -> str:
        """Return the note about the workspace of a settled task, and forget it."""
        return self._notes.pop(task, "")

    def workspace_of(self, record: TaskRecord) -> Path:
        """Return the folder that the tools of a task work in."""
        # While a task runs, its tools use the folder that was opened, even if its path now leads
        # elsewhere.
        opened = self._open_folders.get(record.id)
        return (self._folder_of(record) if opened is None else opened).path

    def named_folder_of(self, record: TaskRecord) -> Path:
        """Return the workspace path of a task on another machine, without looking at the files."""
        folder = self._settings.workspace
        for each in _lineage(record):
            own = self._registry.agent_of(each).workspace
            if isinstance(own, Path) and not each.is_copy:
                folder /= own
        return folder

    def _folder_of(self, record: TaskRecord) -> _Folder:
        folder = self._base_folder(record)
        for each in _lineage(record):
            folder = self._folder_below(folder, each)
        return folder

    def _sandbox_of(
        self, record: TaskRecord, agent: Agent[Any], backend: SandboxBackend
    ) -> TaskSandbox:
        """Return the sandbox that a task and all tasks above it allow together."""
        allowed, folder = self._allowed_by(record, agent)
        checkout = self._checkout_of(record)
        writable = (folder.path, *checkout, *allowed.write)
        home = Path.home()
        access = home_access(home, allowed, writable)
        # Their scripts are run by commands.
        skills = [it.folder for it in agent.skills if not isinstance(it, str)]
        return TaskSandbox(
            backend=backend,
            sandbox=allowed,
            workspace=folder.path,
            checkout=checkout,
            hidden=(*self._settings.hidden, *access.hidden),
            visible=(*access.visible, *skills),
            links=access.links,
            protected=(*own_code_in(writable), *startup_files_in(home)),
            home=Path(os.path.realpath(home)),
            on_request=self._request_recorder(record, allowed),
        )

    def _environ_of(self, record: TaskRecord, agent: Agent[Any]) -> Mapping[str, str]:
        """Return the variables that a task and all above it allow, without secrets."""
        environ = self._settings.environ
        # Most have no sandbox: no folder is looked at for them.
        if all(it.sandbox is None for it in self._owners(record, agent)):
            return environ
        allowed, _ = self._allowed_by(record, agent)
        return _environ_within(environ, allowed)

    def _owners(self, record: TaskRecord, agent: Agent[Any]) -> list[Agent[Any]]:
        """Return the agents of a task and of all tasks above it, from the root down."""
        return [*map(self._registry.agent_of, _lineage(record)[:-1]), agent]

    def _allowed_by(self, record: TaskRecord, agent: Agent[Any]) -> "tuple[Sandbox, _Folder]":
        """Return the sandbox that all agents from the root to a task allow, and its folder."""
        allowed = Sandbox()
        folder = self._base_folder(record)
        owners = self._owners(record, agent)
        for each, owner in zip(_lineage(record), owners, strict=True):
            above, folder = folder, self._folder_below(folder, each)
            if owner.sandbox is None:
                continue
            own = owner.sandbox.at(folder.path)
            if each.parent is None:
                allowed = own
                continue
            # A child may write in the workspace of its parent, if it says so.
            writable = (*allowed.write, above.path)
            allowed = own.within(attrs.evolve(allowed, write=writable))
        return allowed, folder

    def _checkout_of(self, record: TaskRecord) -> tuple[Path, ...]:
        """Return the folders of the worktree that a task works in, if it works in one."""
        for each in reversed(_lineage(record)):
            if worktree := self._worktree_by_task.get(each.id):
                # Commits are made in the repository, which all worktrees share.
                # The paths are real: a link that a command puts in place of one is not followed.
                return (worktree.path, worktree.repository, worktree.git_folder)
            if self._registry.agent_of(each).workspace is not None:
                break
        return ()

    def _request_recorder(
        self, record: TaskRecord, allowed: Sandbox
    ) -> Callable[[NetworkRequest], None]:
        """Return a function that posts the requests of a task's commands, if that is asked for."""

        def post(request: NetworkRequest) -> None:
            # A command in the background may end after its session was closed here.
            is_open = not (self._book.closed or self._book.is_broken)
            if allowed.record_network and is_open and record.id in self._book.records.tasks:
                self._book.post(
                    NetworkRequested(
                        record.id, request.target, request.allowed, request.sent, request.received
                    )
                )

        return post

    async def _open_worktrees(  # noqa: ASYNC910 (the model of the turn checkpoints)
        self, record: TaskRecord, agent: Agent[Any]
    ) -> None:
        """Open the worktree of a task, and the worktrees above it that it works in."""
        owners = self._owners(record, agent)
        if all(owner.workspace != "worktree" for owner in owners):
            return  # noqa: ASYNC910 (the model of the turn checkpoints)
        folder = self._base_folder(record)
        for each, owner in zip(_lineage(record), owners, strict=True):
            # A task above may have no turn now, or no turn yet since a restart.
            is_due = each is record or each.id not in self._worktree_by_task
            if owner.workspace == "worktree" and is_due:
                opened = await self._worktrees.open(folder.path, name=each.id)
                self._worktree_by_task[each.id] = opened
            folder = self._folder_below(folder, each)

    def _base_folder(self, record: TaskRecord) -> _Folder:
        # The folder of the message that the task works for: the session may have received another
        # since.
        cwd = record.context.get("cwd", "")
        return self._inside(self._top, Path(cwd), "the session") if cwd else self._top

    def _folder_below(self, above: _Folder, record: TaskRecord) -> _Folder:
        if record.id in self._worktree_by_task:
            worktree = self._worktree_by_task[record.id]
            top = _Folder(worktree.path, worktree.path)
            inside = worktree.workspace.relative_to(worktree.path)
            return self._inside(top, inside, "the worktree")
        own = self._registry.agent_of(record).workspace
        # A copy of an agent works where that agent does.
        if not isinstance(own, Path) or record.is_copy:
            return above
        return self._inside(above, own, f"agent {record.agent!r}")

    def _inside(self, above: _Folder, path: Path, owner: str) -> _Folder:
        """Return a folder in another one; only an absolute path may name one outside of it.

        An agent may have made a link of a folder on the way, so this walks as file tools do.
        """
        if path.is_absolute():
            for top in (self._settings.workspace, self._top.path):
                if path.is_relative_to(top):
                    above = self._top
                    path = path.relative_to(top)
                    break
            else:
                # The author of the program has named it, and all that leads to it.
                real = path.resolve()
                return _Folder(real, real)
        try:
            found = resolve_folder(above.path, top=above.top, path=str(path))
        except ToolError as exc:
            raise WorkspaceError(f"the workspace of {owner}: {exc}") from exc
        return _Folder(found, above.top)


def _environ_within(environ: Mapping[str, str], sandbox: Sandbox) -> Mapping[str, str]:
    if sandbox.environment is None:
        return environ
    return only_named(environ, sandbox.environment)


def _ends_with_turn(record: TaskRecord, origin: Origin) -> bool:
    """Return whether the background commands of a task end with this turn of it."""
    # A task never has another turn; a session has, if it can be notified.
    return not record.is_root or origin.capability is DeliveryCapability.NONE


def _lineage(record: TaskRecord) -> list[TaskRecord]:
    """Return a task and all above it: the root first, the task last."""
    lineage = [record]
    while (parent := lineage[-1].parent) is not None:
        lineage.append(parent)
    return lineage[::-1]
