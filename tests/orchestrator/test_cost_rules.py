"""`confirm("delegate_task", above_usd=...)`: a person decides on tasks that are estimated dear."""

from typing import Any

import pytest

from orchestrator import MemoryJournal, confirm, open_orchestrator
from orchestrator.agents import Agent, DefinitionError, Price, ToolCall
from orchestrator.delegation import Rules
from orchestrator.delegation.events import ApprovalAsked, TaskRequested
from orchestrator.testing import StreamingModel
from tests.kit import facts
from tests.orchestrator.approvals_kit import stepwise, tool_texts, turn_of

pytestmark = pytest.mark.realtime

DEAR = Price(input=10_000, output=20_000)
"""Micro-dollars of a token: every answer costs some dollars."""


def helper(price: Price | None = DEAR, **options: Any) -> Agent:
    return Agent("helper", model=StreamingModel.always("done", price=price), **options)


def team(tasks: int, above: float, worker: Agent, **arguments: Any) -> Agent:
    given = [{"goal": f"part {number}", "agent": "helper", **arguments} for number in range(tasks)]
    call = ToolCall("delegate_task", {"tasks": given, "background": False})
    return Agent(
        "lead",
        model=stepwise(call, tool_texts),
        delegates=[worker],
        approve=[confirm("delegate_task", above_usd=above)],
    )


async def test_person_reads_the_figures_of_tasks_above_the_threshold() -> None:
    async with turn_of(team(3, 2, helper())) as turn:
        question = await turn.answer("once")
        reply = await turn.reply()

    assert question.tool == "delegate_task"
    assert question.why.startswith("3 tasks would cost about $")
    assert "3 × helper $" in question.why
    assert question.why.endswith("the rule asks above $2.00")
    assert reply.count('"status":"succeeded"') == 3


async def test_denied_tasks_do_not_start() -> None:
    async with turn_of(team(3, 2, helper())) as turn:
        await turn.answer("deny", "too dear")
        reply = await turn.reply()
        tree = turn.session.tree

    assert "delegate_task was denied by Ann: too dear" in reply
    assert len(tree) == 1


@pytest.mark.parametrize("price", [Price(), Price(input=0.001, output=0.001)])
async def test_tasks_below_the_threshold_start_without_a_question(price: Price) -> None:
    async with turn_of(team(2, 2, helper(price))) as turn:
        reply = await turn.reply()

    assert reply.count('"status":"succeeded"') == 2


async def test_unknown_price_is_asked_about() -> None:
    async with turn_of(team(1, 1_000_000, helper(None))) as turn:
        question = await turn.answer("once")
        reply = await turn.reply()

    assert question.why.startswith("the price of helper is unknown")
    assert '"status":"succeeded"' in reply


async def test_threshold_of_an_ancestor_holds_for_its_descendants() -> None:
    call = ToolCall("delegate_task", {"goal": "x", "agent": "helper", "background": False})
    middle = Agent("middle", model=stepwise(call, tool_texts), delegates=[helper()])
    start = ToolCall("delegate_task", {"goal": "x", "agent": "middle", "background": False})
    lead = Agent(
        "lead",
        model=stepwise(start, tool_texts),
        delegates=[middle],
        approve=[confirm("delegate_task", above_usd=1)],
    )
    async with turn_of(lead) as turn:
        first = await turn.answer("once")
        second = await turn.answer("once")
        await turn.reply()

    assert "1 × middle" in first.why
    assert "1 × helper" in second.why


async def test_run_without_people_is_refused_with_the_figures() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(team(3, 2, helper()), "go")

    assert "delegate_task needs an approval, and no person can be asked here" in run.output
    assert "3 tasks would cost about $" in run.output


async def test_crash_after_the_question_asks_once() -> None:
    journal = MemoryJournal()
    agent = team(3, 2, helper())
    async with open_orchestrator(journal) as orchestrator:
        async with turn_of(agent, orchestrator=orchestrator) as turn:
            question = await turn.answer("once")
            await turn.reply()
            session = turn.session.id
    asked = next(
        number for number, it in enumerate(journal.entries) if isinstance(it.event, ApprovalAsked)
    )

    again = MemoryJournal(journal.entries[: asked + 1])
    async with open_orchestrator(again) as orchestrator:
        async with orchestrator.open_session(agent, session=session) as resumed:
            await resumed.answer(question.id, "once")
            await resumed.wait_idle()
    assert len(facts(again.entries, ApprovalAsked)) == 1
    assert len(facts(again.entries, TaskRequested)) == 3


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf"), "2"])
def test_threshold_is_an_amount_of_dollars(amount: Any) -> None:
    with pytest.raises(DefinitionError, match="above_usd"):
        confirm("delegate_task", above_usd=amount)


def test_threshold_is_for_delegate_task() -> None:
    with pytest.raises(DefinitionError, match="above_usd is for delegate_task"):
        confirm("terminal", above_usd=2)
    assert confirm("*", above_usd=2).above_usd == 2


async def test_wrong_arguments_are_refused_by_the_tool() -> None:
    async with open_orchestrator(":memory:", rules=Rules()) as orchestrator:
        run = await orchestrator.run(team(1, 0, helper(), goal=5), "go")

    assert "delegate_task" in run.output
    assert len(run.tree) == 1


def scripter(code: str, above: float) -> Agent:
    call = ToolCall("run_script", {"code": code, "goal": "Ask thrice", "background": False})
    return Agent(
        "lead",
        model=stepwise(call, tool_texts),
        delegates=[helper()],
        scripts=True,
        approve=[confirm("run_script", above_usd=above)],
    )


THRICE = 'len(await gather(*[agent("helper", f"part {n}") for n in range(3)]))'


async def test_a_script_above_the_threshold_needs_a_person_who_reads_its_price() -> None:
    async with turn_of(scripter(f"total = 0\n{THRICE}", 2)) as turn:
        question = await turn.answer("once")
        reply = await turn.reply()

    assert question.tool == "run_script"
    assert question.why.startswith("the script would cost about $")
    assert question.subject == f"total = 0\n{THRICE}"
    assert question.details == '{"background":false,"goal":"Ask thrice"}'
    assert "3" in reply


async def test_a_script_below_the_threshold_starts_without_a_question() -> None:
    async with turn_of(scripter(THRICE, 1_000_000)) as turn:
        assert "3" in await turn.reply()


async def test_a_script_whose_cost_depends_on_the_answers_needs_a_person() -> None:
    async with turn_of(scripter('int(await agent("helper", "how many?"))', 1_000_000)) as turn:
        question = await turn.answer("deny")
        await turn.reply()

    assert "depends on the answers" in question.why
