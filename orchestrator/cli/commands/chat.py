"""`orchestrator chat`: talk to an agent in the terminal.

Replies to later notices are printed as they come.
"""

from typing import Any, Final, NoReturn

import trio
from rich.text import Text

from agents import Agent, raising_one_error
from agents.sandbox.detection import SandboxName
from delegation import Mode, Reply, Status, Tree, printable
from delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.demo_team import chat_agent
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import (
    JournalOption,
    ModelOption,
    ProgressOption,
    with_model,
)
from orchestrator.cli.progress.display import open_display
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.approvals import (
    ANSWER_WORDS,
    TOO_LATE,
    UNATTENDED_DENIAL,
    parse_answer,
    show_question,
    wait_question_closed,
)
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.cli.terminal.stdin_lines import StdinLines
from orchestrator.cli.terminal.style import Progress
from orchestrator.doors.session import Session
from orchestrator.errors import UnknownIdError
from orchestrator.runtime import Orchestrator, open_orchestrator

COMMANDS: Final = "/y, /t, /s and /n answer what needs your approval."
RUNNING_STATUSES: Final = frozenset({Status.RUNNING, Status.QUIET, Status.WAITING})


def chat(
    file: str | None = None,
    /,
    *,
    model: ModelOption = None,
    session: str | None = None,
    progress: ProgressOption = "none",
    journal: JournalOption = None,
    sandbox: SandboxOption = None,
) -> int:
    """Talk to an agent. Results of its background tasks arrive while you talk.

    Args:
        file: What defines the agent: a Python file, a folder of agents (*.md), or a team.yaml; or
            FILE:NAME. Without one, a scripted agent answers.
        session: The id of an earlier chat, to go on with it.
    """
    if progress == "live":
        raise CommandError(
            "a chat has no live picture, for you type there; in another terminal:"
            " orchestrator watch"
        )
    if model is not None and file is None:
        raise CommandError("--model needs FILE: without one, a scripted agent answers")
    agent = chat_agent(seconds=0.4) if file is None else load_agent(file, model=model)
    agent = with_model(agent, model)
    return run_stoppable(
        lambda stop: _chat(
            agent,
            Terminal(stderr=progress == "json"),
            stop,
            file=file,
            session=session,
            journal=journal,
            progress=progress,
            sandbox=sandbox,
        )
    )


async def _chat(
    agent: Agent[Any],
    console: Terminal,
    stop: Stop,
    *,
    file: str | None,
    session: str | None,
    journal: str | None,
    progress: Progress,
    sandbox: SandboxName | None,
) -> None:
    """Chat until the input ends or a signal comes."""
    choice = await choose_sandbox(sandbox, [agent])
    async with (
        open_display(progress, console, journal) as display,
        open_orchestrator(journal, session=session, sandbox=choice) as orchestrator,
        display.open_view(orchestrator, ask_approvals=False),
        orchestrator.open_session(agent, session=session) as opened,
    ):
        stop.set_orchestrator(orchestrator)
        if file is None:
            print_hint(
                console, "the model is scripted; for a real one: orchestrator chat FILE"
            )
        print_hint(console, f"session {opened.id}; Ctrl-D ends it")
        questions = ApprovalPrompts(orchestrator, opened, console)
        with stop.work_scope, raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_print_replies_forever, opened, console)
                nursery.start_soon(questions.show_all)
                await _read_messages(opened, questions, console, stop)
                await stop.wait_drained()
                nursery.cancel_scope.cancel(reason="the user has left")
        running = _running_count(opened.tree)
        left = (
            f"{running} tasks go on when you come back" if running else "to come back"
        )
        arguments = ["chat", *([] if file is None else [file]), "--session", opened.id]
        console.print()
        print_hint(console, f"{left}: {command(*arguments, journal=journal)}")


def _running_count(tree: Tree) -> int:
    nodes = [tree[task] for task in tree.graph if task != tree.root]
    return sum(node["status"] in RUNNING_STATUSES for node in nodes)


class ApprovalPrompts:
    """Approval questions of a chat: one at a time, so that an answer fits the one that is shown."""

    def __init__(
        self, orchestrator: Orchestrator, session: Session, console: Terminal
    ) -> None:
        self._orchestrator = orchestrator
        self._session = session
        self._console = console
        self._shown: ApprovalQuestion | None = None

    async def show_all(self) -> None:
        """Show each question when the one before it is closed, until the session closes."""
        async for ask in self._session.asks:
            self._console.print()
            show_question(ask, self._console, slash="/")
            self._shown = ask
            await wait_question_closed(self._orchestrator, ask)
            self._shown = None

    def is_command(self, line: str) -> bool:
        """Return whether a line is a command, and not a message to the agent."""
        is_answer = self._shown is not None and line.strip().lower() in ANSWER_WORDS
        return line.startswith("/") or is_answer

    async def handle_command(self, line: str) -> None:
        """Answer the question that is shown."""
        answer = parse_answer(line)
        await trio.lowlevel.checkpoint()
        if answer is None:
            print_hint(
                self._console, f"There is no {line.split(maxsplit=1)[0]}. {COMMANDS}"
            )
        elif self._shown is None:
            print_hint(self._console, "Nothing waits for an approval.")
        else:
            await self._answer(self._shown, answer)

    async def handle_commands_forever(self, lines: StdinLines) -> NoReturn:
        """Handle commands, until cancelled. After the end of input, deny what a turn waits for."""
        while (line := await lines.read_command(self.is_command)) is not None:
            await self.handle_command(line)
        seen = 0
        while True:
            for ask in self._session.open_asks:
                if self._is_in_turn(ask):
                    await self._answer(ask, UNATTENDED_DENIAL)
            seen = await self._orchestrator.wait_changed(after=seen)

    def _is_in_turn(self, ask: ApprovalQuestion) -> bool:
        """Return whether the turn waits for the answer; a detached task can wait longer."""
        tree = self._session.tree
        node = tree[ask.task]
        while node["mode"] == Mode.JOINED:
            node = tree[node["parent"]]
        is_root: bool = node["mode"] == Mode.ROOT
        return is_root

    async def _answer(
        self, ask: ApprovalQuestion, answer: tuple[ApprovalVerdict, str]
    ) -> None:
        await trio.lowlevel.checkpoint()
        try:
            await self._session.answer(
                ask.id, answer[0], reason=answer[1], by="the user"
            )
        except UnknownIdError:
            print_hint(self._console, TOO_LATE)


async def _read_messages(
    session: Session, questions: ApprovalPrompts, console: Terminal, stop: Stop
) -> None:
    lines = StdinLines()
    while True:
        console.print("> ", end="")
        line: str | None = None
        with stop.end_wait_on_signal():
            line = await lines.read()
        if line is None or stop.is_requested:
            return
        if questions.is_command(line):
            await questions.handle_command(line)
        elif line.strip():
            _print_reply(await _ask_session(session, line, lines, questions), console)


async def _ask_session(
    session: Session, text: str, lines: StdinLines, questions: ApprovalPrompts
) -> Reply:
    """Send a message, and handle commands until the reply: the turn may wait for approval."""
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(questions.handle_commands_forever, lines)
            reply = await session.ask(text)
            nursery.cancel_scope.cancel(reason="there is a reply")
    return reply


async def _print_replies_forever(session: Session, console: Terminal) -> None:
    while True:
        reply = await session.replies.receive()
        console.print()
        _print_reply(reply, console)
        console.print("> ", end="")


def _print_reply(reply: Reply, console: Terminal) -> None:
    style = "green" if reply.outcome.succeeded else "red"
    console.print(Text(printable(reply.text), style=style), soft_wrap=True)
