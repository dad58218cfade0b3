"""Forks and retries: a new run that begins with facts of an old run.

The old run has ended, or its process died. A fork and a retry differ only in the facts that the new
run keeps (`KeptFacts`).
"""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import trio

from orchestrator.agents import Agent, raising_one_error
from orchestrator.delegation import DeliveryCapability, SessionId, SessionRecord
from orchestrator.delegation.events import Entry
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.sessions import Run, Sessions, ended_run, open_session
from orchestrator.products.history.replay.kept_facts import KeptFacts, facts_before, facts_without
from orchestrator.products.history.replay.record import RecordedRun, ReplayError
from orchestrator.products.history.replay.session_copy import CopiedRun

OutputT = TypeVar("OutputT")


async def fork_run(
    sessions: Sessions, agent: Agent[OutputT], run: str, task: str, *, deps: object = None
) -> Run[OutputT]:
    """Copy a run up to the request of a task, and continue the copy."""
    return await _run_copy(sessions, agent, run, task, keep=facts_before, deps=deps)


async def retry_task(
    sessions: Sessions, agent: Agent[OutputT], run: str, task: str, *, deps: object = None
) -> Run[OutputT]:
    """Copy a run without the end of a task and its consequences, and continue the copy."""
    return await _run_copy(sessions, agent, run, task, keep=facts_without, deps=deps)


def copy_run(
    keep: KeptFacts,
    entries: Sequence[Entry],
    agent: Agent[Any],
    session: SessionRecord | None,
    task: str,
    *,
    run: str,
    most: float = math.inf,
) -> CopiedRun:
    """Return the facts of a run that a new run begins with.

    `keep` is `facts_before` a task for a fork, `facts_without` its end for a retry. The entries are
    of the run alone. A run has at most `most` facts: the copy blocks all other work. Raise
    `UnknownIdError` if there is no such run or task, and `ReplayError` if the run has not ended, is
    too large, belongs to another agent, or lost a task in a crash; or the task cannot be retried.
    """
    if len(entries) > most:
        raise ReplayError(
            f"run {run} has {len(entries):,} facts, and a server copies at most {most:,}: use"
            " `orchestrator retry` or `orchestrator fork`"
        )
    record = RecordedRun(entries, run)
    record.require_replayable(agent)
    if not (record.is_whole or session is None or session.awaits_resume):
        raise ReplayError(
            f"run {run} has not ended, and can go on: only a run that has ended, or whose process"
            " died, can be forked or have a task retried"
        )
    tasks = record.ledger.tasks
    found = [it.id for it in tasks.values() if task in {it.id, it.path}]
    if not found:
        raise UnknownIdError(f"run {record.run} has no task {task!r}")
    return CopiedRun(record=record, task=found[0], facts=keep(record, found[0]))


async def _run_copy(
    sessions: Sessions, agent: Agent[OutputT], run: str, task: str, *, keep: KeptFacts, deps: object
) -> Run[OutputT]:
    """Post the copy of a run, and wait until it is settled."""
    sessions.facts.require_running()
    entries = await sessions.read.entries(SessionId(run))
    old = sessions.read.records.sessions.get(SessionId(run))
    copied = copy_run(keep, entries, agent, old, task, run=run)
    session = copied.post(sessions, agent, sessions.new_session_id(), deps=deps)
    is_awaited = (
        copied.record.is_one_shot
        if session.turn is None
        else session.turn.capability is DeliveryCapability.NONE
    )
    error: BaseException | None = None
    if not is_awaited:
        await _run_until_idle(sessions, agent, session, deps)
    else:
        if session.turn is None:
            sessions.turns.begin(session, DeliveryCapability.NONE)
        error = (await sessions.turns.take(session)).error
    assert session.last_outcome is not None, "a turn has ended"
    return ended_run(sessions, agent, session, session.last_outcome, error)


async def _run_until_idle(
    sessions: Sessions, agent: Agent[Any], session: SessionRecord, deps: object
) -> None:
    """Run a session until it is idle."""
    running = [task.id for task in session.unsettled_detached.values() if task.is_running]
    is_in_turn = session.turn is not None
    with raising_one_error():
        # Owns the tasks that ran at the fork point.
        async with trio.open_nursery() as nursery:
            async with open_session(sessions, agent, session.id, deps=deps) as door:
                for task in running:
                    nursery.start_soon(sessions.delegator.run_child, task)
                if is_in_turn:
                    nursery.start_soon(sessions.turns.take_and_deliver, session)
                await door.wait_idle()
