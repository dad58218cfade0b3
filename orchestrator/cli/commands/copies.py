"""`orchestrator fork` and `retry`: begin a new run with facts of an old one."""

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
    """Go on live from where a task was delegated, in a new run.

    What was before is kept and not paid again; all after it is done again. It prints and exits as
    `run` does, and with 2 if the run has not ended, or is of another agent.

    Args:
        file: What defines its agent: FILE, or FILE:NAME if it defines several, as for `run`.
        task: The id of a task, or how it begins; or its path, such as '/editor/researcher[2]'.
            That of the run does all of it again.
        run: The run in which a path is looked for; by default the newest.
        json: Print one JSON document instead of the answer: outcome, output, usage, tree.
        quiet: Print the answer, and nothing else.
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
    """Do a task that did not succeed again, in a new run that has all else of the old one.

    The task begins anew. What those above it made of its end is done again, and so are tasks that
    were refused or cancelled because of it. All else is kept and not paid again, and the old run
    stays as it is. It prints and exits as `run` does, and with 2 if the task has succeeded, or its
    run has not ended.

    Args:
        file: What defines its agent: FILE, or FILE:NAME if it defines several, as for `run`.
        task: The id of a task, or how it begins; or its path, such as '/editor/researcher[2]'.
            That of the run does all of it again.
        run: The run in which a path is looked for; by default the newest.
        json: Print one JSON document instead of the answer: outcome, output, usage, tree.
        quiet: Print the answer, and nothing else.
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
