"""`orchestrator watch`: view and control a run from another terminal."""

import trio

from orchestrator.cli.options import JournalOption, RunArgument, journals_of


def watch(run: RunArgument = None, /, *, journal: JournalOption = None) -> int:
    """Watch a run from another terminal while it grows, and act on it; or look at one that ended.

    Keys: arrows move and collapse, Enter shows the transcript of a task, x cancels it with all
    tasks below it, m sends it a message, a and d approve or deny a waiting call, f goes to the next
    failed task, w to the next one that waits, / searches and n searches on, q leaves.
    """
    # Imported late: only this command takes over the whole terminal.
    from orchestrator.cli.watch.watcher import watch_run

    return trio.run(watch_run, journals_of(journal), run)
