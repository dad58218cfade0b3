"""`orchestrator fork` and `retry`: start a new run with the facts of an old one."""

from typing import Literal

from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.commands.run import require_one_document, show_run
from orchestrator.cli.options import JournalOption, ProgressOption, journals_of
from orchestrator.cli.sandbox_line import SandboxOption
from orchestrator.cli.signals import run_stoppable
from orchestrator.cli.task_lookup import find_task
from orchestrator.products.history.replay.fork import copy_run
from orchestrator.products.history.replay.kept_facts import facts_before, facts_without


def fork(
    file: str,
    task: str,
    /,
    *,
    run: str | None = None,
    json: bool = False,
    quiet: bool = False,
    progress: ProgressOption = "auto",
    journal: JournalOption = None,
    sandbox: SandboxOption = None,
) -> int:
    """Run again from the point where a task was delegated, in a new run.

    All steps before that point are kept and cost nothing; all steps after it run again. The command
    prints and exits like `run`, and exits with 2 if the run has not ended, or belongs to another
    agent.

    Args:
        file: The file that defines the agent: FILE, or FILE:NAME if it defines several.
        task: The id of a task, or its start; or its path, such as '/editor/researcher[2]'. The id
            of the run does the whole run again.
        run: The run to look for a path in; by default the newest.
        json: Print one JSON document instead of the answer: outcome, output, usage, tree.
        quiet: Print only the answer.
    """
    return _run_copy(
        "fork",
        file,
        task,
        run=run,
        json=json,
        quiet=quiet,
        progress=progress,
        journal=journal,
        sandbox=sandbox,
    )


def retry(
    file: str,
    task: str,
    /,
    *,
    run: str | None = None,
    json: bool = False,
    quiet: bool = False,
    progress: ProgressOption = "auto",
    journal: JournalOption = None,
    sandbox: SandboxOption = None,
) -> int:
    """Run an unsuccessful task again, in a new run that keeps all other work of the old one.

    The task starts from the beginning. The tasks above it repeat the steps that followed its end,
    and tasks that were refused or cancelled because of it run again. All other work is kept and
    costs nothing, and the old run does not change. The command prints and exits like `run`, and
    exits with 2 if the task has succeeded, or its run has not ended.

    Args:
        file: The file that defines the agent: FILE, or FILE:NAME if it defines several.
        task: The id of a task, or its start; or its path, such as '/editor/researcher[2]'. The id
            of the run does the whole run again.
        run: The run to look for a path in; by default the newest.
        json: Print one JSON document instead of the answer: outcome, output, usage, tree.
        quiet: Print only the answer.
    """
    return _run_copy(
        "retry",
        file,
        task,
        run=run,
        json=json,
        quiet=quiet,
        progress=progress,
        journal=journal,
        sandbox=sandbox,
    )


def _run_copy(
    verb: Literal["fork", "retry"],
    file: str,
    task: str,
    *,
    run: str | None,
    json: bool,
    quiet: bool,
    progress: ProgressOption,
    journal: str | None,
    sandbox: SandboxOption,
) -> int:
    require_one_document(json=json, progress=progress)
    # The file may run any code, so it is loaded before the event loop starts.
    agent = load_agent(file)
    found, _, id_ = find_task(journals_of(journal), task, run)
    session = found.fold().sessions[found.id]
    keep = facts_before if verb == "fork" else facts_without
    # A usage error is raised before the journal is opened for writing.
    copy_run(keep, found.entries, agent, session, id_, run=found.id)
    return run_stoppable(
        lambda stop: show_run(
            agent,
            lambda orchestrator: getattr(orchestrator, verb)(agent, found.id, task=id_),
            stop,
            opens=found.id,
            quiet=quiet,
            json=json,
            journal=journal,
            progress=progress,
            sandbox=sandbox,
        )
    )
