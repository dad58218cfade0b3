"""Runs with approvals replay alike."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, Patience, ToolCall, confirm, deny
from orchestrator.delegation import SessionId
from orchestrator.delegation.events import ApprovalAsked
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.products.history.replay.run import replay_sync
from tests.kit import facts, hand_on
from tests.orchestrator.approvals_kit import ANN, ASKS, Shell, run, stepwise, tool_texts, turn_of
from tests.orchestrator.test_replay import muted, on_a_jumping_clock


def recorded(
    agent: Agent, answers: Callable[[ApprovalQuestion], tuple[str, float] | None]
) -> list[Any]:
    """Return the journal of a session whose questions are answered after a while."""
    journal = MemoryJournal()

    async def turn() -> None:
        async with open_orchestrator(journal) as orchestrator:
            async with turn_of(agent, orchestrator=orchestrator) as it:
                async with trio.open_nursery() as nursery:

                    async def answer_all() -> None:
                        async for question in it.session.questions:
                            if (answer := answers(question)) is not None:
                                await trio.sleep(answer[1])
                                await it.session.answer(question.id, answer[0])

                    nursery.start_soon(answer_all)
                    await it.reply()
                    await it.session.wait_idle()
                    nursery.cancel_scope.cancel()

    on_a_jumping_clock(turn)
    return journal.entries


def mixed() -> Agent:
    shell = Shell(seconds=2)
    child = shell.agent([run("a"), run("b")], run("late"), tool_texts, name="child")
    return shell.agent(
        hand_on("x", "y", background=True),
        run("a"),
        ToolCall("task", {"action": "list"}),
        run("no"),
        hand_on("z", background=False),
        "end",
        rules=[deny("terminal", command="no"), confirm("terminal", seconds=900)],
        delegates=[child],
    )


def mixed_answers(question: ApprovalQuestion) -> tuple[str, float] | None:
    if question.subject == "late":
        return None
    return ("session", 3) if question.subject == "a" else ("deny", 30)


def test_a_run_with_approvals_is_the_same_again() -> None:
    agent = mixed()
    entries = recorded(agent, mixed_answers)

    replayed = replay_sync(entries, muted(agent))

    assert len(facts(entries, ApprovalAsked)) > 3
    assert "waiting" in repr(entries)
    assert replayed.difference is None, replayed.difference


def test_a_run_with_a_denied_delegation_replays_identically() -> None:
    child = Agent("child", model=stepwise("done"))
    for rule in (confirm("delegate_task"), deny("delegate_task")):
        agent = Agent(
            "main", model=stepwise(hand_on("a"), tool_texts), delegates=[child], approve=[rule]
        )
        entries = recorded(agent, lambda _: ("deny", 5))
        replayed = replay_sync(entries, muted(agent))

        assert replayed.difference is None, replayed.difference


def test_a_replayed_wait_for_approval_does_not_stall() -> None:
    shell = Shell(seconds=20)
    child = shell.agent(
        run("x"), "end", name="child", patience=Patience(quiet=5, stalled=30, stalled_in_tool=30)
    )
    agent = Agent(
        "main",
        model=stepwise(hand_on("a", background=False), tool_texts),
        delegates=[child],
        approve=ASKS,
    )
    entries = recorded(agent, lambda _: ("once", 119))
    replayed = replay_sync(entries, muted(agent))

    assert shell.ran == ["x"]
    assert replayed.difference is None, replayed.difference


@pytest.mark.memory_only
async def test_a_fork_of_an_attended_run_is_unattended() -> None:
    shell = Shell()
    agent = shell.agent(run("x"), tool_texts, rules=ASKS)

    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(orchestrator.run, agent, "go", attended=True))
            await trio.testing.wait_all_tasks_blocked()
            (question,) = orchestrator.approvals
            await orchestrator.answer(question.id, "session", by=ANN)
        (first,) = orchestrator.runs
        fork = await orchestrator.fork(agent, first, task="/main")

    assert "no person can be asked here" in fork.output
    assert fork.id != SessionId(first)
    assert shell.ran == ["x"]
