"""A function makes the instructions of a turn once; a turn that goes on goes on with them."""

import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import msgspec
import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    ModelRequest,
    ScriptedModel,
    TaskContext,
    ToolCall,
    tool,
)
from orchestrator.delegation.events import ModelAnswered
from orchestrator.products.history.replay.run import replay_sync
from tests.kit import facts, hand_on, run
from tests.orchestrator.test_replay import run_of


@attrs.define
class Listening:
    """A model that keeps the instructions of its requests."""

    inner: Any
    heard: list[str] = attrs.field(factory=list[str])
    name: str = "listening"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.heard.append(request.instructions)
        answer: AssistantMessage = await self.inner.answer(request)
        return answer


@tool(idempotent=True)
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "seen"


class Counting:
    """Instructions that are different each time they are made."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, task: TaskContext) -> str:
        await trio.sleep(1)
        self.calls += 1
        return f"{self.calls}: {task.agent} at {task.path} for {task.goal}"


def looker(
    instructions: Callable[[TaskContext], str | Awaitable[str]], **options: Any
) -> tuple[Agent, list[str]]:
    script = ScriptedModel.always(
        lambda said: "done" if said[-1].text == "seen" else ToolCall("look")
    )
    model = Listening(script)
    return Agent(
        "looker", model=model, tools=[look], instructions=instructions, **options
    ), model.heard


async def test_instructions_are_made_once_in_a_turn_and_once_more_in_the_next() -> None:
    agent, heard = looker(Counting(), language="German")
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("one")
            await session.ask("two")

    assert heard == [
        "1: looker at /looker for one\n\nAnswer in German.",
        "1: looker at /looker for one\n\nAnswer in German.",
        "2: looker at /looker for one\n\nAnswer in German.",
        "2: looker at /looker for one\n\nAnswer in German.",
    ]


async def test_dynamic_instructions_are_recorded_in_the_first_answer_only() -> None:
    journal = MemoryJournal()
    agent, _ = looker(lambda task: f"You are {task.agent}.")
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(agent, "go")

    first, second = facts(journal.entries, ModelAnswered)
    assert first.instructions == "You are looker."
    assert second.instructions is msgspec.UNSET
    assert b"instructions" not in msgspec.json.encode(second)


async def test_a_run_resumes_with_its_recorded_instructions_after_any_crash() -> None:
    whole = MemoryJournal()
    agent, _ = looker(Counting())
    async with open_orchestrator(whole) as orchestrator:
        ran = await orchestrator.run(agent, "go")
    entries = whole.entries
    answered = [at for at, it in enumerate(entries) if isinstance(it.event, ModelAnswered)]
    assert len(answered) == 2
    for length in range(4, len(entries) - 1):
        count = Counting()
        count.calls = 10
        resumed, heard = looker(count)
        async with open_orchestrator(MemoryJournal(entries[:length])) as orchestrator:
            assert (await orchestrator.resume(resumed, ran.id)).output == "done"
        if length <= answered[0]:
            # No model had answered: nothing depends on what was made.
            assert count.calls == 11
            assert {text[:3] for text in heard} == {"11:"}
        else:
            assert count.calls == 10
            assert {text[:2] for text in heard} <= {"1:"}


async def test_an_agent_that_restarts_makes_its_instructions_again() -> None:
    whole = MemoryJournal()
    agent, _ = looker(Counting())
    async with open_orchestrator(whole) as orchestrator:
        ran = await orchestrator.run(agent, "go")
    again, heard = looker(Counting(), on_restart="restart")
    journal = MemoryJournal(whole.entries[:-2])
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.resume(again, ran.id)

    assert heard == ["1: looker at /looker for go"] * 2


async def test_each_child_has_its_own_instructions() -> None:
    child, heard = looker(Counting())
    model = ScriptedModel([[hand_on("a"), hand_on("b")], "done"])
    await run(Agent("boss", model=model, delegates=[child]))

    made = {text.split(": ")[1].removeprefix("looker at ") for text in heard}
    assert {text.split(" for ")[0] for text in made} == {"/boss/looker[1]", "/boss/looker[2]"}
    assert {text.split(" for ")[1] for text in made} == {"a", "b"}


def test_a_replay_does_not_call_the_function() -> None:
    count = Counting()
    agent, _ = looker(count)
    entries = run_of(agent)

    assert replay_sync(entries, agent).is_same
    assert count.calls == 1


@pytest.mark.parametrize("made", [None, 5])
async def test_dynamic_instructions_that_are_not_text_fail_the_task(made: Any) -> None:
    agent, heard = looker(lambda _: made)
    ended = (await run(agent)).outcome

    assert f"its instructions were made as {made!r}, and must be text" in ended.error
    assert heard == []


async def test_an_error_of_the_function_ends_the_task() -> None:
    def broken(_: TaskContext) -> str:
        raise LookupError("no such shop")

    agent, _ = looker(broken)

    assert "LookupError: no such shop" in (await run(agent)).outcome.error


async def test_secrets_in_them_are_not_in_the_journal() -> None:
    journal = MemoryJournal()
    agent, heard = looker(lambda _: "the key is sk-abcdefghijklmnopqrstuvwxyz123456")
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(agent, "go")

    assert "sk-abcdefgh" in heard[0]
    assert "sk-abcdefgh" not in str(journal.entries)


RULES = "Follow the rules of the house.\n" * 200


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        pytest.param("It is {}.\n" + RULES, "line 1, column 7", id="a time before the rules"),
        pytest.param(RULES + "It is {}.", "line 201, column 7", id="a time after the rules"),
        pytest.param("It is {}.", "", id="short instructions"),
        pytest.param(RULES, "", id="the same instructions"),
    ],
)
async def test_long_instructions_that_change_between_tasks_warn(text: str, warned: str) -> None:
    """No prompt cache can serve a request that is new from its start on."""
    times = iter(("12:00", "21:00", "22:00"))
    agent = Agent(
        "clerk", instructions=lambda _: text.format(next(times)), model=ScriptedModel.always("done")
    )
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(agent, "one")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await orchestrator.run(agent, "two")

    assert [warned in str(it.message) for it in caught] == [True] * bool(warned)


async def test_instructions_that_change_before_a_long_shared_context_warn() -> None:
    times = iter(("12:00", "21:00"))
    tasks = {"tasks": [{"goal": "a"}, {"goal": "b"}], "context": RULES, "background": False}
    clerk = Agent(
        "clerk", instructions=lambda _: f"It is {next(times)}.", model=ScriptedModel.always("done")
    )
    lead = Agent(
        "lead", model=ScriptedModel([ToolCall("delegate_task", tasks), "done"]), delegates=[clerk]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        with pytest.warns(UserWarning, match="'clerk': the instructions that its function made"):
            await orchestrator.run(lead, "both")
