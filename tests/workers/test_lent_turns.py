"""A turn of an agent with a place is the same wherever it runs: all of it on one machine."""

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
import trio

from orchestrator import budget
from orchestrator.agents import (
    Agent,
    CallKey,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolError,
    confirm,
    tool,
)
from orchestrator.agents.tools.context import current_tool_context
from orchestrator.delegation import Ending
from orchestrator.delegation.events import CallPlaced, ToolAnswered
from tests.workers.places import PLACE, Places

IN_MEMORY = ["here", "workers"]


@pytest.fixture(params=IN_MEMORY)
def places(request: pytest.FixtureRequest) -> Places:
    return Places(here=request.param == "here")


@pytest.fixture(params=[*IN_MEMORY, pytest.param("absurd", marks=pytest.mark.realtime)])
def every_place(request: pytest.FixtureRequest) -> Generator[Places]:
    if request.param in IN_MEMORY:
        yield Places(here=request.param == "here")
        return
    yield Places(url=request.getfixturevalue("postgres"), queue=request.param)


class Counters:
    """A tool whose state is in the memory of a machine: what one worker has, no other has."""

    def __init__(self) -> None:
        self.by_context: Counter[int] = Counter()

    def tool(self) -> Tool:
        @tool
        async def count(step: int = 1) -> str:
            """Count on this machine, for this turn."""
            await trio.lowlevel.checkpoint()
            seen = id(current_tool_context().seen_files)
            self.by_context[seen] += step
            return f"{self.by_context[seen]}"

        return count


def answering(*steps: Any, name: str = "painter", **options: Any) -> Agent:
    """Return an agent with a place that calls tools, and answers what the last has answered."""
    return Agent(
        name,
        model=ScriptedModel([*steps, lambda transcript: transcript[-1].text]),
        place=PLACE,
        **options,
    )


async def test_all_calls_of_a_turn_are_on_one_machine(every_place: Places) -> None:
    """Two workers are there, and both calls of an answer and those of later ones find one state."""
    places, counters = every_place, Counters()
    both = [ToolCall("count"), ToolCall("count")]
    agent = places.agents["painter"] = answering(both, ToolCall("count"), tools=[counters.tool()])

    async with places.open(workers=2) as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.outcome.output == "3"
    placed = places.facts(CallPlaced)
    assert len(placed) == (0 if places.here else 1), "once a turn"
    assert all(it.turn for it in placed)


async def test_each_task_has_a_turn_of_its_own(places: Places) -> None:
    counters = Counters()
    agent = Agent(
        "painter",
        model=ScriptedModel.always(
            lambda transcript: (
                transcript[-1].text
                if len(transcript) > 4
                else ToolCall("count", {"step": int(transcript[0].text)})
            )
        ),
        tools=[counters.tool()],
        place=PLACE,
    )
    goals = [ToolCall("delegate_task", {"goal": g, "agent": "painter"}) for g in "12"]
    boss = Agent(
        "boss",
        model=ScriptedModel(
            [goals, lambda transcript: "\n".join(it.text for it in transcript[2:])]
        ),
        delegates=[agent],
    )
    places.agents |= {"boss": boss, "painter": agent}

    async with places.open(workers=2) as orchestrator:
        run = await orchestrator.run(boss, "go")

    assert sorted(counters.by_context.values()) == [2, 4]
    assert run.outcome.ending is Ending.SUCCEEDED


async def test_errors_are_the_same(places: Places) -> None:
    @tool
    async def fail() -> str:
        """Fail."""
        await trio.lowlevel.checkpoint()
        raise ToolError("there is no paint")

    @tool
    async def crash() -> str:
        """Crash."""
        await trio.lowlevel.checkpoint()
        raise ValueError("the brush broke")

    agent = places.agents["painter"] = answering(
        ToolCall("fail"), ToolCall("crash"), tools=[fail, crash]
    )
    async with places.open() as orchestrator:
        run = await orchestrator.run(agent, "go")

    (answered,) = places.facts(ToolAnswered)
    assert answered.message.failed
    assert answered.message.text == "there is no paint"
    assert run.outcome.ending is Ending.FAILED
    assert run.outcome.error.startswith("ValueError: the brush broke (test_lent_turns")


async def test_the_keys_equal_those_of_a_local_call(places: Places) -> None:
    @tool
    async def register(key: CallKey) -> str:
        """Register a key."""
        await trio.lowlevel.checkpoint()
        return key

    agent = places.agents["painter"] = answering(
        ToolCall("register"), ToolCall("register"), tools=[register]
    )
    async with places.open() as orchestrator:
        await orchestrator.run(agent, "go")

    first, second = places.facts(ToolAnswered)
    assert first.message.text == f"{first.task}/{first.message.call}"
    assert second.message.text == f"{second.task}/{second.message.call}"
    assert first.message.text != second.message.text


async def test_secrets_are_removed(places: Places) -> None:
    @tool
    async def leak() -> str:
        """Leak."""
        await trio.lowlevel.checkpoint()
        return "writer-secret-4711 worker-secret-0815"

    agent = places.agents["painter"] = answering(ToolCall("leak"), tools=[leak])
    environ = {"WRITER_TOKEN": "writer-secret-4711"}
    async with places.open(environ=environ) as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert "4711" not in run.outcome.output
    assert ("0815" in run.outcome.output) == places.here


async def test_a_timeout_stops_the_call_and_the_turn_goes_on(places: Places) -> None:
    seconds = places.minute
    counters = Counters()

    @tool(timeout=seconds)
    async def sleep() -> str:
        """Sleep."""
        await trio.sleep_forever()
        return ""

    agent = places.agents["painter"] = answering(
        ToolCall("count"), ToolCall("sleep"), ToolCall("count"), tools=[sleep, counters.tool()]
    )
    async with places.open() as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.outcome.output == "2"
    assert "and was stopped" in places.facts(ToolAnswered)[1].message.text


async def test_a_cancel_returns_after_the_whole_turn_has_ended(every_place: Places) -> None:
    places = every_place
    log: list[str] = []
    begun = trio.Event()

    @tool
    async def sleep() -> str:
        """Sleep, and clean up for a while."""
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            log.append("ended")
        return ""

    agent = places.agents["painter"] = answering(ToolCall("sleep"), tools=[sleep])
    async with places.open() as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, agent, "go")
            await begun.wait()
            await orchestrator.cancel(orchestrator.runs[-1])
            log.append("joined")

    assert log == ["ended", "joined"]


async def test_a_budget_is_exact(places: Places) -> None:
    counters = Counters()
    agent = Agent(
        "painter",
        model=ScriptedModel.always(
            lambda transcript: "done" if len(transcript) > 2 else ToolCall("count")
        ),
        tools=[counters.tool()],
        place=PLACE,
    )
    goals = [ToolCall("delegate_task", {"goal": f"{n}", "agent": "painter"}) for n in range(12)]
    boss = Agent("boss", model=ScriptedModel([goals, "end"]), delegates=[agent])
    places.agents |= {"boss": boss, "painter": agent}
    async with places.open(workers=2) as orchestrator:
        with budget(calls=15):
            run = await orchestrator.run(boss, "go")

    assert run.usage.calls == 15


@pytest.mark.parametrize("verdict", ["once", "deny"])
async def test_a_call_waits_for_approval_before_a_worker_is_needed(
    places: Places, verdict: str
) -> None:
    ran: list[str] = []

    @tool
    async def launch() -> str:
        """Launch."""
        await trio.lowlevel.checkpoint()
        ran.append("launch")
        return "launched"

    agent = places.agents["painter"] = answering(
        ToolCall("launch"), tools=[launch], approve=[confirm("launch")]
    )
    outputs: list[str] = []
    async with places.open() as orchestrator:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def run() -> None:
                ended = await orchestrator.run(agent, "go", attended=True)
                outputs.append(ended.outcome.output)

            while not orchestrator.approvals:
                await orchestrator.wait_changed(after=orchestrator.read.last_seq)
            assert not ran
            assert not places.facts(CallPlaced)
            await orchestrator.answer(orchestrator.approvals[0].id, verdict)

    assert ran == (["launch"] if verdict == "once" else [])
    assert outputs == ["launched"] or "was denied" in outputs[0]
