"""`orchestrator resume`: continue a run whose process died."""

from orchestrator.cli.agent_file import agent_of_run, load_agent
from orchestrator.cli.commands.run import SHOWN, ShownRun, show_run
from orchestrator.cli.commands.tree import read_session
from orchestrator.cli.options import (
    AcceptChangesOption,
    AgentFile,
    RunArgument,
    journals_of,
    on_change_of,
)
from orchestrator.cli.signals import run_stoppable
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.ports.sessions import require_resumable
from orchestrator.products.evaluation.settings import change_of_fork


def resume(
    file: AgentFile,
    run: RunArgument = None,
    /,
    *,
    accept_changes: AcceptChangesOption = False,
    shown: ShownRun = SHOWN,
) -> int:
    """Continue a run that was interrupted: its process was killed, or the machine went down.

    The run continues from its last durable step, and finished work costs nothing again. Its budgets
    still hold, and count the earlier usage. The command prints and exits like `run`, and exits with
    2 if the run was not interrupted, or belongs to another agent, or its program has changed.
    """
    shown.require_one_document()
    # The file may run any code, so it is loaded before the event loop starts.
    agent = load_agent(file, trust=shown.trust)
    # A usage error is raised before the journal is opened for writing.
    session, _, _ = read_session(journals_of(shown.journal), run)
    agent = agent_of_run(agent, session.root.agent)
    change = change_of_fork(session)
    require_resumable(session, agent, accepts_changes=accept_changes, change=change)
    if not shown.quiet:
        for task in session.slots.paused.values():
            again = command("unpause", task.id, journal=shown.journal)
            print_hint(
                Terminal(stderr=True),
                f"Paused: no new task starts below {task.path} until: {again}",
            )
    return run_stoppable(
        lambda stop: show_run(
            agent,
            lambda orchestrator: orchestrator.resume(agent, session.id, change=change),
            stop,
            shown,
            run=session.id,
            on_change=on_change_of(accept_changes=accept_changes),
        )
    )
