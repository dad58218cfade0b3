"""Running an agent in front of somebody: the tree grows while it works."""

import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio
from rich.console import Console
from rich.text import Text

from agents import Agent, raising_one_error
from delegation import Outcome, Tree, printable
from orchestrator.cli.demo import QUESTION, team
from orchestrator.cli.view import print_reasons, print_tree, watch_newest
from orchestrator.runtime import Orchestrator, open_orchestrator

SUCCEEDED: Final = 0
FAILED: Final = 1


async def run_goal(
    agent: Agent[Any], goal: str, *, quiet: bool, journal: Path | None
) -> int:
    """Run an agent on a goal, and return the exit code that its outcome deserves."""
    progress = Console(stderr=True, quiet=quiet)
    async with open_orchestrator(journal) as orchestrator:
        async with _watched(orchestrator, progress):
            run = await orchestrator.run(agent, goal)
        print_tree(run.tree, progress)
        _hint(progress, f"This run again: {_command()} tree {run.id}")
        if run.outcome.output:
            print(printable(run.outcome.output))
    if run.outcome.succeeded:
        return SUCCEEDED
    print(f"orchestrator: /{agent.name} {_what_happened(run.outcome)}", file=sys.stderr)
    return FAILED


async def show_demo(
    console: Console, *, stateless: bool, seconds: float, journal: Path | None
) -> int:
    """Run the demonstration, and say what was joined, what was detached, and why."""
    _hint(
        console,
        "The models are scripted: no key, no network, pretend prices."
        " Everything else is real.",
        "The session cannot be told anything later, so every task will be joined."
        if stateless
        else "The session can be told later, so a task may be detached and wake it.",
    )
    _say(console, "question", QUESTION)
    ask = _ask_once if stateless else _talk
    async with open_orchestrator(journal) as orchestrator:
        async with _watched(orchestrator, console):
            tree = await ask(orchestrator, team(seconds), console)
        console.print()
        print_tree(tree, console)
        console.print()
        print_reasons(tree, console)
        console.print()
    _hint(
        console,
        f"This run again:     {_command()} tree {tree.root}",
        f"The other way:      {_command()} demo{'' if stateless else ' --stateless'}",
        'With a real model:  agents with model="openai:gpt-5", a key in OPENAI_API_KEY,',
        f'                    and: {_command()} run FILE "goal"',
    )
    return SUCCEEDED


async def _ask_once(
    orchestrator: Orchestrator, editor: Agent[str], console: Console
) -> Tree:
    run = await orchestrator.run(editor, QUESTION)
    _say(console, "answer", run.output)
    return run.tree


async def _talk(
    orchestrator: Orchestrator, editor: Agent[str], console: Console
) -> Tree:
    async with orchestrator.open_session(editor) as session:
        reply = await session.ask(QUESTION)
        _say(console, f"answer, turn {reply.turn}", reply.text)
        news = await session.replies.receive()
        _say(console, f"answer, turn {news.turn}, woken by the archivist", news.text)
        await session.wait_idle()
        return session.tree


@asynccontextmanager
async def _watched(
    orchestrator: Orchestrator, console: Console
) -> AsyncGenerator[None]:
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_newest, orchestrator, console)
            yield
            nursery.cancel_scope.cancel(reason="it has ended")


def _say(console: Console, who: str, text: str) -> None:
    console.print(Text(who, style="bold"))
    console.print(Text(printable(text), style="green"), soft_wrap=True)


def _hint(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(Text(line, style="dim"), soft_wrap=True)


def _what_happened(outcome: Outcome) -> str:
    return f"{outcome.ending}: {' '.join(printable(outcome.error).split())}"


def _command() -> str:
    """Return how to call us again: as we were called, unless our name is enough."""
    called = Path(sys.argv[0])
    found = shutil.which(called.name)
    if called.name == "__main__.py":
        return "python -m orchestrator"
    return called.name if found and Path(found) == called.resolve() else str(called)
