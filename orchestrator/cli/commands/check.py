"""`orchestrator check`: replay stored runs against the code of now."""

from typing import Annotated

from cyclopts import Parameter

from orchestrator.cli.agent_file import load_agents_of_runs
from orchestrator.cli.errors import CommandError
from orchestrator.cli.exit_codes import FAILED, SUCCEEDED
from orchestrator.cli.journal_queries import read_run, read_runs
from orchestrator.cli.options import TeamFile, journals_of
from orchestrator.cli.terminal.console import Terminal, print_table
from orchestrator.delegation import one_line


def check(
    file: TeamFile,
    /,
    *,
    against: Annotated[str, Parameter(help="The journal, or the folder of journals.")],
) -> int:
    """Replay all stored runs of the agents of a file: no model is asked, and no tool runs.

    Exits with 0 if all are the same, with 1 if one differs, and with 2 if a journal or run cannot
    be read, or there is no run to replay. The table names the first different task. An interrupted
    run is replayed up to the end of its record: with the same code it can be resumed. Runs of other
    agents are left out.
    """
    agents = load_agents_of_runs(file)
    # Imported late: only this command and `replay` need it.
    from orchestrator.products.history.replay.record import ReplayError
    from orchestrator.products.history.replay.run import replay_sync

    journals = journals_of(against)
    rows: list[tuple[str, str, str]] = []
    code = SUCCEEDED
    runs = read_runs(journals)
    for error in (*runs.unreadable, *runs.damaged.values()):
        # Runs that cannot be read prove nothing about the code.
        raise error
    for it in runs.shown:
        agent = agents.get(it.agent)
        if agent is None or not it.has_begun:
            continue
        try:
            found = replay_sync(read_run(journals, it.id).entries, agent, run=it.id).difference
        except ReplayError as exc:
            rows.append((it.id, it.agent, f"not replayed: {exc}"))
            continue
        result = "the same"
        if found is not None:
            code = FAILED
            recorded, replayed = one_line(found.recorded), one_line(found.replayed)
            result = f"differs at {found.path}: recorded {recorded}; replayed {replayed}"
        rows.append((it.id, it.agent, result))
    if not rows:
        raise CommandError(f"{against} has no run of an agent of {file}: nothing was checked")
    print_table(Terminal(), ["run", "agent", "result"], rows, wrapped=["result"])
    return code
