"""`orchestrator pause`: start no new task below a task for now."""

from orchestrator.cli.control_requests import (
    NotDoneError,
    report_done,
    report_not_done,
    send_request,
)
from orchestrator.cli.options import JournalOption, journals_of
from orchestrator.cli.task_lookup import find_task
from orchestrator.kernel.control.server import Pause


def pause(task: str, /, *, run: str | None = None, journal: JournalOption = None) -> int:
    """Start no new task below a task, or in a whole run, until it is unpaused.

    What runs goes on; what it asks for waits in the queue, also in the next process. Deadlines run
    on. Exits with 0 if that is so, and with 1 if the task has ended or no process runs it.

    Args:
        task: The id of a run or of a task, or how it begins; or a path, such as
            '/editor/researcher[2]'.
        run: The run in which a path is looked for; by default the newest.
    """
    found, tree, id_ = find_task(journals_of(journal), task, run)
    try:
        send_request(found, Pause(id_, paused=True))
    except NotDoneError as exc:
        return report_not_done(exc)
    return report_done(f"paused: no new task starts below {tree[id_]['path']}")
