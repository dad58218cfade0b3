"""`orchestrator message`: tell a running task something, from another terminal or a script."""

from orchestrator.cli.control_requests import (
    NotDoneError,
    report_done,
    report_not_done,
    send_request,
)
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import JournalOption, journals_of
from orchestrator.cli.task_lookup import find_task
from orchestrator.kernel.control.server import Steer


def message(
    task: str, text: str, /, *, run: str | None = None, journal: JournalOption = None
) -> int:
    """Send a message to a running task, which reads it before its next model call.

    Exits with 0 if it will be read, and with 1 if the task has ended or no process runs it.

    Args:
        task: The id of a run or of a task, or how it begins; or a path, such as
            '/editor/researcher[2]'.
        text: The message.
        run: The run in which a path is looked for; by default the newest.
    """
    if not text.strip():
        raise CommandError("there is nothing to tell: the message is empty")
    found, tree, id_ = find_task(journals_of(journal), task, run)
    path = tree[id_]["path"]
    try:
        state = send_request(found, Steer(id_, text)).get("state")
    except NotDoneError as exc:
        return report_not_done(exc)
    if state in {"gone", "too_late"}:
        return report_not_done(f"{path} has ended already")
    return report_done(f"told: {path} reads it before its next model call")
