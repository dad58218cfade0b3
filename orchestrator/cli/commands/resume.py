"""`orchestrator resume`: continue a run whose process died."""

from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.commands.run import SHOWN, ShownRun, show_run
from orchestrator.cli.commands.tree import read_session
from orchestrator.cli.options import AgentFile, RunArgument, journals_of
from orchestrator.cli.signals import run_stoppable
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.ports.sessions import require_resumable


def resume(
    file: AgentFile,
    run: RunArgument = None,
    /,
    *,
    accept_changes: bool = False,
    shown: ShownRun = SHOWN,
) -> int:
    """Continue a run that was interrupted: its process was killed, or the machine went down.

    The run continues from its last durable step, and finished work costs nothing again. Its budgets
    still hold, and count the earlier usage. The command prints and exits like `run`, and exits with
    2 if the run was not interrupted, or belongs to another agent, or its program has changed.

    Args:
        accept_changes: Let a pipeline request other tasks than before the crash, although its
            earlier tasks may be repeated so. The outcome has a note about it.
    """
    shown.require_one_document()
    # The file may run any code, so it is loaded before the event loop starts.
    agent = load_agent(file, trust=shown.trust)
    # A usage error is raised before the journal is opened for writing.
    session, _, _ = read_session(journals_of(shown.journal), run)
    require_resumable(session, agent)
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
            lambda orchestrator: orchestrator.resume(agent, session.id),
            stop,
            shown,
            run=session.id,
            on_change="accept" if accept_changes else "refuse",
        )
    )
