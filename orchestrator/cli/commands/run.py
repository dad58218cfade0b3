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
from agents.models.registry import NamedModel
from delegation import Ending, Outcome, Tree, printable
from orchestrator.budget_scope import budget
from orchestrator.cli.commands.demo_agents import QUESTION, team
from orchestrator.cli.commands.demo_local import LOCAL_NOTE, local_team
from orchestrator.cli.commands.run_json import EXIT_CODES, as_json
from orchestrator.cli.progress.display import showing
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
    allowed: Budget | None,
    quiet: bool,
    json: bool,
    journal: Path | None,
    progress: Progress = "auto",
) -> int | None:
    """Run an agent on a goal, and return the exit code that its outcome deserves."""

    async def begin(orchestrator: Orchestrator) -> Run[Any]:
        if allowed is None:
            return await orchestrator.run(agent, goal, attended=is_attended())
        with budget(**attrs.asdict(allowed)):
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
        showing(progress, console, journal) as shown,
        open_orchestrator(journal) as orchestrator,
    ):
        stop.use(orchestrator)
        with stop.scope, _unless_stopped(stop):
            async with shown.watched(orchestrator):
                run = await begin(orchestrator)
        if run is None:
            _say_stopped(orchestrator, journal)
            return None
        print_ended(run.tree, console)
        again = command("tree", run.id, journal=journal)
        _hint(console, f"Look at it again: {again}")
        if json:
            print(as_json(run))
        elif run.outcome.output and progress != "json":
            print(printable(run.outcome.output))
    if not run.outcome.succeeded:
        error = f"/{agent.name} {_what_happened(run.outcome)}"
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
    ask = _ask_once if stateless else _talk
    tree: Tree | None = None
    async with (
        showing(progress, console, journal) as shown,
        open_orchestrator(journal) as orchestrator,
    ):
        stop.use(orchestrator)
        _hint(
            console,
            "The models are scripted: no key, no network, pretend prices."
            " Everything else is real.",
            "The session cannot be told anything later, so every task will be joined."
            if stateless
            else "The session can be told later, so a task may be detached and wake it.",
        )
        _say(console, "question", QUESTION)
        with stop.scope, _unless_stopped(stop):
            async with shown.watched(orchestrator):
                tree = await ask(orchestrator, team(seconds), console)
        if tree is None:
            _say_stopped(orchestrator, journal)
            return None
        console.print()
        print_tree(tree, console)
        console.print()
        print_reasons(tree, console)
        console.print()
    other = () if stateless else ("--stateless",)
    _hint(
        console,
        f"Look at it again:   {command('tree', tree.root, journal=journal)}",
        f"The other way:      {command('demo', *other, journal=journal)}",
        'With a real model:  agents with model="openai:gpt-5", a key in OPENAI_API_KEY,',
        f"                    and: {command('run', 'FILE', 'GOAL', journal=journal)}",
    )
    return EXIT_CODES[Ending.SUCCEEDED]


async def show_local_demo(
    console: Terminal,
    model: NamedModel,
    stop: Stop,
    *,
    journal: Path | None,
    progress: Progress = "auto",
) -> int | None:
    """Run the demonstration with a real model that is on this machine."""
    _hint(console, LOCAL_NOTE)
    _say(console, "question", QUESTION)
    run: Run[str] | None = None
    async with (
        aclosing(model),
        showing(progress, console, journal) as shown,
        open_orchestrator(journal) as orchestrator,
    ):
        stop.use(orchestrator)
        with stop.scope, _unless_stopped(stop):
            async with shown.watched(orchestrator):
                run = await orchestrator.run(local_team(model), QUESTION)
        if run is None:
            _say_stopped(orchestrator, journal)
            return None
        _say(console, "answer", run.outcome.output or _what_happened(run.outcome))
        console.print()
        print_tree(run.tree, console)
        _hint(console, f"Look at it again: {command('tree', run.id, journal=journal)}")
    return EXIT_CODES[run.outcome.ending]


async def _ask_once(
    orchestrator: Orchestrator, editor: Agent[str], console: Terminal
) -> Tree:
    run = await orchestrator.run(editor, QUESTION)
    _say(console, "answer", run.output)
    return run.tree


async def _talk(
    orchestrator: Orchestrator, editor: Agent[str], console: Terminal
) -> Tree:
    async with orchestrator.open_session(editor) as session:
        reply = await session.ask(QUESTION)
        _say(console, f"answer, turn {reply.turn}", reply.text)
        await session.wait_idle()
        _say_news(console, session)
        return session.tree


def _say_news(console: Terminal, session: Session) -> None:
    with suppress(trio.WouldBlock):
        while True:
            news = session.replies.receive_nowait()
            who = f"answer, turn {news.turn}, woken by the archivist"
            _say(console, who, news.text)


@contextmanager
def _unless_stopped(stop: Stop) -> Generator[None]:
    """Take it for no error that nothing new is begun where somebody has asked for that."""
    try:
        yield
    except ClosedError:
        if not stop.is_requested:
            raise


def _say_stopped(orchestrator: Orchestrator, journal: Path | None) -> None:
    run = orchestrator.runs[-1:]
    again = f"; see: {command('tree', run[0], journal=journal)}" if run else ""
    print(f"orchestrator: stopped{again}", file=sys.stderr)


def _say(console: Terminal, who: str, text: str) -> None:
    console.print(Text(who, style="bold"))
    console.print(Text(printable(text), style="green"), soft_wrap=True)


def _hint(console: Terminal, *lines: str) -> None:
    for line in lines:
        console.print(Text(line, style="dim"), soft_wrap=True)


def _what_happened(outcome: Outcome) -> str:
    return f"{outcome.ending}: {' '.join(printable(outcome.error).split())}"
