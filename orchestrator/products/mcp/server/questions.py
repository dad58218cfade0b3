"""Questions of a run to the user of an MCP client: which calls of tools may run.

A client that waits for its response is asked over its open connection. Any other client gets the
questions in a result, and answers with another request.
"""

from collections.abc import Mapping
from typing import Any

import trio

from orchestrator.agents import raising_one_error
from orchestrator.delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.products.mcp.server import results
from orchestrator.products.mcp.server.caller import Ask, Caller, HeldRun


async def answer_questions(caller: Caller, held: HeldRun, answers: Mapping[str, Any]) -> None:
    """Answer questions of a run. An answer without an open question is ignored."""
    await trio.lowlevel.checkpoint()
    for question in held.journal.orchestrator.read.open_questions(held.session.id):
        if question.id in answers:
            await _answer(caller, held, question, answers[question.id])


async def _answer(
    caller: Caller, held: HeldRun, question: ApprovalQuestion, answer: object
) -> None:
    orchestrator = held.journal.orchestrator
    # Another client may have answered it meanwhile.
    if question.id not in orchestrator.read.records.open_questions:
        await trio.lowlevel.checkpoint()
        return
    verdict, reason = _verdict_of(answer)
    # No checkpoint until it is posted: the question is still open.
    caller.record(question.id)
    await orchestrator.answer(question.id, verdict, reason=reason, by=caller.name)


async def ask_user(caller: Caller, held: HeldRun, ask: Ask, scope: trio.CancelScope) -> None:
    """Ask the user about each question of a run, until the scope is cancelled."""
    read, id_ = held.journal.orchestrator.read, held.session.id
    asked: set[str] = set()

    async def ask_about(question: ApprovalQuestion) -> None:
        await caller.wait_durable()
        await _answer(caller, held, question, await ask(results.form_of(question)))

    with raising_one_error(), scope:
        # Owns the forms that the user has not filled in.
        async with trio.open_nursery() as nursery:
            while True:
                for question in read.open_questions(id_):
                    if question.id not in asked:
                        asked.add(question.id)
                        nursery.start_soon(ask_about, question)
                await read.wait_session_changed(id_)


def _verdict_of(answer: object) -> tuple[ApprovalVerdict, str]:
    """Return the verdict of a client's user on a call. Anything but a clear yes is a no."""
    given = results.as_object(answer)
    is_accepted = given.get("action") == "accept"
    content = results.as_object(given.get("content") if is_accepted else None)
    reason = content.get(results.REASON)
    is_confirmed = content.get(results.CONFIRM) is True
    verdict = ApprovalVerdict.ONCE if is_confirmed else ApprovalVerdict.DENY
    return verdict, reason if isinstance(reason, str) else ""
