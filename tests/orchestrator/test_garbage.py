"""Tasks leave nothing to the garbage collector: each object is freed with its last reference."""

import gc

import pytest

from orchestrator import open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall


@pytest.mark.parametrize("children", [1, 20])
async def test_a_delegation_leaves_no_garbage(children: int) -> None:
    """A collection walks through all live tasks while every other task waits."""
    child = Agent("child", model=ScriptedModel.always("done"))
    call = ToolCall("delegate_task", {"tasks": [{"goal": "go"}] * children})
    async with open_orchestrator(":memory:") as orchestrator:

        def parent() -> Agent:
            return Agent("parent", model=ScriptedModel([call, "done"]), delegates=[child])

        await orchestrator.run(parent(), "warm up")
        agent = parent()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await orchestrator.run(agent, "go")
            gc.collect()
            left = [type(it).__qualname__ for it in gc.garbage]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert left == []
