"""The context of the calls that a worker runs: its own workspace, sandbox and environment.

It matches the context of a local call as far as the machine goes: the agents on the path down to
the task decide the rights of its tools. A call that is lent by itself ends with all its processes.
The calls of a turn share one context, and its background commands run until the turn ends.
"""

import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs
import trio

from orchestrator.agents import Agent, CallKey, Sandbox, ToolCall, ToolError, raising_one_error
from orchestrator.agents.approval import Verdict, default_rule, inherited_rules, strictest_rule
from orchestrator.agents.approved_call import ApprovedCall
from orchestrator.agents.redaction.command_environment import only_named
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.sandbox.backend import SandboxBackend, TaskSandbox
from orchestrator.agents.sandbox.closed_home import home_access
from orchestrator.agents.sandbox.no_commands import NO_COMMANDS
from orchestrator.agents.sandbox.sensitive_paths import startup_files_in
from orchestrator.agents.tools.context import ToolContext, use_tool_context
from orchestrator.agents.tools.current_call import set_current_call
from orchestrator.agents.tools.files.own_code import own_code_in, search_last
from orchestrator.agents.tools.files.seen_files import FileRegistry, SeenFiles
from orchestrator.agents.tools.files.workspace import resolve_folder
from orchestrator.agents.tools.terminal.background import BackgroundCommand, BackgroundCommands
from orchestrator.delegation.session_context import bind_session, session_environ
from orchestrator.ports.execution import CLOSE_SECONDS, TASK_VARIABLE, WorkspaceSettings, subject_of
from orchestrator.products.cluster.worker.commands import TurnCommands
from orchestrator.products.cluster.worker.wire import TurnWork, Work

REMEMBERED_TASKS: Final = 256
"""Of how many tasks a worker remembers the files that they have read."""
NO_BACKGROUND: Final = (
    "a call that is lent by itself runs no commands in the background: it ends with all that it"
    " began. The tools of an agent with a place may"
)


class WorkerContexts:
    """Opens the contexts of calls on one worker."""

    def __init__(self, settings: WorkspaceSettings, redactor: Redactor) -> None:
        self._settings = settings
        self._redactor = redactor
        self._files = FileRegistry()
        self._seen: OrderedDict[tuple[str, str], SeenFiles] = OrderedDict()

    @asynccontextmanager
    async def open_for(
        self, work: Work, call: ToolCall, lineage: Sequence[Agent[Any]]
    ) -> AsyncGenerator[None]:
        """Set the context of a call that is lent by itself, for the block; raise `ToolError` if the
        machine of this worker forbids what was approved elsewhere.
        """
        opened = self._open(work, lineage, self._seen_by(work), NoBackgroundCommands())
        async with opened as sandbox:
            context = TurnContext(lineage, sandbox, walled=work.walled)
            context.begin_call(call, CallKey(work.key), work.seconds)
            yield

    @asynccontextmanager
    async def open_turn(
        self, work: TurnWork, lineage: Sequence[Agent[Any]]
    ) -> AsyncGenerator["TurnContext"]:
        """Set the context of all calls of a turn, for the block; then end its commands."""
        with raising_one_error():
            # This nursery owns the background commands of the turn.
            async with trio.open_nursery() as nursery:
                commands = TurnCommands(nursery, work.path, work.processes)
                seen = SeenFiles(self._files, work.path)
                async with self._open(work, lineage, seen, commands) as sandbox:
                    context = TurnContext(lineage, sandbox, walled=False)
                    try:
                        yield context
                    finally:
                        with trio.move_on_after(CLOSE_SECONDS, shield=True):
                            context.note = await commands.close()
                nursery.cancel_scope.cancel(reason="the turn has ended")

    @asynccontextmanager
    async def _open(
        self,
        work: Work | TurnWork,
        lineage: Sequence[Agent[Any]],
        seen_files: SeenFiles,
        processes: BackgroundCommands,
    ) -> AsyncGenerator[TaskSandbox]:
        agent = lineage[-1]
        folder, sandbox = _allowed(self._settings.workspace.resolve(), lineage)
        backend: SandboxBackend = NO_COMMANDS
        if any(tool.machine is not None for tool in agent.tools):
            backend = await self._settings.sandbox.backend()
        task_sandbox = _task_sandbox(folder, sandbox, backend, self._settings.hidden)
        if backend is not NO_COMMANDS:
            search_last(task_sandbox.writable)
        # The folder of the client is one of another machine.
        strings: Any = {name: it for name, it in work.context.items() if name != "cwd"}
        with bind_session(
            **{**strings, "session_id": work.session}, async_delivery=work.async_delivery
        ):
            context = ToolContext(
                workspace=folder,
                workspace_top=self._settings.workspace.resolve(),
                make_sandbox=lambda: task_sandbox,
                environ={
                    **_environ_within(self._settings.environ, sandbox),
                    **session_environ(),
                    TASK_VARIABLE: work.path,
                },
                seen_files=seen_files,
                processes=processes,
                redact=self._redactor.redact,
            )
            with use_tool_context(context):
                yield task_sandbox

    def _seen_by(self, work: Work) -> SeenFiles:
        key = work.session, work.path
        if key not in self._seen:
            self._seen[key] = SeenFiles(self._files, work.path)
        self._seen.move_to_end(key)
        if len(self._seen) > REMEMBERED_TASKS:
            self._seen.popitem(last=False)
        return self._seen[key]


class TurnContext:
    """The state that the calls of a turn share on this machine."""

    def __init__(
        self, lineage: Sequence[Agent[Any]], sandbox: TaskSandbox, *, walled: bool
    ) -> None:
        """Begin with no call; `walled` if a wall at the writer spared the question to a person."""
        self._lineage = lineage
        self._sandbox = sandbox
        self._walled = walled
        self.note = ""
        """A sentence about the processes it left running, once it is closed."""

    def begin_call(self, call: ToolCall, key: CallKey, seconds: float | None) -> None:
        """The leftovers, once it is closed."""
        approved = _approved(call, self._lineage, self._sandbox, walled=self._walled)
        set_current_call(key, approved, seconds)


def _allowed(top: Path, lineage: Sequence[Agent[Any]]) -> tuple[Path, Sandbox]:
    """Return the folder of the last agent, and what it and all above it allow, together."""
    folder, allowed = top, Sandbox()
    above: Agent[Any] | None = None
    for agent in lineage:
        outer = folder
        own = agent.workspace
        # A copy works where its agent does; a worktree is only where the repository is.
        is_copy = above is not None and agent.name == above.name
        if isinstance(own, Path) and not is_copy:
            folder = _inside(folder, top, own)
        if agent.sandbox is not None:
            here = agent.sandbox.at(folder)
            if above is None:
                allowed = here
            else:
                writable = (*allowed.write, outer)
                allowed = here.within(attrs.evolve(allowed, write=writable))
        above = agent
    return folder, allowed


def _inside(folder: Path, top: Path, path: Path) -> Path:
    if path.is_absolute():
        return path.resolve()  # the author of the program has named it
    return resolve_folder(folder, top=top, path=str(path))


def _task_sandbox(
    folder: Path, allowed: Sandbox, backend: SandboxBackend, hidden: Sequence[Path]
) -> TaskSandbox:
    home = Path.home()
    access = home_access(home, allowed, (folder, *allowed.write))
    return TaskSandbox(
        backend=backend,
        sandbox=allowed,
        workspace=folder,
        checkout=(),
        hidden=(*hidden, *access.hidden),
        visible=access.visible,
        links=access.links,
        protected=(*own_code_in((folder, *allowed.write)), *startup_files_in(home)),
        home=Path(os.path.realpath(home)),
    )


def _environ_within(environ: Mapping[str, str], sandbox: Sandbox) -> Mapping[str, str]:
    if sandbox.environment is None:
        return environ
    return only_named(environ, sandbox.environment)


def _approved(
    call: ToolCall, lineage: Sequence[Agent[Any]], sandbox: TaskSandbox, *, walled: bool
) -> ApprovedCall | None:
    """Return what was approved, in terms of this machine's files."""
    inherited = [inherited_rules(agent.approve) for agent in reversed(lineage[:-1])]
    policies = [rules for rules in (lineage[-1].approve, *inherited) if rules]
    if not policies:
        tool = next(it for it in lineage[-1].tools if it.name == call.name)
        use = tool.machine_use(call)
        default = default_rule(call.name, use, is_wall=sandbox.is_wall)
        if default is None:
            return None
        if walled and not sandbox.is_wall and default.verdict is not Verdict.ALLOW:
            raise ToolError(
                f"{call.name} was not run: no sandbox holds the commands of this worker, and no"
                " person was asked, because one does where the run is"
            )
        policies = [(default,)]
    subject = subject_of(call, sandbox.workspace)
    rule = strictest_rule(policies, subject)
    if rule is not None and rule.verdict is Verdict.DENY:
        raise ToolError(
            f"{call.name} was not run: on the worker its path leads to a place that a rule denies"
        )
    return ApprovedCall(subject=subject, policies=policies)


class NoBackgroundCommands:
    """Refuses background commands (`BackgroundCommands`)."""

    can_notify = False

    async def start(
        self, command: str, *, workdir: Path, notify: bool, watch: Sequence[str]
    ) -> NoReturn:
        raise ToolError(NO_BACKGROUND)

    def known(self) -> Sequence[BackgroundCommand]:
        return ()

    async def wait(self, command: BackgroundCommand, seconds: float) -> NoReturn:
        raise ToolError(NO_BACKGROUND)

    async def end(self, command: BackgroundCommand) -> NoReturn:
        raise ToolError(NO_BACKGROUND)

    async def write(self, command: BackgroundCommand, text: str) -> NoReturn:
        raise ToolError(NO_BACKGROUND)

    async def close_input(self, command: BackgroundCommand) -> NoReturn:
        raise ToolError(NO_BACKGROUND)

    def unread(
        self, command: BackgroundCommand, *, hold_back: int, context: int
    ) -> tuple[str, str]:
        raise ToolError(NO_BACKGROUND)

    def notices_of(self, command: BackgroundCommand) -> Sequence[int]:
        return ()
