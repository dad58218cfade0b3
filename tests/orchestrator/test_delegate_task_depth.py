"""Results, errors and cancels cross deep chains of tasks."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from orchestrator import JournalError, MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, DefinitionError, ScriptedModel, ToolCall, Transcript, tool
from orchestrator.delegation import Rules
from tests.kit import hand_on
from tests.orchestrator.delegate_task_kit import handed, wait

DEEPEST = 250
"""No rules allow a deeper chain: see the test of what is refused."""


def chain(depth: int, bottom: Any, tools: Sequence[Any] = ()) -> Agent:
    """Return an agent whose copies hand on one level further, down to the bottom."""

    def say(transcript: Transcript) -> Any:
        level = int(transcript[0].text)
        if level == depth:
            return bottom
        return "up" if len(transcript) > 1 else handed(str(level + 1), background=False)

    return Agent("link", model=ScriptedModel.always(say), tools=tools, copies=True)


async def test_a_deep_chain_comes_back_up() -> None:
    depth = DEEPEST
    async with open_orchestrator(":memory:", rules=Rules(depth=depth)) as orchestrator:
        finished = await orchestrator.run(chain(depth, "bottom"), "0")

    assert finished.output == "up"
    assert finished.tree.counts() == {"succeeded": depth + 1}


async def test_a_cancel_crosses_a_deep_chain() -> None:
    depth = DEEPEST
    agent = chain(depth, ToolCall("wait"), [wait])
    async with open_orchestrator(":memory:", rules=Rules(depth=depth)) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, agent, "0")
            await trio.sleep(10)
            tree = orchestrator.tree(orchestrator.runs[-1])
            (first,) = tree.children(tree.root)
            await orchestrator.cancel(first)

    assert tree.counts() == {"cancelled": depth, "succeeded": 1}


async def test_a_cancel_from_outside_crosses_a_deep_chain() -> None:
    depth = DEEPEST
    agent = chain(depth, ToolCall("wait"), [wait])
    async with open_orchestrator(":memory:", rules=Rules(depth=depth)) as orchestrator:
        with trio.move_on_after(10):
            await orchestrator.run(agent, "0")
        tree = orchestrator.tree(orchestrator.runs[-1])

    assert tree.counts() == {"cancelled": depth + 1}


async def test_a_deep_chain_in_the_background_is_interrupted_and_goes_on() -> None:
    depth = 200

    def agent(*, to_wait: bool) -> Agent:
        link = chain(depth, ToolCall("wait") if to_wait else "bottom", [wait])
        calls = ScriptedModel.always(
            lambda transcript: "ok" if len(transcript) > 1 else hand_on("1", background=True)
        )
        return Agent("lead", model=calls, delegates=[link])

    journal = MemoryJournal()
    rules = Rules(depth=depth)
    with trio.move_on_after(10):
        async with open_orchestrator(journal, rules=rules) as orchestrator:
            async with orchestrator.open_session(agent(to_wait=True)) as session:
                await session.ask("go")
                await trio.sleep_forever()
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with orchestrator.open_session(agent(to_wait=False), session=session.id) as again:
            await again.wait_idle()

            assert again.tree.counts() == {"succeeded": depth + 1}


async def test_an_error_at_the_bottom_is_a_result_one_level_up() -> None:
    depth = DEEPEST

    @tool
    async def fall() -> str:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    agent = chain(depth, ToolCall("fall"), [fall])
    async with open_orchestrator(":memory:", rules=Rules(depth=depth)) as orchestrator:
        finished = await orchestrator.run(agent, "0")

    assert finished.tree.counts() == {"succeeded": depth, "failed": 1}


async def test_a_fatal_error_crosses_a_deep_chain() -> None:
    """It comes out alone: groups that grew with every level would end in a RecursionError."""
    depth = DEEPEST

    class Breaking(MemoryJournal):
        broken = False

        async def wait_durable(self, seq: int) -> None:
            await trio.lowlevel.checkpoint()
            if self.broken:
                raise JournalError("journal", "the disk is full")

    journal = Breaking()

    @tool
    async def fill() -> str:
        await trio.lowlevel.checkpoint()
        journal.broken = True
        return "full"

    agent = chain(depth, ToolCall("fill"), [fill])
    with pytest.raises(JournalError, match="the disk is full"):
        async with open_orchestrator(journal, rules=Rules(depth=depth)) as orchestrator:
            await orchestrator.run(agent, "0")


async def test_an_interrupt_of_the_user_crosses_a_deep_chain() -> None:
    @tool
    async def press() -> str:
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt

    agent = chain(200, ToolCall("press"), [press])
    with pytest.raises(KeyboardInterrupt):
        async with open_orchestrator(":memory:", rules=Rules(depth=200)) as orchestrator:
            await orchestrator.run(agent, "0")


@pytest.mark.parametrize("depth", [DEEPEST + 1, 1_000])
def test_a_depth_that_a_cancel_could_not_cross_is_refused(depth: int) -> None:
    with pytest.raises(DefinitionError, match=f"depth={depth}"):
        Rules(depth=depth)


def test_negative_rules_are_refused() -> None:
    for rule in ("depth", "children_per_call", "live_children", "live_tasks", "queue"):
        negative: dict[str, Any] = {rule: -1}
        with pytest.raises(DefinitionError, match=rf"Rules\({rule}=-1\)"):
            Rules(**negative)
