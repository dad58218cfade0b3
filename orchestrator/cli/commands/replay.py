"""Doing a run again: `orchestrator replay`."""

from pathlib import Path
from typing import Any, Final

from rich.text import Text

from agents import Agent
from delegation import printable
from orchestrator.cli.commands.run import show_run
from orchestrator.cli.journal_queries import read_entries
from orchestrator.cli.signals import Stop
from orchestrator.cli.terminal.console import Terminal, command
from orchestrator.replay.compare import Difference
from orchestrator.replay.fork import find_task
from orchestrator.replay.record import RecordedRun
from orchestrator.replay.run import replay_sync

SAME: Final = 0
DIFFERENT: Final = 1
BEFORE: Final = 40
SHOWN: Final = 240
"""How much of a text is shown, and of that how much before the first difference."""


def show_replay(
    agent: Agent[Any], path: Path, run: str | None, *, journal: Path | None
) -> int:
    """Replay a run, and say whether it is the same.

    Args:
        agent: whose run it was, as it is defined now.
        path: the journal.
        run: how its id begins.
        journal: the journal as the user named it.
    """
    session, entries = read_entries(path, run)
    replay = replay_sync(entries, agent, run=session)
    if replay.difference is None:
        print(f"the same: {replay.tasks:,} tasks, {replay.steps:,} steps")
        return SAME
    console = Terminal()
    _show(console, replay.difference)
    hint = f"The whole run: {command('tree', session, journal=journal)}"
    Terminal(stderr=True).print(Text(hint, style="dim"), soft_wrap=True)
    return DIFFERENT


async def fork_from(
    agent: Agent[Any],
    path: Path,
    run: str | None,
    stop: Stop,
    *,
    task: str,
    quiet: bool,
) -> int | None:
    """Go on live from where a task of a run was asked for, and show that."""
    session, entries = read_entries(path, run)
    # What the user got wrong is said before anything is opened.
    record = RecordedRun(entries, session)
    record.require_replayable(agent)
    parting = find_task(record, task)
    return await show_run(
        agent,
        lambda orchestrator: orchestrator.fork(agent, session, task=parting),
        stop,
        quiet=quiet,
        journal=path,
    )


def _show(console: Terminal, difference: Difference) -> None:
    where = f"{difference.path}, step {difference.step}"
    console.print(Text(f"not the same: {where}", style="bold"), soft_wrap=True)
    recorded, replayed = printable(difference.recorded), printable(difference.replayed)
    begin = max(0, _common_prefix_length(recorded, replayed) - BEFORE)
    for name, text in (("recorded", recorded), ("replayed", replayed)):
        line = Text(f"{name}  ", style="dim")
        line.append(_excerpt(text, begin), style="not dim")
        console.print(line, soft_wrap=True)


def _common_prefix_length(one: str, other: str) -> int:
    """Return with how many equal characters two texts begin."""
    pairs = enumerate(zip(one, other, strict=False))
    same = min(len(one), len(other))
    return next((at for at, (a, b) in pairs if a != b), same)


def _excerpt(text: str, begin: int) -> str:
    before = "… " if begin else ""
    after = " …" if begin + SHOWN < len(text) else ""
    return " ".join(f"{before}{text[begin : begin + SHOWN]}{after}".split())
