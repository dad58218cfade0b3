"""Requests of commands to the process that runs a run, over its control socket."""

import sys
from typing import Any

import trio

from orchestrator.cli.errors import CommandError
from orchestrator.cli.exit_codes import FAILED, SUCCEEDED
from orchestrator.cli.journal_queries import FoundRun, read_listed, read_run
from orchestrator.delegation import printable
from orchestrator.delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.kernel.control.client import RefusedError, connect_control
from orchestrator.kernel.control.server import AnswerApproval, ControlRequest
from orchestrator.kernel.journal.journals import Journals

SEARCHED_RUNS = 50
"""In how many of the newest runs an approval is looked for."""


class NotDoneError(Exception):
    """The request was understood, and could not be carried out."""


def send_request(found: FoundRun, request: ControlRequest) -> dict[str, Any]:
    """Send a request to the process that runs a run, and return its response.

    Raises:
        NotDoneError: no process runs it, or the process refused.
    """
    return trio.run(_send, found, request)


async def _send(found: FoundRun, request: ControlRequest) -> dict[str, Any]:
    not_there = f"no process of this machine runs {found.id}, or it has no control socket"
    if found.store.file is None:
        raise NotDoneError(not_there)
    async with connect_control(found.store.file) as client:
        if client is None:
            raise NotDoneError(not_there)
        try:
            return await client.request(request)
        except RefusedError as exc:
            raise NotDoneError(str(exc)) from exc


def report_done(done: str) -> int:
    """Print what was done, and return the exit code."""
    print(printable(done))
    return SUCCEEDED


def report_not_done(why: object) -> int:
    """Print why something was not done, and return the exit code."""
    print(f"orchestrator: not done: {printable(str(why))}", file=sys.stderr)
    return FAILED


def answer_approval(
    journals: Journals,
    approval: str | None,
    *,
    run: str | None,
    verdict: ApprovalVerdict,
    reason: str = "",
) -> int:
    """Answer an approval question, and return the exit code.

    Args:
        journals: where it is looked for.
        approval: how its id begins; None is the only one that is open.
        run: how the id of its run begins; None looks in the newest ones.
        verdict: the answer.
        reason: why.
    """
    found, question = _find_question(journals, approval, run)
    try:
        send_request(found, AnswerApproval(question.id, verdict, reason))
    except NotDoneError as exc:
        return report_not_done(exc)
    what = f"{question.path}  {question.tool}: {question.subject}"
    return report_done(f"{verdict}: {' '.join(what.split())}")


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
