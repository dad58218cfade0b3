"""`orchestrator fork`: go on live from where a task was delegated."""

from orchestrator.cli.options import JournalOption, ProgressOption
from orchestrator.cli.sandbox_line import SandboxOption


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
    # Imported late: few commands need it.
    from orchestrator.cli.copied_runs import run_copy

    return run_copy(
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
