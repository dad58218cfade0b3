"""`orchestrator demo`: watch a small team of agents delegate, with scripted or local models."""

import math
import os
from contextlib import aclosing, suppress

import trio
from rich.text import Text

from orchestrator.agents import Agent
from orchestrator.agents.models.registry import CloseableModel, model_named
from orchestrator.cli.commands.run import describe_outcome, print_stopped
from orchestrator.cli.demo_team import QUESTION, demo_team
from orchestrator.cli.demo_team_local import LOCAL_NOTE, local_team
from orchestrator.cli.errors import CommandError
from orchestrator.cli.exit_codes import ENDING_CODES, SUCCEEDED
from orchestrator.cli.options import JournalOption, ProgressOption
from orchestrator.cli.progress.display import open_display
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.console import Terminal, command, print_dim, print_hint, print_text
from orchestrator.cli.terminal.style import Progress
from orchestrator.cli.terminal.tree_table import print_reasons, print_tree
from orchestrator.composition import open_orchestrator
from orchestrator.delegation import Tree, printable
from orchestrator.ports.sessions import Orchestrator, Run, Session


def demo(
    *,
    stateless: bool = False,
    local: bool = False,
    seconds: float = 0.8,
    progress: ProgressOption = "auto",
    journal: JournalOption = None,
) -> int:
    """Watch an editor delegate to researchers: no key, no server.

    Args:
        stateless: Ask once instead of in a session: every task is joined.
        local: Use a real model, small and silly, that runs on this machine.
        seconds: The seconds that a scripted model takes for an answer.
    """
    if not 0 <= seconds < math.inf:
        raise CommandError(f"--seconds is {seconds}; it must be 0 or more")
    console = Terminal(stderr=progress == "json")
    if local:
        model = model_named("local:smollm2", os.environ)
        return run_stoppable(
            lambda stop: _show_local_demo(console, model, stop, journal=journal, progress=progress)
        )
    return run_stoppable(
        lambda stop: _show_demo(
            console, stop, stateless=stateless, seconds=seconds, journal=journal, progress=progress
        )
    )


async def _show_demo(
    console: Terminal,
    stop: Stop,
    *,
    stateless: bool,
    seconds: float,
    journal: str | None,
    progress: Progress,
) -> int | None:
    """Run the scripted team, and print which tasks were joined, which were detached, and why."""
    ask = _ask_once if stateless else _ask_in_session
    tree: Tree | None = None
    async with (
        open_display(progress, console, journal) as display,
        open_orchestrator(journal) as orchestrator,
    ):
        stop.set_orchestrator(orchestrator)
        print_dim(
            console,
            "The models are scripted: no key, no network, pretend prices. Everything else is real.",
            "This is a one-shot call, which cannot be woken, so it waits for every task."
            if stateless
            else "This is a session: a task may work in the background, and wake it when done.",
        )
        _print_text(console, "question", QUESTION)
        with stop.work_scope, stop.ignore_closed():
            async with display.open_view(orchestrator):
                tree = await ask(orchestrator, demo_team(seconds), console)
        if tree is None:
            print_stopped(orchestrator, console, journal)
            return None
        console.print()
        print_tree(tree, console)
        console.print()
        print_reasons(tree, console)
        console.print()
    other = () if stateless else ("--stateless",)
    print_hint(
        console,
        f"Look at it again:   {command('tree', tree.root, journal=journal)}",
        f"Go through it:      {command('watch', tree.root, journal=journal)}",
        f"In the browser:     {command('report', tree.root, '--open', journal=journal)}",
        f"The other way:      {command('demo', *other, journal=journal)}",
        'With a real model:  agents with model="openai:gpt-5", a key in OPENAI_API_KEY,',
        f"                    and: {command('run', 'FILE', 'GOAL', journal=journal)}",
    )
    return SUCCEEDED


async def _show_local_demo(
    console: Terminal, model: CloseableModel, stop: Stop, *, journal: str | None, progress: Progress
) -> int | None:
    """Run a team with a real model on this machine."""
    print_dim(console, LOCAL_NOTE)
    _print_text(console, "question", QUESTION)
    run: Run[str] | None = None
    async with (
        aclosing(model),
        open_display(progress, console, journal) as display,
        open_orchestrator(journal) as orchestrator,
    ):
        stop.set_orchestrator(orchestrator)
        with stop.work_scope, stop.ignore_closed():
            async with display.open_view(orchestrator):
                run = await orchestrator.run(local_team(model), QUESTION)
        if run is None:
            print_stopped(orchestrator, console, journal)
            return None
        answer = run.outcome.output or describe_outcome(run.outcome)
        _print_text(console, "answer", answer)
        console.print()
        print_tree(run.tree, console)
        print_hint(
            console,
            f"Look at it again:   {command('tree', run.id, journal=journal)}",
            f"Go through it:      {command('watch', run.id, journal=journal)}",
            f"In the browser:     {command('report', run.id, '--open', journal=journal)}",
        )
    return ENDING_CODES[run.outcome.ending]


async def _ask_once(orchestrator: Orchestrator, editor: Agent[str], console: Terminal) -> Tree:
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
        _print_waiting_replies(session, console)
        return session.tree


def _print_waiting_replies(session: Session, console: Terminal) -> None:
    with suppress(trio.WouldBlock):
        while True:
            reply = session.replies.receive_nowait()
            heading = f"answer, turn {reply.turn}, woken by the archivist"
            _print_text(console, heading, reply.text)


def _print_text(console: Terminal, heading: str, text: str) -> None:
    console.print(Text(heading, style="bold"))
    print_text(console, Text(printable(text), style="green"))
