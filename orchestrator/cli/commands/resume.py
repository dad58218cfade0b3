"""`orchestrator resume`: go on with a run whose process died."""

from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.commands.run import require_one_document, show_run
from orchestrator.cli.commands.tree import read_session
from orchestrator.cli.options import JournalOption, ProgressOption, journals_of
from orchestrator.cli.sandbox_line import SandboxOption
from orchestrator.cli.signals import run_stoppable
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.kernel.doors.one_shot import require_resumable


def resume(
    file: str,
    run: str | None = None,
    /,
    *,
    json: bool = False,
    quiet: bool = False,
    progress: ProgressOption = "auto",
    journal: JournalOption = None,
    sandbox: SandboxOption = None,
) -> int:
    """Go on with a run that was interrupted: its process was killed, or the machine went down.

    It goes on from its last durable step, and what is finished is not paid for again. Its budgets
    hold on, and count what it has used. It prints and exits as `run` does, and with 2 if the run
    was not interrupted, or is of another agent.

    Args:
        file: What defines its agent: FILE, or FILE:NAME if it defines several, as for `run`.
        run: The id of the run, or how it begins; by default the newest one.
        json: Print one JSON document instead of the answer: outcome, output, usage, tree.
        quiet: Print the answer, and nothing else.
    """
    require_one_document(json=json, progress=progress)
    # The file may run any code, so it is loaded before the event loop starts.
    agent = load_agent(file)
    # A usage error is raised before the journal is opened for writing.
    session, _, _ = read_session(journals_of(journal), run)
    require_resumable(session, agent)
    if not quiet:
        for task in session.slots.paused.values():
            again = command("unpause", task.id, journal=journal)
            print_hint(
                Terminal(stderr=True),
                f"Paused: no new task starts below {task.path} until: {again}",
            )
    return run_stoppable(
        lambda stop: show_run(
            agent,
            lambda orchestrator: orchestrator.resume(agent, session.id),
            stop,
            run=session.id,
            quiet=quiet,
            json=json,
            journal=journal,
            progress=progress,
            sandbox=sandbox,
        )
    )
