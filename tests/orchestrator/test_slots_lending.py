"""A parent that waits lends its slot to its child, and gets it back."""

import pytest
import trio

from orchestrator import open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Limits,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    Transcript,
)
from orchestrator.delegation import Rules
from tests.kit import FunctionModel, editor, hand_on, worker_on
from tests.orchestrator.slots_kit import bush, counting, going_on, growing, run_under


@pytest.mark.parametrize(
    "rules",
    [
        {"live_tasks": 1},
        {"live_tasks": 1, "live_children": 1},
        {"live_tasks": 2, "live_children": 3},
    ],
)
async def test_a_bush_of_five_levels_finishes_in_a_single_place(rules: dict[str, int]) -> None:
    counter = counting(script=growing(3, 5))
    root = Agent(
        "root",
        model=going_on(hand_on(*(f"/{n}" for n in range(3))), then="end"),
        delegates=[bush(counter)],
    )

    finished = await run_under(root, **rules)

    assert finished.tree.counts() == {"succeeded": 1 + 3 + 9 + 27 + 81 + 243}
    assert counter.most_at_once == rules["live_tasks"]


async def test_a_chain_finishes_in_a_single_place() -> None:
    counter = counting(script=growing(1, 10))
    root = Agent(
        "root",
        model=going_on(hand_on("/0", background=False), then="end"),
        delegates=[bush(counter)],
    )

    finished = await run_under(root, live_tasks=1, live_children=1, depth=10)

    assert finished.tree.counts() == {"succeeded": 11}
    assert counter.most_at_once == 1


async def test_bushes_in_the_background_finish_in_a_single_place() -> None:
    counter = counting(script=growing(3, 3))
    lead = Agent(
        "lead",
        model=going_on(hand_on("/0", "/1", "/2", background=True), hand_on("/3", background=False)),
        delegates=[bush(counter)],
    )
    rules = Rules(live_tasks=1, detached=1, live_children=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()

            assert session.tree.counts() == {"succeeded": 1 + 4 * (1 + 3 + 9)}
    assert counter.most_at_once == 1


async def test_two_calls_of_one_parent_share_the_place_that_it_lends() -> None:
    counter = counting()
    middle = Agent(
        "middle",
        model=going_on([hand_on("a"), hand_on("b"), hand_on("c")], then="up"),
        delegates=[worker_on(counter)],
    )

    finished = await run_under(editor(hand_on("x", "y"), "end", delegates=[middle]), live_tasks=1)

    assert finished.tree.counts() == {"succeeded": 1 + 2 + 6}
    assert counter.most_at_once == 1


async def test_a_failed_or_stopped_task_gives_its_slot_back() -> None:
    """A place that is lost would make the rest wait for ever."""
    counter = counting(10)

    def fail(_: Transcript) -> str:
        raise ZeroDivisionError

    broken = Agent("broken", model=ScriptedModel.always(fail))
    middle = Agent(
        "middle",
        model=going_on([hand_on("a", agent="broken"), hand_on("b", agent="worker")], then="up"),
        delegates=[broken, worker_on(counter)],
    )
    lead = editor(hand_on(*"abcd"), "end", delegates=[middle])
    rules = Rules(live_tasks=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead, "go")
            await trio.sleep(15)
            tree = orchestrator.tree(orchestrator.runs[-1])
            running = [task for task in tree if tree[task].status == "running"]
            leaf = max(running, key=lambda task: len(tree[task].path))
            await orchestrator.cancel(leaf)

    assert tree.counts() == {"succeeded": 1 + 4 + 3, "failed": 4, "cancelled": 1}
    assert counter.most_at_once == 1


async def test_a_place_is_free_again_however_its_task_ended() -> None:
    counter = counting(10)
    growth = counting(script=growing(2, 3))

    def fail(_: Transcript) -> str:
        raise ZeroDivisionError

    delegates = [
        Agent("broken", model=ScriptedModel.always(fail)),
        Agent("late", model=counting(100), limits=Limits(seconds=5)),
        bush(growth),
        worker_on(counter),
    ]
    model = going_on(
        [
            hand_on("/0", "/1", agent="bush", background=True),
            hand_on("/2", agent="bush", background=False),
            hand_on("x", "y", agent="broken"),
            hand_on("x", "y", agent="late", background=False),
        ],
        hand_on("z", agent="broken", background=False),
        ToolCall("task", {"action": "wait"}),
    )
    last = ScriptedModel([hand_on("a", "b", agent="worker", background=False), "end"])

    async def either(request: ModelRequest) -> AssistantMessage:
        is_last = any(message.text == "again" for message in request.transcript)
        return await (last if is_last else model).answer(request)

    lead = Agent("lead", model=FunctionModel(either), delegates=delegates)
    async with open_orchestrator(":memory:", rules=Rules(live_tasks=2)) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()
            before = trio.current_time()
            await session.ask("again")

            assert trio.current_time() - before == pytest.approx(10)
    assert growth.most_at_once <= 2
    assert counter.most_at_once == 2
