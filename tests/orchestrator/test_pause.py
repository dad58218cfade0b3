"""Below a paused task nothing new starts; all of it starts in its order afterwards."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from orchestrator import EndedError, MemoryJournal, Orchestrator, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolMessage, Transcript
from orchestrator.delegation import Ending
from orchestrator.delegation.events import (
    Entry,
    SessionOpened,
    StartsPaused,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
)
from orchestrator.products.history.replay.run import replay_sync
from tests.kit import facts, hand_on, statuses, worker
from tests.orchestrator.test_replay import muted, recorded


def team() -> Agent:
    """Return a lead that asks for one task, and after 5 seconds for two at once."""

    def lead(transcript: Transcript) -> Any:
        answered = sum(isinstance(message, ToolMessage) for message in transcript)
        steps = (
            hand_on("first", background=False),
            hand_on("second", "third", background=False),
            "all done",
        )
        return steps[answered]

    model = ScriptedModel.always(lead)
    return Agent("lead", model=model, delegates=[worker(seconds=5)])


async def pause_in_the_middle(orchestrator: Orchestrator) -> None:
    """Run the team, pause it while its first task works, and unpause it an hour later."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(orchestrator.run, team(), "go")
        await trio.sleep(1)
        (run,) = orchestrator.runs
        await orchestrator.pause(run)
        await orchestrator.pause(run)
        await trio.sleep(3600)
        assert statuses(orchestrator.tree(run)) == {
            "/lead": "running",
            "/lead/worker[1]": "succeeded",
            "/lead/worker[2]": "queued",
            "/lead/worker[3]": "queued",
        }
        await orchestrator.unpause(run)


def test_paused_tasks_wait_and_a_replay_waits_too() -> None:
    entries = recorded(pause_in_the_middle)

    assert facts(entries, TurnEnded)[-1].outcome.output == "all done"
    assert [it.paused for it in facts(entries, StartsPaused)] == [True, False]
    assert replay_sync(entries, muted(team())).difference is None


async def finish(entries: Sequence[Entry]) -> list[Entry]:
    """Go on with the journal of a session, unpause it if it is paused, and wait until its end."""
    journal = MemoryJournal(entries)
    session_id = facts(entries, SessionOpened)[0].session
    async with (
        open_orchestrator(journal) as orchestrator,
        orchestrator.open_session(team(), session=session_id) as session,
    ):
        await trio.sleep(60)
        asked, started = (
            {it.request.id for it in facts(journal.entries, TaskRequested)},
            {it.task for it in facts(journal.entries, TaskStarted)},
        )
        was_paused = [it.paused for it in facts(entries, StartsPaused)] == [True]
        assert not was_paused or len(asked - started) == 2, "they wait here, too"
        await orchestrator.unpause(session.id)
        await session.wait_idle()
    return journal.entries


async def test_a_crash_after_any_entry_keeps_the_pause_and_the_waiting_tasks() -> None:
    journal = MemoryJournal()
    async with (
        open_orchestrator(journal) as orchestrator,
        orchestrator.open_session(team()) as session,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(session.ask, "go")
        await trio.sleep(1)
        await orchestrator.pause(session.id)
        await trio.sleep(60)
        await orchestrator.unpause(session.id)
    message = [type(it.event).__name__ for it in journal.entries].index("TurnStarted")

    for length in range(message, len(journal.entries)):
        entries = await finish(journal.entries[:length])
        settled = facts(entries, TaskSettled)
        assert [it.outcome.ending for it in settled] == [Ending.SUCCEEDED] * 3, length
        assert len({it.task for it in settled}) == 3, length


async def test_a_paused_tree_is_cancelled_with_all_that_waits() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, team(), "go")
            await trio.sleep(1)
            (run,) = orchestrator.runs
            await orchestrator.pause(run)
            await trio.sleep(60)
            await orchestrator.cancel(run, tree=True)
        assert orchestrator.tree(run).counts() == {"succeeded": 1, "cancelled": 3}


async def test_an_ended_task_cannot_be_paused() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(team(), "go")
        with pytest.raises(EndedError, match=r"^/lead/worker\[1\] has ended"):
            await orchestrator.pause(run.tree.children(run.tree.root)[0])
        with pytest.raises(EndedError, match=r"^/lead has ended"):
            await orchestrator.pause(run.id)
