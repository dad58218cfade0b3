"""`orchestrator script`: run a script over the agents of a file."""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import trio
from cyclopts import Parameter

from orchestrator.agents import Agent
from orchestrator.agents.script import Script, script_agent_of
from orchestrator.cli import options
from orchestrator.cli.agent_file import load_agent, load_agent_to_look_at
from orchestrator.cli.commands.run import SHOWN, ShownRun, show_run
from orchestrator.cli.errors import CommandError
from orchestrator.cli.signals import run_stoppable
from orchestrator.cli.terminal.approvals import is_attended
from orchestrator.delegation import printable
from orchestrator.ports.sessions import Orchestrator, Run, budget

MOST_BYTES: Final = 1_000_000


def script(
    file: Annotated[Path, Parameter(help="The file with the script.")],
    /,
    *,
    team: options.AnyAgentFile,
    goal: str = "",
    limits: options.BlockBudgetOption = None,
    dry_run: bool = False,
    shown: ShownRun = SHOWN,
) -> int:
    """Run a script: async Python that calls the delegates and tools of an agent.

    The result goes to stdout, the tree to stderr. The command exits like `run`, and with 1 if the
    script has errors. `orchestrator resume TEAM` continues a script that was interrupted.

    Args:
        team: The file that defines the agent whose delegates and tools the script calls.
        goal: The purpose of the script, shown in the tree.
        dry_run: Simulate the script, and show its expected cost, time and tasks; no model is asked.
    """
    shown.require_one_document()
    code = _read(file)
    if dry_run:
        return _dry_run(Script(goal=goal, code=code), team, shown.journal)
    # The file may run any code, so it is loaded before the event loop starts.
    agent: Agent[Any] = script_agent_of(load_agent(team, trust=shown.trust))

    async def begin(orchestrator: Orchestrator) -> Run[Any]:
        with budget(**({} if limits is None else limits.arguments())):
            return await orchestrator.run(
                agent, Script(goal=goal, code=code), attended=is_attended()
            )

    return run_stoppable(lambda stop: show_run(agent, begin, stop, shown))


def _dry_run(script: Script, team: str, journal: str | None) -> int:
    # Imported late: only this option needs the simulation.
    from orchestrator.products.history.simulation.dry_run import dry_run

    agent = script_agent_of(load_agent_to_look_at(team))
    goal = msgspec.json.encode(script).decode()
    result = trio.run(dry_run, agent, goal, options.journals_of(journal))
    print(printable(result.text), file=sys.stdout if result.is_possible else sys.stderr)
    return 0 if result.is_possible else 1


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise CommandError(f"{file} is larger than {MOST_BYTES:,} bytes: no script is")
        return file.read_text(encoding="utf-8")
    except OSError as exc:
        raise CommandError(f"{file} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise CommandError(f"{file} is not UTF-8 text: {exc}") from exc
