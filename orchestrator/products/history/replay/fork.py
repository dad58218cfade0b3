"""Forks and retries: a new run that begins with facts of an old run.

The old run has ended, or its process died. Forks differ only in the facts that the new run keeps
(`KeptFacts`).
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import trio

from orchestrator.agents import Agent, raising_one_error
from orchestrator.delegation import DeliveryCapability, SessionId, SessionRecord
from orchestrator.delegation.events import Entry
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.execution import reachable_agents
from orchestrator.ports.sessions import ForkState, ForkTerms, Run, Sessions, open_session, run_fork
from orchestrator.products.history.replay.kept_facts import KeptFacts, facts_before, facts_without
from orchestrator.products.history.replay.record import RecordedRun, ReplayError
from orchestrator.products.history.replay.session_copy import CopiedRun


async def fork_run(
    sessions: Sessions,
    agent: Agent[Any],
    run: str,
    task: str,
    terms: ForkTerms,
    *,
    deps: object = None,
) -> Run[Any]:
    """Copy the kept facts of a run, and continue the copy until it is settled."""
    sessions.facts.require_running()
    if terms.change is not None:
        for each in reachable_agents(agent):
            sessions.registry.require_models(terms.change(each), deps)
    entries = await sessions.read.entries(SessionId(run))
    old = sessions.read.records.sessions.get(SessionId(run))
    keep = facts_without if terms.only else facts_before
    copied = copy_run(keep, entries, agent, old, task, run=run)
    session = copied.post(sessions, agent, sessions.new_session_id(), deps=deps, terms=terms)
    return await run_fork(
        sessions, agent, session, partial(_proceed, sessions, agent, session, copied, deps)
    )


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


async def _proceed(
    sessions: Sessions, agent: Agent[Any], session: SessionRecord, copied: CopiedRun, deps: object
) -> BaseException | None:
    """Continue the copy of a run until it is settled, and return the error that ended it."""
    is_awaited = (
        copied.record.is_one_shot
        if session.turn is None
        else session.turn.capability is DeliveryCapability.NONE
    )
    if not is_awaited:
        if session.state(ForkState).stops_at:
            await _run_detached(sessions, session)
        else:
            await _run_until_idle(sessions, agent, session, deps)
        return None
    if session.turn is None:
        sessions.turns.begin(session, DeliveryCapability.NONE)
    return (await sessions.turns.take(session)).error


async def _run_detached(sessions: Sessions, session: SessionRecord) -> None:
    """Run the detached tasks of a session, without a door that would wake it, until cancelled."""
    with raising_one_error():
        # Owns the tasks that ran at the fork point; the others start when they have a slot.
        async with trio.open_nursery() as nursery:
            for task in session.unsettled_detached.values():
                if task.is_running:
                    nursery.start_soon(sessions.delegator.run_child, task.id)
            await trio.sleep_forever()


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
