"""`orchestrator replay`: replay a run from the journal, or fork it from one of its tasks."""

from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter
from rich.text import Text

from orchestrator.agents import Agent
from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.commands.run import show_run
from orchestrator.cli.exit_codes import FAILED, SUCCEEDED
from orchestrator.cli.journal_queries import read_run
from orchestrator.cli.options import JournalOption, journals_of
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.delegation import printable

if TYPE_CHECKING:
    from orchestrator.products.history.replay.compare import Difference

EXCERPT_CHARACTERS: Final = 240
"""How much of each text a difference shows."""
COMMON_CHARACTERS: Final = 40
"""How much of that comes before the first character that differs."""


def replay(
    run: str | None = None,
    /,
    *,
    file: str,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    quiet: bool = False,
    journal: JournalOption = None,
) -> int:
    """Do a run again from what the journal has of it: no model is asked, no tool is run.

    Exits with 0 if it is the same, and with 1 if not: then it shows the first difference. A run
    that was interrupted, or is under way, is replayed up to where its record ends.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        file: What defines its agent: FILE, or FILE:NAME if it defines several, as for `run`.
        from_: Go on live from where this task was asked for, in a run of its own: the id of a
            task, or its path.
        quiet: With --from, show the answer only.
    """
    # The file may run any code, so it is loaded before the event loop starts.
    agent = load_agent(file, calls_models=False)
    if from_ is None:
        return _compare(agent, run, journal=journal)
    task = from_
    return run_stoppable(lambda stop: _fork(agent, run, stop, task, quiet=quiet, journal=journal))


def _compare(agent: Agent[Any], run: str | None, *, journal: str | None) -> int:
    """Replay a run and print the first difference, if there is one."""
    # Imported late: only this command needs replay.
    from orchestrator.products.history.replay.run import replay_sync

    found = read_run(journals_of(journal), run)
    replay = replay_sync(found.entries, agent, run=found.id)
    if replay.difference is None:
        so_far = "" if replay.is_whole else ", up to where its record ends"
        print(f"the same: {replay.tasks:,} tasks, {replay.steps:,} steps{so_far}")
        return SUCCEEDED
    _print_difference(Terminal(), replay.difference)
    hint = f"The whole run: {command('tree', found.id, journal=journal)}"
    print_hint(Terminal(stderr=True), hint)
    return FAILED


async def _fork(
    agent: Agent[Any], run: str | None, stop: Stop, task: str, *, quiet: bool, journal: str | None
) -> int | None:
    """Fork a run where one of its tasks was delegated, and show the new run."""
    # Imported late: only this command needs replay.
    from orchestrator.products.history.replay.fork import find_task
    from orchestrator.products.history.replay.record import RecordedRun

    found = read_run(journals_of(journal), run)
    # A usage error is raised before anything is opened.
    record = RecordedRun(found.entries, found.id)
    record.require_replayable(agent)
    forked_task = find_task(record, task)
    return await show_run(
        agent,
        lambda orchestrator: orchestrator.fork(agent, found.id, task=forked_task),
        stop,
        opens=found.id,
        quiet=quiet,
        journal=journal,
    )


def _print_difference(console: Terminal, difference: "Difference") -> None:
    where = f"{difference.path}, step {difference.step}"
    console.print(Text(f"not the same: {where}", style="bold"), soft_wrap=True)
    recorded, replayed = printable(difference.recorded), printable(difference.replayed)
    begin = max(0, _common_prefix_length(recorded, replayed) - COMMON_CHARACTERS)
    for name, text in (("recorded", recorded), ("replayed", replayed)):
        line = Text(f"{name}  ", style="dim")
        line.append(_excerpt(text, begin), style="not dim")
        console.print(line, soft_wrap=True)


def _common_prefix_length(one: str, other: str) -> int:
    """Return the length of the longest common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    same = min(len(one), len(other))
    return next((at for at, (a, b) in pairs if a != b), same)


def _excerpt(text: str, begin: int) -> str:
    before = "… " if begin else ""
    after = " …" if begin + EXCERPT_CHARACTERS < len(text) else ""
    return " ".join(f"{before}{text[begin : begin + EXCERPT_CHARACTERS]}{after}".split())
