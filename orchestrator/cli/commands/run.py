"""Running an agent in front of somebody: the tree grows while it works."""

import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import trio
from rich.text import Text

from agents import Agent, Budget
from agents.models.registry import CloseableModel
from delegation import Ending, Outcome, Tree, printable
from orchestrator.budget_scope import budget
from orchestrator.cli.commands.demo_agents import QUESTION, demo_team
from orchestrator.cli.commands.demo_local import LOCAL_NOTE, local_team
from orchestrator.cli.commands.run_json import EXIT_CODES, as_json
from orchestrator.cli.progress.display import open_display
from orchestrator.cli.signals import Stop
from orchestrator.cli.terminal.approvals import is_attended
from orchestrator.cli.terminal.console import Terminal, command
from orchestrator.cli.terminal.style import Progress
from orchestrator.cli.terminal.tree_table import print_ended, print_reasons, print_tree
from orchestrator.doors.one_shot import Run
from orchestrator.doors.session import Session
from orchestrator.errors import ClosedError
from orchestrator.runtime import Orchestrator, open_orchestrator


async def run_goal(
    agent: Agent[Any],
    goal: str,
    stop: Stop,
    *,
    limits: Budget | None,
    quiet: bool,
    json: bool,
    journal: Path | None,
    progress: Progress = "auto",
) -> int | None:
    """Run an agent on a goal, and return the exit code that its outcome deserves."""

    async def begin(orchestrator: Orchestrator) -> Run[Any]:
        if limits is None:
            return await orchestrator.run(agent, goal, attended=is_attended())
        with budget(**attrs.asdict(limits)):
            return await orchestrator.run(agent, goal, attended=is_attended())

    return await show_run(
        agent, begin, stop, quiet=quiet, json=json, journal=journal, progress=progress
    )


async def show_run(
    agent: Agent[Any],
    begin: Callable[[Orchestrator], Awaitable[Run[Any]]],
    stop: Stop,
    *,
    quiet: bool,
    journal: Path | None,
    json: bool = False,
    progress: Progress = "auto",
) -> int | None:
    """Show a run while it grows and as it ended, and return the exit code that it deserves."""
    console = Terminal(stderr=True, quiet=quiet or progress in {"json", "none"})
    run: Run[Any] | None = None
    async with (
        open_display(progress, console, journal) as shown,
        open_orchestrator(journal) as orchestrator,
    ):
        stop.set_orchestrator(orchestrator)
        with stop.work_scope, _ignore_closed_when_stopped(stop):
            async with shown.open_view(orchestrator):
                run = await begin(orchestrator)
        if run is None:
            _print_stopped(orchestrator, journal)
            return None
        print_ended(run.tree, console)
        again = command("tree", run.id, journal=journal)
        _print_hint(console, f"Look at it again: {again}")
        if json:
            print(as_json(run))
        elif run.outcome.output and progress != "json":
            print(printable(run.outcome.output))
    if not run.outcome.succeeded:
        error = f"/{agent.name} {_describe_outcome(run.outcome)}"
        print(f"orchestrator: {error}", file=sys.stderr)
    return EXIT_CODES[run.outcome.ending]


async def show_demo(
    console: Terminal,
    stop: Stop,
    *,
    stateless: bool,
    seconds: float,
    journal: Path | None,
    progress: Progress = "auto",
) -> int | None:
    """Run the demonstration, and say what was joined, what was detached, and why."""
    ask = _ask_once if stateless else _ask_in_session
    tree: Tree | None = None
    async with (
        open_display(progress, console, journal) as shown,
        open_orchestrator(journal) as orchestrator,
    ):
        stop.set_orchestrator(orchestrator)
        _print_hint(
            console,
            "The models are scripted: no key, no network, pretend prices."
            " Everything else is real.",
            "The session cannot be told anything later, so every task will be joined."
            if stateless
            else "The session can be told later, so a task may be detached and wake it.",
        )
        _print_text(console, "question", QUESTION)
        with stop.work_scope, _ignore_closed_when_stopped(stop):
            async with shown.open_view(orchestrator):
                tree = await ask(orchestrator, demo_team(seconds), console)
        if tree is None:
            _print_stopped(orchestrator, journal)
            return None
        console.print()
        print_tree(tree, console)
        console.print()
        print_reasons(tree, console)
        console.print()
    other = () if stateless else ("--stateless",)
    _print_hint(
        console,
        f"Look at it again:   {command('tree', tree.root, journal=journal)}",
        f"The other way:      {command('demo', *other, journal=journal)}",
        'With a real model:  agents with model="openai:gpt-5", a key in OPENAI_API_KEY,',
        f"                    and: {command('run', 'FILE', 'GOAL', journal=journal)}",
    )
    return EXIT_CODES[Ending.SUCCEEDED]


async def show_local_demo(
    console: Terminal,
    model: CloseableModel,
    stop: Stop,
    *,
    journal: Path | None,
    progress: Progress = "auto",
) -> int | None:
    """Run the demonstration with a real model that is on this machine."""
    _print_hint(console, LOCAL_NOTE)
    _print_text(console, "question", QUESTION)
    run: Run[str] | None = None
    async with (
        aclosing(model),
        open_display(progress, console, journal) as shown,
        open_orchestrator(journal) as orchestrator,
    ):
        stop.set_orchestrator(orchestrator)
        with stop.work_scope, _ignore_closed_when_stopped(stop):
            async with shown.open_view(orchestrator):
                run = await orchestrator.run(local_team(model), QUESTION)
        if run is None:
            _print_stopped(orchestrator, journal)
            return None
        _print_text(
            console, "answer", run.outcome.output or _describe_outcome(run.outcome)
        )
        console.print()
        print_tree(run.tree, console)
        _print_hint(
            console, f"Look at it again: {command('tree', run.id, journal=journal)}"
        )
    return EXIT_CODES[run.outcome.ending]


async def _ask_once(
    orchestrator: Orchestrator, editor: Agent[str], console: Terminal
) -> Tree:
    run = await orchestrator.run(editor, QUESTION)
    _print_text(console, "answer", run.output)
    return run.tree


async def _ask_in_session(
    orchestrator: Orchestrator, editor: Agent[str], console: Terminal
) -> Tree:
    async with orchestrator.open_session(editor) as session:
        reply = await session.ask(QUESTION)
        _print_text(console, f"answer, turn {reply.turn}", reply.text)
        await session.wait_idle()
        _print_later_replies(console, session)
        return session.tree


def _print_later_replies(console: Terminal, session: Session) -> None:
    with suppress(trio.WouldBlock):
        while True:
            news = session.replies.receive_nowait()
            who = f"answer, turn {news.turn}, woken by the archivist"
            _print_text(console, who, news.text)


@contextmanager
def _ignore_closed_when_stopped(stop: Stop) -> Generator[None]:
    """Take it for no error that nothing new is begun where somebody has asked for that."""
    try:
        yield
    except ClosedError:
        if not stop.is_requested:
            raise


def _print_stopped(orchestrator: Orchestrator, journal: Path | None) -> None:
    run = orchestrator.runs[-1:]
    again = f"; see: {command('tree', run[0], journal=journal)}" if run else ""
    print(f"orchestrator: stopped{again}", file=sys.stderr)


def _print_text(console: Terminal, who: str, text: str) -> None:
    console.print(Text(who, style="bold"))
    console.print(Text(printable(text), style="green"), soft_wrap=True)


def _print_hint(console: Terminal, *lines: str) -> None:
    for line in lines:
        console.print(Text(line, style="dim"), soft_wrap=True)


def _describe_outcome(outcome: Outcome) -> str:
    return f"{outcome.ending}: {' '.join(printable(outcome.error).split())}"
