"""`orchestrator unpause`: let tasks below a task start again."""

from orchestrator.cli.control_requests import (
    NotDoneError,
    report_done,
    report_not_done,
    send_request,
)
from orchestrator.cli.options import JournalOption, journals_of
from orchestrator.cli.task_lookup import find_task
from orchestrator.kernel.control.server import Pause


def unpause(task: str, /, *, run: str | None = None, journal: JournalOption = None) -> int:
    """Start tasks below a task again, those that wait first.

    Exits with 0 if that is so, and with 1 if the task has ended or no process runs it.

    Args:
        task: The id of a run or of a task, or how it begins; or a path, such as
            '/editor/researcher[2]'.
        run: The run in which a path is looked for; by default the newest.
    """
    found, tree, id_ = find_task(journals_of(journal), task, run)
    try:
        send_request(found, Pause(id_, paused=False))
    except NotDoneError as exc:
        return report_not_done(exc)
    return report_done(f"unpaused: {tree[id_]['path']}")
