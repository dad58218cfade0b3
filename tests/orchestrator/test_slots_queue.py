"""The queue for slots: bounded, fair, with positions that come true."""

import json
from collections import Counter
from typing import Any

import trio

from orchestrator import open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, Transcript
from orchestrator.delegation import Rules
from orchestrator.testing import CountingModel
from tests.kit import editor, hand_on, last_text, worker, worker_on
from tests.orchestrator.slots_kit import LIST, counting, goals, going_on, run_under

ANY = ToolCall("task", {"action": "wait", "mode": "any"})


async def test_without_a_queue_a_task_without_a_slot_is_refused_and_the_model_continues() -> None:
    read: list[str] = []

    def fewer(transcript: Transcript) -> ToolCall:
        read.append(last_text(transcript))
        return hand_on(*goals(2))

    counter = counting()
    agent = editor(hand_on(*goals(3)), fewer, "end", delegates=[worker_on(counter)])

    finished = await run_under(agent, live_children=2, queue=0)

    assert "there is no free slot" in read[0]
    assert "no task was started" in read[0]
    assert finished.output == "end"
    assert finished.tree.counts() == {"succeeded": 3}
    assert sorted(counter.goals) == goals(2)


async def test_the_queue_holds_only_its_limit() -> None:
    counter = counting()
    agent = editor(hand_on(*goals(5)), hand_on(*goals(4)), "end", delegates=[worker_on(counter)])

    finished = await run_under(agent, live_tasks=1, queue=3)

    assert finished.tree.counts() == {"succeeded": 5}
    assert counter.most_at_once == 1


async def test_racing_calls_beyond_the_room_are_refused() -> None:
    calls = [hand_on(goal, background=False) for goal in goals(10)]
    answers: list[ToolMessage] = []

    def count(transcript: Transcript) -> str:
        answers.extend(m for m in transcript if isinstance(m, ToolMessage))
        return "end"

    counter = counting()
    finished = await run_under(
        editor(calls, count, delegates=[worker_on(counter)]), live_children=3, queue=0
    )

    assert Counter(answer.failed for answer in answers) == {True: 7, False: 3}
    assert finished.tree.counts() == {"succeeded": 4}
    assert counter.most_at_once == 3


async def test_racing_calls_in_the_background_are_refused_alike() -> None:
    calls = [hand_on(goal, background=True) for goal in goals(10)]
    answers: list[ToolMessage] = []

    def count(transcript: Transcript) -> str:
        answers[:] = [m for m in transcript if isinstance(m, ToolMessage)]
        return "end"

    counter = counting()
    agent = Agent(
        "lead", model=ScriptedModel([calls, *[count] * 10]), delegates=[worker_on(counter)]
    )
    rules = Rules(detached=4, queue=2)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert Counter(answer.failed for answer in answers) == {True: 4, False: 6}
    assert counter.most_at_once == 4
    assert len(counter.goals) == 6


async def test_racing_calls_never_pass_a_limit() -> None:
    """Thirty tasks of ten calls in one answer, and every one of them runs."""
    counter = counting()
    calls = [hand_on(*goals(3, 3 * call), background=False) for call in range(10)]

    finished = await run_under(editor(calls, "end", delegates=[worker_on(counter)]), live_tasks=4)

    assert finished.tree.counts() == {"succeeded": 31}
    assert counter.most_at_once == 4
    assert sorted(counter.goals) == sorted(goals(30, 0))


async def test_racing_sessions_have_their_own_room_each() -> None:
    counters = [counting() for _ in range(5)]
    rules = Rules(live_tasks=3, detached=2)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:

        async def talk(counter: CountingModel) -> None:
            model = going_on(
                [
                    hand_on(*goals(4), background=True),
                    hand_on(*goals(4, 5), background=False),
                    hand_on(*goals(4, 9), background=True),
                ]
            )
            agent = Agent("lead", model=model, delegates=[worker_on(counter)])
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
                await session.wait_idle()

        async with trio.open_nursery() as nursery:
            for counter in counters:
                nursery.start_soon(talk, counter)

    assert {counter.most_at_once for counter in counters} == {3}
    assert all(sorted(counter.goals) == sorted(goals(12)) for counter in counters)


async def test_parents_take_turns() -> None:
    """A parent with a hundred children does not delay the others."""
    counter = counting(1)
    leaf = Agent("leaf", model=counter)

    def parent(name: str, seconds: float, count: int) -> Agent:
        tasks = hand_on(*(f"{name}{number}" for number in range(count)))

        def say(transcript: Transcript) -> Any:
            return "up" if len(transcript) > 1 else tasks

        model = ScriptedModel.always(say, seconds)
        return Agent(name, model=model, delegates=[leaf])

    greedy, modest = parent("g", 0, 20), parent("m", 0.5, 8)
    calls = [hand_on("x", agent="g"), hand_on("y", agent="m")]
    await run_under(editor(calls, "end", delegates=[greedy, modest]), live_tasks=4)

    # Each holds its own place; of the other two, each gets every second one.
    started = [goal[0] for goal in counter.goals]
    modest_is_done = max(place for place, name in enumerate(started) if name == "m")
    before_it = started[:modest_is_done].count("g")
    assert started.count("m") == 8
    assert before_it <= 8 + 4


async def test_joined_tasks_take_turns_with_detached_ones() -> None:
    counter = counting()
    model = going_on(hand_on(*goals(8), background=True), hand_on("now", background=False))
    agent = Agent("lead", model=model, delegates=[worker_on(counter)])
    async with open_orchestrator(":memory:", rules=Rules(live_tasks=1)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            assert counter.goals.index("now") <= 2
            await session.wait_idle()

    assert counter.most_at_once == 1
    assert len(counter.goals) == 9


async def test_a_receipt_shows_the_position_and_a_list_shows_it_shrink() -> None:
    read: list[Any] = []

    def then(step: Any) -> Any:
        def say(transcript: Transcript) -> Any:
            read.append(json.loads(last_text(transcript)))
            return step

        return say

    model = ScriptedModel(
        [
            hand_on(*goals(4), background=True),
            then(LIST),
            then(ANY),
            then(LIST),
            then(ANY),
            then(LIST),
            then("end"),
            *["news"] * 9,
        ]
    )
    agent = Agent("lead", model=model, delegates=[worker(seconds=10)])
    async with open_orchestrator(":memory:", rules=Rules(detached=1)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    receipt, first, _, second, _, third = read
    ids = [task["task_id"] for task in receipt["tasks"]]

    def positions(told: Any) -> list[int | None]:
        by_id = {task["task_id"]: task for task in told["tasks"]}
        return [by_id[id_].get("position") for id_ in ids if id_ in by_id]

    assert positions(receipt) == [None, 1, 2, 3]
    assert positions(first) == [None, 1, 2, 3]
    assert positions(second) == [None, None, 1, 2]
    assert positions(third) == [None, None, None, 1]
    assert [task["status"] for task in first["tasks"]] == ["running"] + ["queued"] * 3


async def test_positions_come_true_between_two_lines() -> None:
    counter = counting(10)
    look = ToolCall("task", {"action": "wait", "seconds": 1})
    answers: list[Any] = []

    def note(transcript: Transcript) -> str:
        answers[:] = [
            json.loads(message.text) for message in transcript if isinstance(message, ToolMessage)
        ]
        return "end"

    model = ScriptedModel(
        [
            hand_on(*goals(4), background=True),
            [hand_on(*goals(4, 5), background=False), look],
            note,
            *["news"] * 9,
        ]
    )
    lead = Agent("lead", model=model, delegates=[worker_on(counter)])
    async with open_orchestrator(":memory:", rules=Rules(live_tasks=1)) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()

    (seen,) = (answer for answer in answers if answer["status"] == "still_running")
    positions = {
        task["goal"]: task["position"]
        for task in seen["running"]
        if "position" in task and task["mode"] == "detached"
    }
    assert positions == {"part 2": 1, "part 3": 3, "part 4": 5}
    for goal, position in positions.items():
        assert counter.goals[position] == goal
