"""`orchestrator cancel`: cancel a task, or a whole run, from another terminal or a script."""

from orchestrator.cli.control_requests import (
    NotDoneError,
    report_done,
    report_not_done,
    send_request,
)
from orchestrator.cli.options import JournalOption, journals_of
from orchestrator.cli.task_lookup import find_task
from orchestrator.kernel.control.server import Cancel


def cancel(task: str, /, *, run: str | None = None, journal: JournalOption = None) -> int:
    """Cancel a task with all below it, or a whole run, and wait until they have ended.

    Exits with 0 if it is cancelled, and with 1 if it had ended or no process runs it.

    Args:
        task: The id of a run or of a task, or how it begins; or a path, such as
            '/editor/researcher[2]'.
        run: The run in which a path is looked for; by default the newest.
    """
    found, tree, id_ = find_task(journals_of(journal), task, run)
    node = tree[id_]
    if node["ended"] is not None and not tree.tally(id_).unsettled:
        return report_not_done(f"{node['path']} has ended already: {node['status']}")
    try:
        send_request(found, Cancel(id_))
    except NotDoneError as exc:
        return report_not_done(exc)
    return report_done(f"cancelled: {node['path']}")
