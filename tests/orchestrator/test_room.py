"""The limits of `Rules`, through the doors: never passed, never skipped in silence, always fair."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from agents import (
    Agent,
    AssistantMessage,
    Limits,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    tool,
)
from agents.models.wrappers.rate_limit import Limiter, limited
from delegation import Ending, Rules, SessionId, Tree
from delegation.events import (
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
)
from orchestrator import MemoryJournal, Run, open_orchestrator
from orchestrator.journal.sqlite.journal import read_sqlite_journal
from tests.fake_provider import Say, open_provider
from tests.kit import facts, hand_on, worker

LIST = ToolCall("task", {"action": "list"})
ANY = ToolCall("task", {"action": "wait", "mode": "any"})


class Gauge:
    """A model that knows how many of its calls are under way, and for which goals."""

    name = "gauge"

    def __init__(self, seconds: float = 1, *, script: Any = "done") -> None:
        self._script = ScriptedModel.always(script)
        self._seconds = seconds
        self.inside = 0
        self.peak = 0
        self.goals: list[str] = []
        """What it was asked for first, in the order in which it was asked."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        if len(request.transcript) == 1:
            self.goals.append(request.transcript[0].text)
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        try:
            await trio.sleep(self._seconds)
            return await self._script.answer(request)
        finally:
            self.inside -= 1


class Gated:
    """A model that says nothing before its gate is open."""

    name = "gated"

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.asked = trio.Event()
        self.inside = 0
        self.peak = 0
        self.answered: list[str] = []

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.asked.set()
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        try:
            await self.gate.wait()
            await trio.lowlevel.checkpoint()
            self.answered.append(request.transcript[0].text)
            return AssistantMessage("done", usage=Usage(calls=1))
        finally:
            self.inside -= 1


def goals(count: int, start: int = 1) -> list[str]:
    return [f"part {number}" for number in range(start, start + count)]


def gauged(gauge: Gauge | Gated, name: str = "worker") -> Agent:
    return Agent(name, model=gauge)


def editor(*steps: Any, delegates: Sequence[Agent[Any]]) -> Agent:
    return Agent("editor", model=ScriptedModel(steps), delegates=delegates)


async def run(agent: Agent[Any], **rules: Any) -> Run[Any]:
    async with open_orchestrator(":memory:", rules=Rules(**rules)) as orchestrator:
        return await orchestrator.run(agent, "go")


def last_text(transcript: Transcript) -> str:
    return transcript[-1].text


def paths(tree: Tree) -> dict[str, str]:
    return {tree[task]["path"]: task for task in tree.graph}


def statuses(tree: Tree) -> dict[str, str]:
    return {tree[task]["path"]: tree[task]["status"] for task in tree.graph}


def going_on(*calls: Any, then: str = "news") -> ScriptedModel:
    """Return a model that makes its calls once, and then says something whatever it hears.

    It is a function of the transcript, so that it goes on wherever a crash left it.
    """

    def say(transcript: Transcript) -> Any:
        answered = sum(isinstance(message, ToolMessage) for message in transcript)
        return calls[answered] if answered < len(calls) else then

    return ScriptedModel.always(say)


# Room: who is over a limit waits.


async def test_of_one_parent_no_more_children_run_at_once_than_the_rules_say() -> None:
    gauge = Gauge(10)
    before = trio.current_time()

    finished = await run(
        editor(hand_on(*goals(7), background=False), "end", delegates=[gauged(gauge)]),
        live_children=3,
    )

    assert finished.tree.counts() == {"succeeded": 8}
    assert gauge.peak == 3
    assert sorted(gauge.goals) == goals(7)
    assert trio.current_time() - before == pytest.approx(30)


async def test_each_parent_has_its_own_live_children() -> None:
    """A limit of a parent is not one of the tree: two parents have twice as many."""
    gauge = Gauge(10)
    middle = Agent(
        "middle",
        model=going_on(hand_on(*goals(4)), then="up"),
        delegates=[gauged(gauge)],
    )

    await run(editor(hand_on("a", "b"), "end", delegates=[middle]), live_children=2)

    assert gauge.peak == 4


async def test_of_one_tree_no_more_tasks_work_at_once_than_the_rules_say() -> None:
    gauge = Gauge(10)

    def split(transcript: Transcript) -> Any:
        return "up" if len(transcript) > 1 else hand_on(*goals(3))

    # All children ask the same gauge, those who have children of their own, too.
    asking = Gauge(1, script=split)
    middle = Agent("middle", model=asking, delegates=[gauged(gauge)])
    finished = await run(
        editor(hand_on(*"abcde"), "end", delegates=[middle]), live_tasks=4
    )

    assert finished.tree.counts() == {"succeeded": 1 + 5 + 15}
    assert gauge.peak <= 4
    assert asking.peak <= 4


async def test_no_more_tasks_of_a_session_run_in_the_background_than_the_rules_say() -> (
    None
):
    gauge = Gauge(10)
    agent = Agent(
        "lead",
        model=going_on(hand_on(*goals(6), background=True)),
        delegates=[gauged(gauge)],
    )
    async with open_orchestrator(":memory:", rules=Rules(detached=2)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            before = trio.current_time()
            await session.ask("go")
            assert trio.current_time() == before  # nobody waits for room
            await session.wait_idle()

    assert gauge.peak == 2
    assert sorted(gauge.goals) == goals(6)
    assert trio.current_time() - before == pytest.approx(30)


async def test_what_waits_within_a_call_does_not_count_as_background() -> None:
    """Each limit is its own number."""
    apart, within = Gauge(10), Gauge(10)
    model = going_on(
        [
            hand_on(*goals(3), agent="apart", background=True),
            hand_on(*goals(3), agent="within", background=False),
        ]
    )
    agent = Agent(
        "lead",
        model=model,
        delegates=[gauged(apart, "apart"), gauged(within, "within")],
    )
    async with open_orchestrator(":memory:", rules=Rules(detached=1)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert (apart.peak, within.peak) == (1, 3)


async def test_no_limit_is_no_limit() -> None:
    gauge = Gauge(10)

    await run(
        editor(hand_on(*goals(50)), "end", delegates=[gauged(gauge)]),
        live_children=None,
        live_tasks=None,
        detached=None,
    )

    assert gauge.peak == 50


async def test_tools_of_children_are_within_the_limits_too() -> None:
    """What counts is who is inside, whatever it does there."""
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
    await run(editor(hand_on(*goals(9)), "end", delegates=[busy]), live_tasks=2)

    assert peak == 2


# Kind: who is over a limit is refused, and the model reads why.


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"depth": 0}, "0 levels deep"),
        ({"children_per_call": 0}, "one call may ask for 0 tasks at most"),
        ({"live_children": 0}, "the rules allow no task to run at all"),
        ({"live_tasks": 0}, "the rules allow no task to run at all"),
    ],
)
async def test_none_at_all_is_honoured_and_the_model_goes_on(
    rules: dict[str, int], why: str
) -> None:
    read: list[str] = []

    def alone(transcript: Transcript) -> str:
        read.append(last_text(transcript))
        return "did it myself"

    gauge = Gauge()
    finished = await run(
        editor(hand_on("part"), alone, delegates=[gauged(gauge)]), **rules
    )

    assert finished.output == "did it myself"
    assert why in read[0]
    assert (gauge.goals, len(finished.tree)) == ([], 1)


async def test_nothing_in_the_background_means_within_the_call_with_a_note() -> None:
    gauge = Gauge(10)
    agent = editor(
        hand_on("part", background=True), last_text, delegates=[gauged(gauge)]
    )
    async with open_orchestrator(":memory:", rules=Rules(detached=0)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            answer = json.loads((await session.ask("go")).text)

    assert answer["status"] == "completed"
    assert "the rules allow nothing in the background" in answer["note"]
    assert trio.current_time() >= 10


async def test_too_many_in_one_call_are_refused_as_a_whole() -> None:
    """Never truncated in silence."""
    gauge = Gauge()
    read: list[str] = []

    def again(transcript: Transcript) -> ToolCall:
        read.append(last_text(transcript))
        return hand_on(*goals(3))

    agent = editor(hand_on(*goals(4)), again, "end", delegates=[gauged(gauge)])
    finished = await run(agent, children_per_call=3)

    assert read == [
        "one call may ask for 3 tasks at most, and this one asks for 4; none was started"
    ]
    assert finished.tree.counts() == {"succeeded": 4}
    assert sorted(gauge.goals) == goals(3)


async def test_the_deepest_level_is_refused_and_the_one_above_is_not() -> None:
    read: list[str] = []

    def dig(transcript: Transcript) -> Any:
        if len(transcript) == 1:
            return hand_on("dig")
        if "levels deep" in last_text(transcript):
            read.append(last_text(transcript))
        return "up"

    digger = Agent("digger", model=ScriptedModel.always(dig), copies=True)
    finished = await run(digger, depth=3)

    assert len(read) == 1
    assert "3 levels deep" in read[0]
    assert max(path.count("/") for path in paths(finished.tree)) == 4


async def test_the_tool_shows_the_limits_that_hold() -> None:
    shown: list[str] = []

    class Reading(ScriptedModel):
        async def answer(self, request: ModelRequest) -> AssistantMessage:
            shown.append(request.tools[0].description)
            return await super().answer(request)

    below = Agent("below", model=Reading(["x"]), delegates=[worker()])
    agent = Agent(
        "editor",
        model=Reading([hand_on("a", background=False), "x"]),
        delegates=[below],
    )
    await run(
        agent, depth=4, children_per_call=9, live_children=5, live_tasks=6, detached=7
    )

    above, under, _ = shown
    assert "at most 9 in one call" in above
    assert "there may be 4 more levels" in above
    assert "there may be 3 more levels" in under
    for limit in (
        "5 of its tasks run at once",
        "6 of the whole tree work at once",
        "7 of the session in the background",
        "others wait for their turn",
    ):
        assert limit in above


# The queue itself.


async def test_without_a_queue_who_finds_no_room_is_refused_and_the_model_goes_on() -> (
    None
):
    read: list[str] = []

    def fewer(transcript: Transcript) -> ToolCall:
        read.append(last_text(transcript))
        return hand_on(*goals(2))

    gauge = Gauge()
    agent = editor(hand_on(*goals(3)), fewer, "end", delegates=[gauged(gauge)])

    finished = await run(agent, live_children=2, queue=0)

    assert "there is no room" in read[0]
    assert "none was started" in read[0]
    assert finished.output == "end"
    assert finished.tree.counts() == {"succeeded": 3}
    assert sorted(gauge.goals) == goals(2)


async def test_a_queue_holds_so_many_and_no_more() -> None:
    gauge = Gauge()
    agent = editor(
        hand_on(*goals(5)), hand_on(*goals(4)), "end", delegates=[gauged(gauge)]
    )

    finished = await run(agent, live_tasks=1, queue=3)

    assert finished.tree.counts() == {"succeeded": 5}
    assert gauge.peak == 1


async def test_of_racing_calls_exactly_those_are_refused_for_which_there_is_no_room() -> (
    None
):
    calls = [hand_on(goal, background=False) for goal in goals(10)]
    answers: list[ToolMessage] = []

    def count(transcript: Transcript) -> str:
        answers.extend(m for m in transcript if isinstance(m, ToolMessage))
        return "end"

    gauge = Gauge()
    finished = await run(
        editor(calls, count, delegates=[gauged(gauge)]), live_children=3, queue=0
    )

    assert Counter(answer.failed for answer in answers) == {True: 7, False: 3}
    assert finished.tree.counts() == {"succeeded": 4}
    assert gauge.peak == 3


async def test_racing_calls_in_the_background_are_refused_alike() -> None:
    calls = [hand_on(goal, background=True) for goal in goals(10)]
    answers: list[ToolMessage] = []

    def count(transcript: Transcript) -> str:
        answers[:] = [m for m in transcript if isinstance(m, ToolMessage)]
        return "end"

    gauge = Gauge()
    agent = Agent(
        "lead",
        model=ScriptedModel([calls, *[count] * 10]),
        delegates=[gauged(gauge)],
    )
    rules = Rules(detached=4, queue=2)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert Counter(answer.failed for answer in answers) == {True: 4, False: 6}
    assert gauge.peak == 4
    assert len(gauge.goals) == 6


async def test_racing_calls_never_pass_a_limit() -> None:
    """Thirty tasks of ten calls in one answer, and every one of them runs."""
    gauge = Gauge()
    calls = [hand_on(*goals(3, 3 * call), background=False) for call in range(10)]

    finished = await run(editor(calls, "end", delegates=[gauged(gauge)]), live_tasks=4)

    assert finished.tree.counts() == {"succeeded": 31}
    assert gauge.peak == 4
    assert sorted(gauge.goals) == sorted(goals(30, 0))


async def test_racing_sessions_have_their_own_room_each() -> None:
    gauges = [Gauge() for _ in range(5)]
    rules = Rules(live_tasks=3, detached=2)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:

        async def talk(gauge: Gauge) -> None:
            model = going_on(
                [
                    hand_on(*goals(4), background=True),
                    hand_on(*goals(4, 5), background=False),
                    hand_on(*goals(4, 9), background=True),
                ]
            )
            agent = Agent("lead", model=model, delegates=[gauged(gauge)])
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
                await session.wait_idle()

        async with trio.open_nursery() as nursery:
            for gauge in gauges:
                nursery.start_soon(talk, gauge)

    assert {gauge.peak for gauge in gauges} == {3}
    assert all(sorted(gauge.goals) == sorted(goals(12)) for gauge in gauges)


async def test_parents_take_turns() -> None:
    """Who asked for a hundred first does not keep the others waiting for all of them."""
    started: list[str] = []

    class Noting(ScriptedModel):
        async def answer(self, request: ModelRequest) -> AssistantMessage:
            started.append(request.transcript[0].text[0])
            await trio.sleep(1)
            return await super().answer(request)

    leaf = Agent("leaf", model=Noting.always("done"))

    def parent(name: str, seconds: float, count: int) -> Agent:
        tasks = hand_on(*(f"{name}{number}" for number in range(count)))

        def say(transcript: Transcript) -> Any:
            return "up" if len(transcript) > 1 else tasks

        model = ScriptedModel.always(say, seconds)
        return Agent(name, model=model, delegates=[leaf])

    greedy, modest = parent("g", 0, 20), parent("m", 0.5, 8)
    calls = [hand_on("x", agent="g"), hand_on("y", agent="m")]
    await run(editor(calls, "end", delegates=[greedy, modest]), live_tasks=4)

    # Each holds its own place; of the other two, each gets every second one.
    modest_is_done = max(place for place, name in enumerate(started) if name == "m")
    before_it = started[:modest_is_done].count("g")
    assert started.count("m") == 8
    assert before_it <= 8 + 4


async def test_what_is_waited_for_takes_turns_with_what_runs_in_the_background() -> (
    None
):
    gauge = Gauge()
    model = going_on(
        hand_on(*goals(8), background=True), hand_on("now", background=False)
    )
    agent = Agent("lead", model=model, delegates=[gauged(gauge)])
    async with open_orchestrator(":memory:", rules=Rules(live_tasks=1)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            assert gauge.goals.index("now") <= 2
            await session.wait_idle()

    assert gauge.peak == 1
    assert len(gauge.goals) == 9


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
    """Who is shown a position starts after just so many others."""
    gauge = Gauge(10)
    look = ToolCall("task", {"action": "wait", "seconds": 1})
    answers: list[Any] = []

    def note(transcript: Transcript) -> str:
        answers[:] = [
            json.loads(message.text)
            for message in transcript
            if isinstance(message, ToolMessage)
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
    lead = Agent("lead", model=model, delegates=[gauged(gauge)])
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
        assert gauge.goals[position] == goal


# Who waits holds nothing that its child needs.


def bush(gauge: Gauge) -> Agent:
    return Agent("bush", model=gauge, copies=True)


def growing(fan: int, depth: int) -> Any:
    """Return the script of an agent that splits its goal until it is deep enough."""

    def say(transcript: Transcript) -> Any:
        level = transcript[0].text.count("/")
        if level == depth or len(transcript) > 1:
            return "up"
        return hand_on(*(f"{transcript[0].text}/{n}" for n in range(fan)))

    return say


@pytest.mark.parametrize(
    "rules",
    [
        {"live_tasks": 1},
        {"live_tasks": 1, "live_children": 1},
        {"live_tasks": 2, "live_children": 3},
    ],
)
async def test_a_bush_of_five_levels_finishes_in_a_single_place(
    rules: dict[str, int],
) -> None:
    gauge = Gauge(script=growing(3, 5))
    root = Agent(
        "root",
        model=going_on(hand_on(*(f"/{n}" for n in range(3))), then="end"),
        delegates=[bush(gauge)],
    )

    finished = await run(root, **rules)

    assert finished.tree.counts() == {"succeeded": 1 + 3 + 9 + 27 + 81 + 243}
    assert gauge.peak == rules["live_tasks"]


async def test_a_chain_finishes_in_a_single_place() -> None:
    gauge = Gauge(script=growing(1, 10))
    root = Agent(
        "root",
        model=going_on(hand_on("/0", background=False), then="end"),
        delegates=[bush(gauge)],
    )

    finished = await run(root, live_tasks=1, live_children=1, depth=10)

    assert finished.tree.counts() == {"succeeded": 11}
    assert gauge.peak == 1


async def test_bushes_in_the_background_finish_in_a_single_place() -> None:
    gauge = Gauge(script=growing(3, 3))
    lead = Agent(
        "lead",
        model=going_on(
            hand_on("/0", "/1", "/2", background=True), hand_on("/3", background=False)
        ),
        delegates=[bush(gauge)],
    )
    rules = Rules(live_tasks=1, detached=1, live_children=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()

            assert session.tree.counts() == {"succeeded": 1 + 4 * (1 + 3 + 9)}
    assert gauge.peak == 1


async def test_two_calls_of_one_parent_share_the_place_that_it_lends() -> None:
    gauge = Gauge()
    middle = Agent(
        "middle",
        model=going_on([hand_on("a"), hand_on("b"), hand_on("c")], then="up"),
        delegates=[gauged(gauge)],
    )

    finished = await run(
        editor(hand_on("x", "y"), "end", delegates=[middle]), live_tasks=1
    )

    assert finished.tree.counts() == {"succeeded": 1 + 2 + 6}
    assert gauge.peak == 1


async def test_who_fails_or_is_stopped_gives_its_place_back() -> None:
    """A place that is lost would make the rest wait for ever."""
    gauge = Gauge(10)

    def fail(_: Transcript) -> str:
        raise ZeroDivisionError

    broken = Agent("broken", model=ScriptedModel.always(fail))
    middle = Agent(
        "middle",
        model=going_on(
            [hand_on("a", agent="broken"), hand_on("b", agent="worker")], then="up"
        ),
        delegates=[broken, gauged(gauge)],
    )
    lead = editor(hand_on(*"abcd"), "end", delegates=[middle])
    rules = Rules(live_tasks=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead, "go")
            await trio.sleep(15)
            tree = orchestrator.tree(orchestrator.runs[-1])
            running = [task for task in tree.graph if tree[task]["status"] == "running"]
            leaf = max(running, key=lambda task: len(tree[task]["path"]))
            await orchestrator.cancel(leaf)

    assert tree.counts() == {"succeeded": 1 + 4 + 3, "failed": 4, "cancelled": 1}
    assert gauge.peak == 1


# Live calls of a provider.


async def test_live_calls_of_a_model_are_limited_across_a_whole_tree() -> None:
    gauge = Gauge(script=growing(3, 3))
    model = limited(gauge, Limiter(in_flight=2))
    root = Agent(
        "root",
        model=going_on(hand_on("/0", "/1", "/2"), then="end"),
        delegates=[Agent("bush", model=model, copies=True)],
    )

    finished = await run(root)

    assert finished.tree.counts() == {"succeeded": 1 + 3 + 9 + 27}
    assert gauge.peak == 2


@pytest.mark.realtime
async def test_live_calls_of_a_provider_are_limited_by_its_name() -> None:
    """All agents on models of that provider share them, in every run."""
    limiter = Limiter(in_flight=2)
    peak = 0
    async with open_provider(Say(text="found", read=1, wrote=1)) as server:
        environ = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": f"{server.url}/v1"}
        lead = editor(
            hand_on(*goals(8)),
            "end",
            delegates=[Agent("worker", model="openai:any")],
        )
        async with open_orchestrator(
            ":memory:", environ=environ, limiters={"openai": limiter}
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


async def test_a_model_with_no_live_calls_at_all_fails_its_task_and_nobody_waits() -> (
    None
):
    closed = Agent("worker", model=limited(Gauge(), Limiter(in_flight=0)))

    finished = await run(editor(hand_on("a"), "end", delegates=[closed]))

    assert finished.tree.counts() == {"succeeded": 1, "failed": 1}


# Cancelling who waits.


async def test_a_queued_task_that_is_cancelled_settles_at_once_and_never_runs() -> None:
    gauge = Gauge(100)
    lead = editor(
        hand_on(*goals(3), background=False), last_text, delegates=[gauged(gauge)]
    )
    rules = Rules(live_children=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        outputs: list[str] = []

        async def go() -> None:
            outputs.append((await orchestrator.run(lead, "go")).output)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go)
            await trio.sleep(10)
            tree = orchestrator.tree(orchestrator.runs[-1])
            await orchestrator.cancel(paths(tree)["/editor/worker[2]"])

            assert trio.current_time() == pytest.approx(10)
            assert statuses(tree) == {
                "/editor": "running",
                "/editor/worker[1]": "running",
                "/editor/worker[2]": "cancelled",
                "/editor/worker[3]": "queued",
            }

    results = json.loads(outputs[0])["results"]
    assert [one["status"] for one in results] == ["succeeded", "cancelled", "succeeded"]
    assert gauge.goals == ["part 1", "part 3"]


async def test_a_queued_task_in_the_background_is_cancelled_alike_and_told() -> None:
    gauge = Gauge(100)
    told: list[str] = []

    def hear(transcript: Transcript) -> str:
        told.append(last_text(transcript))
        return "heard"

    model = ScriptedModel([hand_on(*goals(3), background=True), "ok", *[hear] * 9])
    lead = Agent("lead", model=model, delegates=[gauged(gauge)])
    async with open_orchestrator(":memory:", rules=Rules(detached=1)) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await trio.sleep(10)
            await orchestrator.cancel(paths(session.tree)["/lead/worker[2]"])
            assert trio.current_time() == pytest.approx(10)
            await session.replies.receive()

            assert "/lead/worker[2]" in told[0]
            assert "Outcome: cancelled" in told[0]
            assert trio.current_time() == pytest.approx(10)
            await session.wait_idle()

    assert gauge.goals == ["part 1", "part 3"]


async def test_a_model_can_cancel_what_waits_in_line() -> None:
    gauge = Gauge(100)
    read: list[Any] = []

    def cancel_the_last(transcript: Transcript) -> ToolCall:
        receipt = json.loads(last_text(transcript))
        last = receipt["tasks"][-1]["task_id"]
        return ToolCall("task", {"action": "cancel", "ids": [last]})

    def note(transcript: Transcript) -> str:
        read.append(json.loads(last_text(transcript)))
        return "ok"

    model = ScriptedModel(
        [hand_on(*goals(2), background=True), cancel_the_last, note, *["news"] * 9]
    )
    lead = Agent("lead", model=model, delegates=[gauged(gauge)])
    async with open_orchestrator(":memory:", rules=Rules(detached=1)) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            assert trio.current_time() == 0
            await session.wait_idle()

    assert [one["status"] for one in read[0]["results"]] == ["cancelled"]
    assert gauge.goals == ["part 1"]


async def test_cancelling_a_parent_ends_what_it_has_in_line() -> None:
    gauge = Gauge(100)
    middle = Agent(
        "middle",
        model=going_on(hand_on(*goals(5)), then="up"),
        delegates=[gauged(gauge)],
    )
    lead = editor(hand_on("a", "b"), "end", delegates=[middle])
    rules = Rules(live_children=2, live_tasks=2)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead, "go")
            await trio.sleep(10)
            tree = orchestrator.tree(orchestrator.runs[-1])
            await orchestrator.cancel(paths(tree)["/editor/middle[1]"])

            assert trio.current_time() == pytest.approx(10)
            below = {
                path: status
                for path, status in statuses(tree).items()
                if path.startswith("/editor/middle[1]")
            }
            assert len(below) == 6
            assert set(below.values()) == {"cancelled"}

    # Its place went to the other, who had five to do.
    assert tree.counts() == {"succeeded": 1 + 1 + 5, "cancelled": 6}
    assert gauge.peak == 2


async def test_cancelling_a_session_with_its_tree_ends_what_waits_in_line() -> None:
    gauge = Gauge(100)
    model = ScriptedModel(
        [
            hand_on(*goals(4), background=True),
            hand_on(*goals(4, 5), background=False),
            *["news"] * 9,
        ]
    )
    lead = Agent("lead", model=model, delegates=[gauged(gauge)])
    async with open_orchestrator(":memory:", rules=Rules(live_tasks=2)) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id, tree=True)

                children = session.tree.children(session.tree.root)
                assert {session.tree[task]["status"] for task in children} == {
                    "cancelled"
                }
            await session.wait_idle()

    assert len(gauge.goals) == 2


async def test_who_runs_out_of_time_takes_along_what_waits_in_line() -> None:
    gauge = Gauge(10)
    lead = Agent(
        "editor",
        model=ScriptedModel([hand_on(*goals(4)), "never"]),
        delegates=[gauged(gauge)],
        limits=Limits(seconds=15),
    )
    before = trio.current_time()

    finished = await run(lead, live_children=1)

    assert trio.current_time() - before == pytest.approx(15)
    assert finished.tree.counts() == {"timed_out": 1, "succeeded": 1, "cancelled": 3}
    assert gauge.goals == goals(2)


async def test_cancelling_a_run_from_outside_ends_what_waits_in_line() -> None:
    gauge = Gauge(100)
    lead = editor(hand_on(*goals(4)), "end", delegates=[gauged(gauge)])
    async with open_orchestrator(":memory:", rules=Rules(live_tasks=1)) as orchestrator:
        with trio.move_on_after(10):
            await orchestrator.run(lead, "go")
        tree = orchestrator.tree(orchestrator.runs[-1])

    assert tree.counts() == {"cancelled": 5}
    assert gauge.goals == ["part 1"]


@pytest.mark.parametrize("ticks", range(8))
async def test_cancel_and_room_may_come_together(ticks: int) -> None:
    """Whoever is cancelled in the moment in which it is let in runs or does not; all ends."""
    gauge = Gauge(10)
    lead = editor(hand_on(*goals(4)), "end", delegates=[gauged(gauge)])
    journal = MemoryJournal()
    rules = Rules(live_tasks=1)
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead, "go")
            await trio.sleep(10)
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            tree = orchestrator.tree(orchestrator.runs[-1])
            await orchestrator.cancel(paths(tree)["/editor/worker[2]"])
            assert statuses(tree)["/editor/worker[2]"] == "cancelled"

    assert tree.counts() == {"succeeded": 4, "cancelled": 1}
    assert len(facts(journal.entries, TaskSettled)) == 4


# Over a crash.


def in_line(model: Gated, count: int = 5) -> Agent:
    return Agent(
        "lead",
        model=going_on(hand_on(*goals(count), background=True)),
        delegates=[gauged(model)],
    )


async def crash_when_one_runs(path: Path, agent: Agent, rules: Rules) -> SessionId:
    """Ask for tasks, and close everything while the first of them runs."""
    delegate = agent.delegates[0].model
    assert isinstance(delegate, Gated)
    scope = trio.CancelScope()
    ids: list[SessionId] = []
    with scope:
        async with open_orchestrator(path, rules=rules) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                ids.append(session.id)
                await session.ask("go")
                await delegate.asked.wait()
                scope.cancel()
                await trio.sleep_forever()
    return ids[0]


@pytest.mark.realtime
async def test_queued_tasks_survive_a_crash_and_run_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    rules = Rules(detached=1)
    session_id = await crash_when_one_runs(path, in_line(Gated()), rules)
    model = Gated()
    model.gate.set()
    async with open_orchestrator(path, rules=rules) as orchestrator:
        async with orchestrator.open_session(
            in_line(model), session=session_id
        ) as session:
            await session.wait_idle()
            tree = session.tree

    assert tree.counts() == {"succeeded": 6}
    assert model.answered == goals(5)
    assert model.peak == 1
    entries = await read_sqlite_journal(path)
    settled = Counter(fact.task for fact in facts(entries, TaskSettled))
    assert set(settled.values()) == {1}
    started = Counter(fact.task for fact in facts(entries, TaskStarted))
    # The first was interrupted while it ran, and no other.
    assert sorted(started.values()) == [1, 1, 1, 1, 2]


@pytest.mark.realtime
async def test_a_restart_under_tighter_rules_keeps_what_waits(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    session_id = await crash_when_one_runs(path, in_line(Gated(), 9), Rules(detached=4))
    model = Gated()
    model.gate.set()
    tighter = Rules(
        detached=1, live_tasks=1, live_children=1, queue=0, children_per_call=1, depth=1
    )
    async with open_orchestrator(path, rules=tighter) as orchestrator:
        async with orchestrator.open_session(
            in_line(model, 9), session=session_id
        ) as session:
            await session.wait_idle()
            tree = session.tree

    assert tree.counts() == {"succeeded": 10}
    assert sorted(model.answered) == goals(9)
    assert model.peak == 1


@pytest.mark.realtime
async def test_a_restart_under_wider_rules_lets_all_in(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    session_id = await crash_when_one_runs(path, in_line(Gated()), Rules(detached=1))
    model = Gated()
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(
            in_line(model), session=session_id
        ) as session:
            await model.asked.wait()
            await trio.testing.wait_all_tasks_blocked(0.05)
            model.gate.set()
            await session.wait_idle()

    assert model.peak == 5
    assert sorted(model.answered) == goals(5)


@pytest.mark.parametrize("none", ["detached", "live_tasks", "live_children"])
async def test_a_restart_under_rules_that_allow_nothing_keeps_tasks_for_the_next(
    none: str,
) -> None:
    journal = MemoryJournal()
    model = Gated()
    with trio.move_on_after(10):
        async with open_orchestrator(journal, rules=Rules(detached=1)) as orchestrator:
            async with orchestrator.open_session(in_line(model)) as session:
                await session.ask("go")
                await trio.sleep_forever()
    closed: dict[str, Any] = {none: 0}
    async with open_orchestrator(journal, rules=Rules(**closed)) as orchestrator:
        async with orchestrator.open_session(
            in_line(model), session=session.id
        ) as session:
            model.gate.set()
            await trio.testing.wait_all_tasks_blocked()
            assert model.answered == []
            assert "succeeded" not in set(statuses(session.tree).values())
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(
            in_line(model), session=session.id
        ) as session:
            await session.wait_idle()

    assert sorted(model.answered) == goals(5)


async def interrupted_in_line(journal: MemoryJournal, rules: Rules) -> SessionId:
    """Leave four tasks behind, one of which ran while the others waited in line."""
    agent = Agent(
        "lead",
        model=going_on(hand_on(*goals(4), background=True)),
        delegates=[worker(seconds=100)],
    )
    with trio.move_on_after(10):
        async with open_orchestrator(journal, rules=rules) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
                await trio.sleep_forever()
    return facts(journal.entries, SessionOpened)[0].session


async def test_after_a_restart_a_list_shows_who_waits_and_where() -> None:
    journal = MemoryJournal()
    rules = Rules(detached=1)
    session_id = await interrupted_in_line(journal, rules)

    def look(transcript: Transcript) -> Any:
        last = transcript[-1]
        return last.text if isinstance(last, ToolMessage) else LIST

    agent = Agent(
        "lead", model=ScriptedModel.always(look), delegates=[worker(seconds=100)]
    )
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with orchestrator.open_session(agent, session=session_id) as session:
            listed = json.loads((await session.ask("look")).text)["tasks"]

    assert [(task["status"], task.get("position")) for task in listed] == [
        ("running", None),
        ("queued", 1),
        ("queued", 2),
        ("queued", 3),
    ]


async def test_a_session_opened_again_and_again_waits_in_line_once() -> None:
    """Whoever were counted twice would keep others out for ever."""
    journal = MemoryJournal()
    rules = Rules(detached=1, queue=3)
    session_id = await interrupted_in_line(journal, rules)

    def once_more(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, ToolMessage):
            return last.text
        is_asked = last.text == "once more"
        return hand_on(*goals(4), background=True) if is_asked else "news"

    gauge = Gauge()
    agent = Agent(
        "lead", model=ScriptedModel.always(once_more), delegates=[gauged(gauge)]
    )
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        for _ in range(3):
            async with orchestrator.open_session(agent, session=session_id):
                pass
        async with orchestrator.open_session(agent, session=session_id) as session:
            await session.wait_idle()
            reply = await session.ask("once more")
            await session.wait_idle()

    assert reply.text.startswith('{"status":"dispatched"')
    assert gauge.peak == 1
    assert len(gauge.goals) == 8


async def joined_under_other_rules(length: int, before: Rules, after: Rules) -> Tree:
    """Cut the journal of a joined batch after so many entries, and go on under other rules."""
    lead = Agent(
        "lead",
        model=going_on(hand_on(*goals(4), background=False), then="end"),
        delegates=[worker(seconds=10)],
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal, rules=before) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
    whole = journal.entries
    requested = [
        place
        for place, entry in enumerate(whole)
        if isinstance(entry.event, TaskRequested)
    ]
    cut = MemoryJournal(whole[: requested[-1] + 1 + length])
    async with open_orchestrator(cut, rules=after) as orchestrator:
        async with orchestrator.open_session(lead, session=session.id) as again:
            await again.wait_idle()
            return again.tree


@pytest.mark.parametrize(
    "after",
    [
        Rules(live_tasks=1),
        Rules(live_children=1, queue=0),
        Rules(depth=0),
        Rules(children_per_call=2),
    ],
    ids=str,
)
@pytest.mark.parametrize("length", [0, 2, 4])
async def test_a_joined_batch_goes_on_under_tighter_rules(
    length: int, after: Rules
) -> None:
    """It was asked for, and whoever asked still waits for it."""
    tree = await joined_under_other_rules(length, Rules(), after)

    assert tree.counts() == {"succeeded": 5}


async def test_a_crash_after_any_entry_leaves_nobody_waiting_in_line() -> None:
    """Joined and detached in line for one place, and a nested batch: all of it comes through."""

    def lead() -> Agent:
        middle = Agent(
            "middle",
            model=going_on(hand_on("x", "y"), then="up"),
            delegates=[worker("leaf", seconds=1)],
        )
        return Agent(
            "lead",
            model=going_on(
                [
                    hand_on("a", "b", agent="middle", background=False),
                    hand_on("c", "d", agent="slow", background=True),
                ]
            ),
            delegates=[middle, worker("slow", seconds=3)],
        )

    async def finish(journal: MemoryJournal) -> Tree:
        opened = facts(journal.entries, SessionOpened)
        said = opened[0].session if opened else None
        async with open_orchestrator(
            journal, rules=Rules(live_tasks=1)
        ) as orchestrator:
            async with orchestrator.open_session(lead(), session=said) as session:
                if len(journal.entries) < 5:
                    await session.ask("go")
                await session.wait_idle()
                return session.tree

    journal = MemoryJournal()
    await finish(journal)
    whole = journal.entries
    for length in range(6, len(whole)):
        cut = MemoryJournal(whole[:length])
        tree = await finish(cut)

        assert tree.counts() == {"succeeded": 9}, length
        settled = Counter(fact.task for fact in facts(cut.entries, TaskSettled))
        assert set(settled.values()) == {1}, length
        assert facts(cut.entries, TurnEnded)[-1].outcome.ending is Ending.SUCCEEDED


async def test_a_place_is_free_again_however_its_task_ended() -> None:
    """Whatever was counted in was counted out: at the end there is room for two again."""
    gauge = Gauge(10)
    growth = Gauge(script=growing(2, 3))

    def fail(_: Transcript) -> str:
        raise ZeroDivisionError

    delegates = [
        Agent("broken", model=ScriptedModel.always(fail)),
        Agent("late", model=Gauge(100), limits=Limits(seconds=5)),
        bush(growth),
        gauged(gauge),
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

    def say(transcript: Transcript) -> Any:
        is_last = any(message.text == "again" for message in transcript)
        return last if is_last else model

    class Either(ScriptedModel):
        async def answer(self, request: ModelRequest) -> AssistantMessage:
            chosen: ScriptedModel = say(request.transcript)
            return await chosen.answer(request)

    lead = Agent("lead", model=Either([]), delegates=delegates)
    async with open_orchestrator(":memory:", rules=Rules(live_tasks=2)) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()
            before = trio.current_time()
            await session.ask("again")

            assert trio.current_time() - before == pytest.approx(10)
    assert growth.peak <= 2
    assert gauge.peak == 2
