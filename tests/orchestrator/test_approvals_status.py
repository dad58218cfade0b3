"""A task that waits for approval is shown so, and its question ends with it."""

import pytest
import trio
import trio.testing

from orchestrator import ClosedError, MemoryJournal, UnknownIdError, open_orchestrator
from orchestrator.agents import Agent, Limits, Patience, confirm
from orchestrator.delegation.events import QuietChanged
from tests.kit import facts, hand_on
from tests.orchestrator.approvals_kit import ASKS, Shell, run, stepwise, tool_texts, turn_of


@pytest.mark.parametrize("background", [False, True])
async def test_a_task_that_waits_for_approval_is_shown_as_waiting(background: bool) -> None:
    shell = Shell(seconds=5)
    child = shell.agent(run("x"), tool_texts, rules=ASKS, name="child")
    lead = Agent(
        "main", model=stepwise(hand_on("go", background=background), "end"), delegates=[child]
    )
    async with turn_of(lead) as turn:
        question = await turn.question()
        await turn.wait_blocked()
        above = "waiting" if background else "running"
        assert turn.status("/main/child[1]") == "waiting"
        assert turn.status("/main") == above
        assert turn.session.tree.to_text().count("waiting") == 1 + background

        await turn.session.answer(question.id, "once")
        assert turn.status("/main/child[1]") == "running"
        await turn.session.wait_idle()
        assert turn.status("/main/child[1]") == "succeeded"


async def test_a_session_that_waits_for_approval_is_shown_as_waiting() -> None:
    shell = Shell(seconds=5)

    async with turn_of(shell.agent(run("x"), tool_texts, rules=ASKS)) as turn:
        question = await turn.question()
        assert turn.status("/main") == "waiting"
        await turn.session.answer(question.id, "once")
        assert turn.status("/main") == "running"
        await turn.reply()
        assert turn.status("/main") == "succeeded"


async def test_a_task_that_waits_for_approval_is_neither_quiet_nor_stalled() -> None:
    shell = Shell()
    child = shell.agent(
        run("x"),
        "end",
        rules=[confirm("terminal", seconds=10_000)],
        name="child",
        patience=Patience(quiet=10, stalled=20, stalled_in_tool=30),
    )
    lead = Agent(
        "main", model=stepwise(hand_on("a", background=False), tool_texts), delegates=[child]
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with turn_of(lead, orchestrator=orchestrator) as turn:
            question = await turn.question()
            await trio.sleep(5_000)
            await turn.session.answer(question.id, "once")
            assert '"end"' in await turn.reply()

    assert facts(journal.entries, QuietChanged) == []


async def test_an_approval_is_a_sign_of_life() -> None:
    shell = Shell(seconds=20)
    child = shell.agent(
        run("x"),
        "end",
        rules=ASKS,
        name="child",
        patience=Patience(quiet=None, stalled=30, stalled_in_tool=30),
    )
    lead = Agent(
        "main", model=stepwise(hand_on("a", background=False), tool_texts), delegates=[child]
    )
    async with turn_of(lead) as turn:
        question = await turn.question()
        # Just before the watchdog looks at it again.
        await trio.sleep(59)
        await turn.session.answer(question.id, "once")
        assert '"end"' in await turn.reply()


async def test_the_seconds_of_a_task_go_on_while_it_waits() -> None:
    shell = Shell()
    agent = shell.agent(run("x"), tool_texts, rules=ASKS, limits=Limits(seconds=30))

    async with turn_of(agent) as turn:
        assert "timed_out" in await turn.reply()
        assert turn.session.open_questions == []
        assert turn.orchestrator.approvals == []


async def test_a_turn_that_is_cancelled_takes_its_question_along() -> None:
    shell = Shell()

    async with turn_of(shell.agent(run("x"), tool_texts, rules=ASKS)) as turn:
        question = await turn.question()
        await turn.orchestrator.cancel(turn.session.id)
        assert "cancelled" in await turn.reply()
        assert turn.session.open_questions == []
        with pytest.raises(UnknownIdError):
            await turn.session.answer(question.id, "once")

    assert shell.ran == []


async def test_a_joined_child_is_cancelled_with_its_question() -> None:
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, rules=ASKS, name="child")
    lead = Agent(
        "main", model=stepwise(hand_on("a", background=False), tool_texts), delegates=[child]
    )
    async with turn_of(lead) as turn:
        await turn.question()
        await turn.orchestrator.cancel(turn.session.id)
        assert turn.orchestrator.approvals == []

    assert shell.ran == []


async def test_a_cancelled_run_withdraws_its_question() -> None:
    shell = Shell()
    agent = shell.agent(run("x"), tool_texts, rules=ASKS)

    async with open_orchestrator(":memory:") as orchestrator:
        with trio.move_on_after(5):
            await orchestrator.run(agent, "go", attended=True)
        assert orchestrator.approvals == []

    assert shell.ran == []


async def test_a_process_that_leaves_in_a_hurry_takes_a_question_of_a_run_along() -> None:
    shell = Shell()
    agent = shell.agent(run("x"), tool_texts, rules=ASKS)
    journal = MemoryJournal()

    async with open_orchestrator(journal) as orchestrator:
        async with trio.open_nursery() as nursery:

            async def begin() -> None:
                with pytest.raises(ClosedError):
                    await orchestrator.run(agent, "go", attended=True)

            nursery.start_soon(begin)
            await trio.testing.wait_all_tasks_blocked()
            assert orchestrator.approvals
            await orchestrator.abandon()

    async with open_orchestrator(MemoryJournal(journal.entries)) as orchestrator:
        assert orchestrator.approvals == []
    assert shell.ran == []
