"""`orchestrator watch`: view and control a run from another terminal."""

import trio

from orchestrator.cli.options import JournalOption, journals_of


def watch(run: str | None = None, /, *, journal: JournalOption = None) -> int:
    """Look at a run from another terminal while it grows, and act on it; or at one that ended.

    Keys: arrows move and collapse, Enter shows the transcript of a task, x cancels it with all
    below it, m sends it a message, a and d answer what waits for approval, f goes to the next that
    failed, w to the next that waits, / searches and n searches on, q leaves.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
    """
    # Imported late: only this command takes over the whole terminal.
    from orchestrator.cli.watch.watcher import watch_run

    return trio.run(watch_run, journals_of(journal), run)
