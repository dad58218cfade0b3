"""`orchestrator scripts`: list the scripts of runs, and save one as a pipeline of a team."""

import hashlib
from pathlib import Path
from typing import Annotated, Final

import attrs
import msgspec
from cyclopts import App, Parameter

from orchestrator.agents.script import Script
from orchestrator.agents.turn_plan import SCRIPT
from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import read_listed, require_journal
from orchestrator.cli.options import JournalOption, JsonOption, journals_of
from orchestrator.cli.terminal.console import Terminal, command, print_hint, print_table
from orchestrator.cli.terminal.style import format_money
from orchestrator.delegation import TaskNode, one_line, printable
from orchestrator.ports.errors import JournalError
from orchestrator.products.agent_files.added_pipeline import with_pipeline

HASH_CHARACTERS: Final = 12
SHOWN_GOAL: Final = 60

scripts = App(
    name="scripts", help="List the scripts of runs, and save one as a pipeline of a team."
)
NewestOption = Annotated[int, Parameter(help="How many of the newest runs are searched.")]


@attrs.frozen(kw_only=True)
class FoundScript:
    """A script, with its last use."""

    hash: str
    code: str
    goal: str
    agent: str
    """The agent that wrote it; empty for a script of a person."""
    uses: int
    node: TaskNode
    tasks: int


@scripts.default
def list_(
    *, newest: NewestOption = 100, json: JsonOption = False, journal: JournalOption = None
) -> None:
    """List the scripts of the newest runs by their hashes, the last used first."""
    found = _found_scripts(journal, newest)
    if json:
        shown = [
            {"hash": it.hash, "goal": it.goal, "agent": it.agent, "uses": it.uses, "code": it.code}
            for it in found
        ]
        print(msgspec.json.encode(shown).decode())
        return
    console = Terminal()
    if not found:
        print_hint(console, f"no script is in the newest {newest:,} runs")
        return
    rows = [
        (
            it.hash,
            printable(one_line(it.goal or it.code))[:SHOWN_GOAL],
            it.agent,
            f"{it.uses:,}",
            it.node.status.value,
            f"{it.tasks:,}",
            format_money(it.node.total),
        )
        for it in found
    ]
    print_table(console, ("script", "goal", "by", "uses", "last", "tasks", "cost"), rows)
    save_ = command("scripts", "save", "SCRIPT", "NAME", "--team", "team.yaml", journal=journal)
    print_hint(console, f"Make one a pipeline: {save_}")


@scripts.command
def save(
    script: str,
    name: str,
    /,
    *,
    team: Path,
    newest: NewestOption = 100,
    journal: JournalOption = None,
) -> None:
    """Save a script as a named pipeline of a team.yaml.

    Args:
        script: The hash of the script, or its beginning.
        name: The name of the pipeline.
        team: The team.yaml.
    """
    if team.suffix.lower() not in {".yaml", ".yml"} or not team.is_file():
        raise CommandError(f"{team} is no team.yaml: a script is saved in such a file")
    found = [it for it in _found_scripts(journal, newest) if it.hash.startswith(script)]
    if len(found) != 1:
        which = "no script begins" if not found else f"{len(found)} scripts begin"
        raise CommandError(f"{which} with {script!r}; see: orchestrator scripts")
    team.write_text(with_pipeline(team, name, found[0].code, agent=found[0].agent), "utf-8")
    print_hint(Terminal(), f"Run it: {command('run', f'{team}:{name}', 'GOAL', journal=journal)}")


def _found_scripts(journal: str | None, newest: int) -> list[FoundScript]:
    """Return the scripts of the newest runs, the last used first."""
    journals = journals_of(journal)
    require_journal(journals)
    found: dict[str, FoundScript] = {}
    for session in journals.sessions(newest=newest).sessions:
        try:
            ledger = read_listed(journals, session.journal, session.id).fold()
        except JournalError as exc:
            print_hint(Terminal(), f"run {session.id} cannot be read: {printable(str(exc))}")
            continue
        tree = ledger.sessions[session.id].tree
        for task in tree:
            node = tree[task]
            if node.agent != SCRIPT or (script := _script_of(node)) is None:
                continue
            digest = hashlib.sha256(script.code.encode()).hexdigest()[:HASH_CHARACTERS]
            before = found.pop(digest, None)
            found[digest] = FoundScript(
                hash=digest,
                code=script.code,
                goal=script.goal,
                agent="" if node.parent is None else tree[node.parent].agent,
                uses=1 if before is None else before.uses + 1,
                node=node,
                tasks=len(tree.children(task)),
            )
    return [*reversed(found.values())]


def _script_of(node: TaskNode) -> Script | None:
    try:
        return msgspec.json.decode(node.goal, type=Script)
    except msgspec.DecodeError:
        return None  # an agent of a person has the same name
