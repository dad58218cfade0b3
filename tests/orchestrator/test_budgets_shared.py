"""Blocks, runs, sessions, turns and agents share a budget."""

from typing import Any

import trio

from orchestrator import budget, open_orchestrator
from orchestrator.agents import Agent, Budget, ScriptedModel, ToolCall, Transcript, tool
from orchestrator.delegation import Ending, Outcome
from tests.kit import hand_on
from tests.orchestrator.budgets_kit import Meter, chatty, endings, lead


async def test_budgets_nest_and_an_inner_one_only_tightens() -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok")))
    outcomes: list[Outcome] = []
    async with open_orchestrator(":memory:") as orchestrator:

        async def ask() -> None:
            outcomes.append((await orchestrator.run(agent, "go")).outcome)

        with budget(calls=3, name="outer"):
            with budget(calls=1, name="small"):
                await ask()
                await ask()
            with budget(calls=100, name="large"):
                await ask()
                await ask()
                await ask()
        await ask()

    assert [outcome.ending.value for outcome in outcomes] == [
        "succeeded",
        "over_budget",
        "succeeded",
        "succeeded",
        "over_budget",
        "succeeded",
    ]
    assert "'small'" in outcomes[1].error
    assert "'outer'" in outcomes[4].error
    assert meter.calls == 4


async def test_concurrent_runs_share_the_budget_around_them() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            with budget(calls=7):
                for _ in range(5):
                    top = lead(meter, 5, meter.worker())
                    nursery.start_soon(orchestrator.run, top, "go")

    assert meter.calls == 7


async def test_one_orchestrator_does_not_pay_for_another() -> None:
    """A budget is in the journal of the orchestrator that runs, and counts there."""
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok")))
    with budget(calls=1):
        async with open_orchestrator(":memory:") as orchestrator:
            await orchestrator.run(agent, "go")
            run = await orchestrator.run(agent, "go")

    assert run.outcome.ending is Ending.OVER_BUDGET


async def test_a_budget_around_a_session_is_for_all_that_it_ever_does() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=4):
            opened = orchestrator.open_session(chatty(meter, meter.worker()))
            session = await opened.__aenter__()
        # Neither is said inside of the block: the session was opened there.
        first = await session.ask("go")
        await session.wait_idle()
        news = session.replies.receive_nowait()
        second = await session.ask("go on")
        await opened.__aexit__(None, None, None)

    assert first.outcome.succeeded
    assert news.outcome.succeeded
    assert second.outcome.ending is Ending.OVER_BUDGET
    assert meter.calls == 4


async def test_a_budget_around_one_question_covers_its_turn_and_its_tasks() -> None:
    @tool
    async def look() -> str:
        await trio.sleep(50)
        return "seen"

    meter = Meter()
    helper = meter.worker(says=ToolCall("look"), tools=[look])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(chatty(meter, helper)) as session:
            with budget(calls=4):
                asked = await session.ask("go")
            await session.wait_idle()
            news = session.replies.receive_nowait()
            (task,) = session.tree.children(session.tree.root)

    assert asked.outcome.succeeded
    # Two for the turn, two for the task; its third one was too many.
    assert session.tree[task].status == "over_budget"
    assert session.tree[task].usage.calls == 2
    # The turn that reads the news was not asked for in the block.
    assert news.text == "news"
    assert meter.calls == 5


async def test_questions_share_the_budget_of_their_block_only() -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok")))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            with budget(calls=2):
                inside = [(await session.ask("go")).outcome.ending for _ in range(3)]
            after = (await session.ask("go")).outcome.ending

    assert inside == [Ending.SUCCEEDED, Ending.SUCCEEDED, Ending.OVER_BUDGET]
    assert after is Ending.SUCCEEDED


async def test_questions_that_one_turn_reads_are_all_paid_for() -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok", 10)))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "first")
                await trio.sleep(1)
                nursery.start_soon(session.ask, "second")
                with budget(calls=0, name="none"):
                    reply = await session.ask("third")

    assert reply.outcome.ending is Ending.OVER_BUDGET
    assert "'none'" in reply.outcome.error


async def test_the_budget_of_an_agent_bounds_each_of_its_tasks() -> None:
    @tool
    async def again() -> str:
        await trio.lowlevel.checkpoint()
        return "and again"

    meter = Meter()
    child = meter.worker(says=ToolCall("again"), tools=[again], budget=Budget(calls=2, name="each"))
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead(meter, 3, child), "go")
    children = run.tree.children(run.tree.root)

    assert run.outcome.succeeded
    assert [run.tree[task].usage.calls for task in children] == [2, 2, 2]
    assert [run.tree[task].error for task in children] == [
        f"the budget 'each' (calls=2) of /top/worker[{number}] is used up: 2 model calls made"
        for number in (1, 2, 3)
    ]


async def test_the_budget_of_an_agent_bounds_its_whole_subtree() -> None:
    meter = Meter()
    middle = Agent(
        "middle",
        model=meter.on(ScriptedModel.always(hand_on("x", "y", "z"))),
        delegates=[meter.worker()],
        budget=Budget(calls=3),
    )
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead(meter, 2, middle), "go")
        ended = endings(orchestrator)
    children = run.tree.children(run.tree.root)

    assert run.outcome.succeeded
    assert [run.tree[task].total.calls for task in children] == [3, 3]
    for task in ("/top/middle[1]", "/top/middle[2]"):
        assert ended[task] == "over_budget"
        below = [end for path, end in ended.items() if path.startswith(f"{task}/")]
        assert sorted(below) == ["over_budget", "succeeded", "succeeded"]


async def test_the_budget_of_an_agent_bounds_each_copy_of_it() -> None:
    def say(transcript: Transcript) -> Any:
        return "leaf" if transcript[0].text == "leaf" else hand_on("leaf")

    meter = Meter()
    model = meter.on(ScriptedModel.always(say))
    agent = Agent("top", model=model, copies=True, budget=Budget(calls=4))
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(agent, "go")

    # The copies have budgets of their own, and are paid for by the one above them as well.
    assert meter.calls == 4
    assert run.outcome.ending is Ending.OVER_BUDGET
