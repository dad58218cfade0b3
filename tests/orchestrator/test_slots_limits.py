"""The limits of `Rules` on what runs at once: never passed."""

from typing import Any

import pytest
import trio

from orchestrator import Machine, Models, open_orchestrator
from orchestrator.agents import Agent, ToolCall, Transcript, tool
from orchestrator.agents.models.wrappers.rate_limit import Limiter, with_rate_limit
from orchestrator.delegation import Rules
from tests.fake_provider import Say, open_provider
from tests.kit import editor, hand_on, worker_on
from tests.orchestrator.slots_kit import counting, goals, going_on, growing, run_under


async def test_the_running_children_of_a_parent_are_limited() -> None:
    counter = counting(10)
    before = trio.current_time()

    finished = await run_under(
        editor(hand_on(*goals(7), background=False), "end", delegates=[worker_on(counter)]),
        live_children=3,
    )

    assert finished.tree.counts() == {"succeeded": 8}
    assert counter.most_at_once == 3
    assert sorted(counter.goals) == goals(7)
    assert trio.current_time() - before == pytest.approx(30)


async def test_each_parent_has_its_own_live_children() -> None:
    """A limit of a parent is not one of the tree: two parents have twice as many."""
    counter = counting(10)
    middle = Agent(
        "middle", model=going_on(hand_on(*goals(4)), then="up"), delegates=[worker_on(counter)]
    )

    await run_under(editor(hand_on("a", "b"), "end", delegates=[middle]), live_children=2)

    assert counter.most_at_once == 4


async def test_the_running_tasks_of_a_tree_are_limited() -> None:
    counter = counting(10)

    def split(transcript: Transcript) -> Any:
        return "up" if len(transcript) > 1 else hand_on(*goals(3))

    # All children ask the same counter, those who have children of their own, too.
    asking = counting(1, script=split)
    middle = Agent("middle", model=asking, delegates=[worker_on(counter)])
    finished = await run_under(editor(hand_on(*"abcde"), "end", delegates=[middle]), live_tasks=4)

    assert finished.tree.counts() == {"succeeded": 1 + 5 + 15}
    assert counter.most_at_once <= 4
    assert asking.most_at_once <= 4


async def test_the_running_background_tasks_of_a_session_are_limited() -> None:
    counter = counting(10)
    agent = Agent(
        "lead", model=going_on(hand_on(*goals(6), background=True)), delegates=[worker_on(counter)]
    )
    async with open_orchestrator(":memory:", rules=Rules(detached=2)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            before = trio.current_time()
            await session.ask("go")
            assert trio.current_time() == before  # no task waits for a slot
            await session.wait_idle()

    assert counter.most_at_once == 2
    assert sorted(counter.goals) == goals(6)
    assert trio.current_time() - before == pytest.approx(30)


async def test_joined_tasks_do_not_count_as_detached() -> None:
    """Each limit is its own number."""
    apart, within = counting(10), counting(10)
    model = going_on(
        [
            hand_on(*goals(3), agent="apart", background=True),
            hand_on(*goals(3), agent="within", background=False),
        ]
    )
    agent = Agent(
        "lead", model=model, delegates=[worker_on(apart, "apart"), worker_on(within, "within")]
    )
    async with open_orchestrator(":memory:", rules=Rules(detached=1)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert (apart.most_at_once, within.most_at_once) == (1, 3)


async def test_an_unset_rule_sets_no_limit() -> None:
    counter = counting(10)

    await run_under(
        editor(hand_on(*goals(50)), "end", delegates=[worker_on(counter)]),
        live_children=None,
        live_tasks=None,
        detached=None,
    )

    assert counter.most_at_once == 50


async def test_tools_of_children_are_within_the_limits_too() -> None:
    inside = peak = 0

    @tool
    async def work() -> str:
        nonlocal inside, peak
        inside += 1
        peak = max(peak, inside)
        await trio.sleep(5)
        inside -= 1
        return "worked"

    busy = Agent("busy", model=going_on(ToolCall("work"), then="done"), tools=[work])
    await run_under(editor(hand_on(*goals(9)), "end", delegates=[busy]), live_tasks=2)

    assert peak == 2


async def test_live_calls_of_a_model_are_limited_across_a_whole_tree() -> None:
    counter = counting(script=growing(3, 3))
    model = with_rate_limit(counter, Limiter(in_flight=2))
    root = Agent(
        "root",
        model=going_on(hand_on("/0", "/1", "/2"), then="end"),
        delegates=[Agent("bush", model=model, copies=True)],
    )

    finished = await run_under(root)

    assert finished.tree.counts() == {"succeeded": 1 + 3 + 9 + 27}
    assert counter.most_at_once == 2


@pytest.mark.realtime
async def test_live_calls_of_a_provider_are_limited_by_its_name() -> None:
    """All agents on models of that provider share them, in every run."""
    limiter = Limiter(in_flight=2)
    peak = 0
    async with open_provider(Say(text="found", read=1, wrote=1)) as server:
        environ = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": f"{server.url}/v1"}
        lead = editor(hand_on(*goals(8)), "end", delegates=[Agent("worker", model="openai:any")])
        async with open_orchestrator(
            ":memory:",
            machine=Machine(environ=environ),
            models=Models(limiters={"openai": limiter}),
        ) as orchestrator:
            with orchestrator.listen() as heard:
                async with trio.open_nursery() as nursery:

                    async def watch() -> None:
                        nonlocal peak
                        async for _ in heard:
                            peak = max(peak, limiter.in_flight)

                    nursery.start_soon(watch)
                    finished = await orchestrator.run(lead, "go")
                    nursery.cancel_scope.cancel()

    assert finished.tree.counts() == {"succeeded": 9}
    assert len(server.heard) == 8
    assert 1 <= peak <= 2


async def test_a_model_with_an_in_flight_limit_of_zero_fails_its_task() -> None:
    closed = Agent("worker", model=with_rate_limit(counting(), Limiter(in_flight=0)))

    finished = await run_under(editor(hand_on("a"), "end", delegates=[closed]))

    assert finished.tree.counts() == {"succeeded": 1, "failed": 1}
