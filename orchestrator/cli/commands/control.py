"""`orchestrator cancel`, `pause`, `unpause`, `message`, `approve`, `deny`: act on a live run."""

import sys
from typing import Annotated, Any, Literal

import trio
from cyclopts import Parameter

from orchestrator.cli.errors import CommandError
from orchestrator.cli.exit_codes import FAILED, SUCCEEDED
from orchestrator.cli.journal_queries import FoundRun, read_listed, read_run
from orchestrator.cli.options import JournalOption, RunOfPath, journals_of
from orchestrator.cli.task_lookup import find_task
from orchestrator.delegation import printable
from orchestrator.delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.ports import control
from orchestrator.ports.journals import Journals

SEARCHED_RUNS = 50
"""The number of newest runs that are searched for an approval."""


TaskArgument = Annotated[
    str,
    Parameter(
        help="The id of a run or a task, or the start of an id; or a path, such as"
        " '/editor/researcher[2]'."
    ),
]
ApprovalArgument = Annotated[
    str | None,
    Parameter(help="The id of the question, or its start; by default the only one that waits."),
]
RunningRun = Annotated[
    str | None, Parameter(help="The run to look in; by default all running ones.")
]


class NotDoneError(Exception):
    """The request was understood, but could not be carried out."""


def cancel(task: TaskArgument, /, *, run: RunOfPath = None, journal: JournalOption = None) -> int:
    """Cancel a task and all tasks below it, or a whole run, and wait until they have ended.

    Exits with 0 if it was cancelled, and with 1 if it had ended or no process runs it.
    """
    found, tree, id_ = find_task(journals_of(journal), task, run)
    node = tree[id_]
    if node.ended is not None and not tree.tally(id_).unsettled:
        return _report_not_done(f"{node.path} has ended already: {node.status}")
    return _do(found, control.Cancel(id_), f"cancelled: {node.path}")


def pause(task: TaskArgument, /, *, run: RunOfPath = None, journal: JournalOption = None) -> int:
    """Start no new task below a task, or in a whole run, until it is unpaused.

    Running tasks go on. The tasks that they delegate wait in the queue, also in the next process,
    and their deadlines keep running. Exits with 0 if the task is paused, and with 1 if it has ended
    or no process runs it.
    """
    found, tree, id_ = find_task(journals_of(journal), task, run)
    done = f"paused: no new task starts below {tree[id_].path}"
    return _do(found, control.Pause(id_, paused=True), done)


def unpause(task: TaskArgument, /, *, run: RunOfPath = None, journal: JournalOption = None) -> int:
    """Start tasks below a paused task again; the waiting ones start first.

    Exits with 0 if the task is unpaused, and with 1 if it has ended or no process runs it.
    """
    found, tree, id_ = find_task(journals_of(journal), task, run)
    return _do(found, control.Pause(id_, paused=False), f"unpaused: {tree[id_].path}")


def message(
    task: TaskArgument, text: str, /, *, run: RunOfPath = None, journal: JournalOption = None
) -> int:
    """Send a message to a running task, which reads it before its next model call.

    Exits with 0 if it will be read, and with 1 if the task has ended or no process runs it.

    Args:
        text: The message.
    """
    if not text.strip():
        raise CommandError("there is nothing to tell: the message is empty")
    found, tree, id_ = find_task(journals_of(journal), task, run)
    path = tree[id_].path
    return _do(
        found, control.Steer(id_, text), f"told: {path} reads it before its next model call", path
    )


def approve(
    approval: ApprovalArgument = None,
    /,
    *,
    scope: Annotated[Literal["once", "task", "session"], Parameter(name="--for")] = "once",
    run: RunningRun = None,
    journal: JournalOption = None,
) -> int:
    """Approve a call that waits for an approval.

    Exits with 0 if it was approved, and with 1 if it no longer waits.

    Args:
        scope: Approve it once, or also the same call later in its task or its session.
    """
    return _answer(journals_of(journal), approval, run, ApprovalVerdict(scope))


def deny(
    approval: ApprovalArgument = None,
    /,
    *,
    why: str = "",
    run: RunningRun = None,
    journal: JournalOption = None,
) -> int:
    """Deny a call that waits for an approval.

    Exits with 0 if it was denied, and with 1 if it no longer waits.

    Args:
        why: The reason, which the agent reads.
    """
    return _answer(journals_of(journal), approval, run, ApprovalVerdict.DENY, why)


def _answer(
    journals: Journals,
    approval: str | None,
    run: str | None,
    verdict: ApprovalVerdict,
    reason: str = "",
) -> int:
    found, question = _find_question(journals, approval, run)
    what = f"{question.path}  {question.tool}: {question.subject}"
    request = control.AnswerApproval(question.id, verdict, reason)
    return _do(found, request, f"{verdict}: {' '.join(what.split())}")


def _do(found: FoundRun, request: control.ControlRequest, done: str, path: str = "") -> int:
    """Send a request to the process of a run, print the result, and return the exit code."""
    try:
        state = trio.run(_send, found, request).get("state")
    except NotDoneError as exc:
        return _report_not_done(str(exc))
    if state in {"gone", "too_late"}:
        return _report_not_done(f"{path} has ended already")
    print(printable(done))
    return SUCCEEDED


async def _send(found: FoundRun, request: control.ControlRequest) -> dict[str, Any]:
    not_there = f"no process of this machine runs {found.id}, or it has no control socket"
    if found.store.file is None:
        raise NotDoneError(not_there)
    async with control.connect_control(found.store.file) as client:
        if client is None:
            raise NotDoneError(not_there)
        try:
            return await client.request(request)
        except control.RefusedError as exc:
            raise NotDoneError(str(exc)) from exc


def _report_not_done(why: str) -> int:
    print(f"orchestrator: not done: {printable(why)}", file=sys.stderr)
    return FAILED


def _find_question(
    journals: Journals, approval: str | None, run: str | None
) -> tuple[FoundRun, ApprovalQuestion]:
    matching = [
        (found, question)
        for found in _searched_runs(journals, run)
        for question in found.fold().open_questions.values()
        if approval is None or question.id.startswith(approval)
    ]
    if not matching:
        which = "nothing waits" if approval is None else f"no {approval!r} waits"
        raise CommandError(f"{which} for an approval; see: orchestrator runs")
    if len(matching) > 1:
        asked = (f"{it.id} ({it.path} {it.tool}: {it.subject})" for _, it in matching)
        raise CommandError(f"{len(matching)} wait, say which: {'; '.join(asked)}")
    return matching[0]


def _searched_runs(journals: Journals, run: str | None) -> list[FoundRun]:
    if run is not None:
        return [read_run(journals, run)]
    listed = journals.sessions(newest=SEARCHED_RUNS).sessions
    return [
        read_listed(journals, it.journal, it.id)
        for it in listed
        # A question that no process waits for cannot be answered.
        if journals.store(it.journal).writer() is not None
    ]
