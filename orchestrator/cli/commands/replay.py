"""`orchestrator replay`: replay a run from the journal."""

from typing import TYPE_CHECKING, Final

from rich.text import Text

from orchestrator.cli.agent_file import agent_of_run, load_agent_to_look_at
from orchestrator.cli.exit_codes import FAILED, SUCCEEDED
from orchestrator.cli.journal_queries import read_run
from orchestrator.cli.options import AgentFile, JournalOption, RunArgument, journals_of
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.delegation import printable

if TYPE_CHECKING:
    from orchestrator.products.history.replay.compare import Difference

EXCERPT_CHARACTERS: Final = 240
"""The number of characters of each text that a difference shows."""
COMMON_CHARACTERS: Final = 40
"""How many of them come before the first character that differs."""


def replay(file: AgentFile, run: RunArgument = None, /, *, journal: JournalOption = None) -> int:
    """Replay a run from its journal: no model is asked, and no tool runs.

    Exits with 0 if the replay is the same, and with 1 if not: then it shows the first difference. A
    run that was interrupted, or still runs, is replayed up to the end of its record.
    """
    # The file may run any code, so it is loaded before the event loop starts.
    agent = load_agent_to_look_at(file)
    # Imported late: only this command needs replay.
    from orchestrator.products.history.replay.run import replay_sync

    found = read_run(journals_of(journal), run)
    agent = agent_of_run(agent, found.agent)
    result = replay_sync(found.entries, agent, run=found.id)
    if result.difference is None:
        so_far = "" if result.is_whole else ", up to where its record ends"
        print(f"the same: {result.tasks:,} tasks, {result.steps:,} steps{so_far}")
        return SUCCEEDED
    _print_difference(Terminal(), result.difference)
    hint = f"The whole run: {command('tree', found.id, journal=journal)}"
    print_hint(Terminal(stderr=True), hint)
    return FAILED


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
