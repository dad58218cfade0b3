"""`orchestrator chat`: talk to an agent in the terminal."""

import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import IO, Any, Final, TypeAlias, cast

import attrs

from orchestrator.agents import Agent
from orchestrator.agents.sandbox.choice import SandboxName
from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.chat.piped_chat import PipedChat
from orchestrator.cli.chat.slash_commands import WORDS, ChangeModel, SlashCommands
from orchestrator.cli.demo_team import chat_agent
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import (
    AcceptChangesOption,
    JournalOption,
    ModelOption,
    ProgressOption,
    on_change_of,
    with_model,
)
from orchestrator.cli.progress.display import open_display
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.cli.terminal.stdin_lines import StdinLines
from orchestrator.cli.terminal.style import DUMB_TERMINALS, Progress
from orchestrator.cli.trust import TrustOption
from orchestrator.composition import open_orchestrator
from orchestrator.delegation import Status
from orchestrator.ports.files import CHAT_HISTORY, state_folder
from orchestrator.ports.sessions import Orchestrator, Session
from orchestrator.ports.settings import Machine

RUNNING_STATUSES: Final = frozenset({Status.RUNNING, Status.QUIET, Status.WAITING})
SCRIPTED_HINT: Final = "the model is scripted; for a real one: orchestrator chat FILE"


def chat(
    file: str | None = None,
    /,
    *,
    model: ModelOption = None,
    session: str | None = None,
    progress: ProgressOption = "none",
    journal: JournalOption = None,
    sandbox: SandboxOption = None,
    trust: TrustOption = False,
    accept_changes: AcceptChangesOption = False,
) -> int:
    """Talk to an agent. Results of its background tasks arrive while you talk.

    In a terminal, /help lists the commands, Ctrl-C stops an answer and Ctrl-D leaves.

    Args:
        file: The file that defines the agent: a Python file, a folder of agents (*.md), or a
            team.yaml; or FILE:NAME. Without a file, a scripted agent answers.
        session: The id of an earlier chat, to continue it.
    """
    if progress == "live":
        raise CommandError(
            "a chat has no live picture, for you type there; in another terminal:"
            " orchestrator watch"
        )
    if model is not None and file is None:
        raise CommandError("--model needs FILE: without one, a scripted agent answers")
    agent = chat_agent(seconds=0.4) if file is None else load_agent(file, model=model, trust=trust)
    options = _Options(
        file=file,
        journal=journal,
        progress=progress,
        sandbox=sandbox,
        session=session,
        accept_changes=accept_changes,
    )
    return run_stoppable(lambda stop: _chat(with_model(agent, model), stop, options))


@attrs.frozen(kw_only=True)
class _Options:
    file: str | None
    journal: str | None
    progress: Progress
    sandbox: SandboxName | None
    session: str | None
    accept_changes: bool

    def command(self, session: str) -> str:
        """Return the command that continues this chat later."""
        file = [] if self.file is None else [self.file]
        return command("chat", *file, "--session", session, journal=self.journal)


async def _chat(agent: Agent[Any], stop: Stop, options: _Options) -> None:
    """Chat until the input ends or a signal comes."""
    choice = await choose_sandbox(options.sandbox, [agent])
    is_typed = options.progress != "json" and _is_interactive()
    console, open_chat = (_typed if is_typed else _piped)(options)
    async with (
        open_display(options.progress, console, options.journal) as display,
        open_orchestrator(
            options.journal,
            session=options.session,
            machine=Machine(sandbox=choice),
            on_change=on_change_of(accept_changes=options.accept_changes),
        ) as orchestrator,
        display.open_view(orchestrator, ask_approvals=False),
    ):
        stop.set_orchestrator(orchestrator)
        talk = _Talk(orchestrator, console, stop, options)
        with stop.work_scope:
            async with open_chat() as converse:
                await talk.run(agent, converse)
        running = talk.running_count
        tasks = "1 task goes on" if running == 1 else f"{running} tasks go on"
        left = f"{tasks} when you come back" if running else "to come back"
        console.print()
        if talk.session is not None:
            print_hint(console, f"{left}: {options.command(talk.session.id)}")


class _Talk:
    """A session, with one model after another."""

    def __init__(
        self, orchestrator: Orchestrator, console: Terminal, stop: Stop, options: _Options
    ) -> None:
        self._orchestrator = orchestrator
        self._console = console
        self._stop = stop
        self._options = options
        self.session: Session | None = None

    async def run(self, agent: Agent[Any], converse: "Converse") -> None:
        """Talk until the user leaves."""
        id_ = self._options.session
        while True:
            async with self._orchestrator.open_session(agent, session=id_) as session:
                if self.session is None:
                    if self._options.file is None:
                        print_hint(self._console, SCRIPTED_HINT)
                    print_hint(self._console, f"session {session.id}; Ctrl-D ends it")
                self.session, id_ = session, session.id
                commands = SlashCommands(
                    self._orchestrator,
                    session,
                    self._console,
                    agent=agent,
                    journal=self._options.journal,
                )
                changed = await converse(self._orchestrator, session, commands, self._stop)
            if changed is None:
                return
            agent = changed.agent

    @property
    def running_count(self) -> int:
        """How many tasks of the session run."""
        if self.session is None:
            return 0
        tree = self.session.tree
        nodes = [tree[task] for task in tree if task != tree.root]
        return sum(node.status in RUNNING_STATUSES for node in nodes)


Converse: TypeAlias = Callable[
    [Orchestrator, Session, SlashCommands, Stop], Awaitable[ChangeModel | None]
]
OpenChat: TypeAlias = Callable[[], AbstractAsyncContextManager[Converse]]


def _piped(options: _Options) -> tuple[Terminal, OpenChat]:
    """Return a chat whose input is a pipe, a file, or a terminal that cannot be drawn on."""
    console = Terminal(stderr=options.progress == "json")

    @asynccontextmanager
    async def open_chat() -> AsyncGenerator[Converse]:
        lines = StdinLines()

        async def converse(
            _: Orchestrator, session: Session, commands: SlashCommands, stop: Stop
        ) -> ChangeModel | None:
            return await PipedChat(session, commands, console, stop, lines).run()

        yield converse

    return console, open_chat


def _typed(options: _Options) -> tuple[Terminal, OpenChat]:
    """Return a chat in a terminal."""
    # Imported late: the library of the line editor is needed nowhere else.
    from orchestrator.cli.chat.line_editor import ChatOutput, open_line_editor
    from orchestrator.cli.chat.terminal_chat import TerminalChat

    output = ChatOutput()
    console = Terminal(file=cast("IO[str]", output))

    @asynccontextmanager
    async def open_chat() -> AsyncGenerator[Converse]:
        history = state_folder(os.environ) / CHAT_HISTORY
        async with open_line_editor(output, history, WORDS) as editor:

            async def converse(
                orchestrator: Orchestrator, session: Session, commands: SlashCommands, stop: Stop
            ) -> ChangeModel | None:
                chat = TerminalChat(
                    orchestrator,
                    session,
                    commands,
                    editor,
                    console,
                    stop=stop,
                    shows_tasks=options.progress == "none",
                )
                return await chat.run()

            yield converse

    return console, open_chat


def _is_interactive() -> bool:
    return (
        sys.stdin is not None  # it was closed: `<&-`
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and os.environ.get("TERM", "") not in DUMB_TERMINALS
    )
