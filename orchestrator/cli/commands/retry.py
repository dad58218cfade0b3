"""`orchestrator retry`: do a task that did not succeed again."""

from orchestrator.cli.options import JournalOption, ProgressOption
from orchestrator.cli.sandbox_line import SandboxOption


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
    # Imported late: few commands need it.
    from orchestrator.cli.copied_runs import run_copy

    return run_copy(
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
