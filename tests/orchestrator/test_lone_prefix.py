"""A shared context is written to a cache only if another call may read it."""

import pytest

from orchestrator import Agent, Budget, ScriptedModel, ToolCall, open_orchestrator, tool
from tests.caching_provider import ANTHROPIC, CachingProvider

CONTEXT = "All of it is in the minutes of the meeting.\n" * 2_000


@tool
def look(word: str) -> str:
    """Look a word up."""
    return word


def handed_on(*goals: str) -> ToolCall:
    tasks = [{"goal": goal} for goal in goals]
    return ToolCall("delegate_task", {"context": CONTEXT, "tasks": tasks, "background": False})


@pytest.mark.parametrize(
    ("calls", "has_tools", "written"),
    [
        ([handed_on("one")], False, [False]),
        ([handed_on("one")], True, [True]),
        ([handed_on("one", "two")], False, [True, True]),
        ([handed_on("one"), handed_on("two")], False, [False, True]),
    ],
    ids=["alone", "alone with tools", "siblings", "one after the other"],
)
async def test_a_context_is_written_to_the_cache_if_another_call_may_read_it(
    calls: list[ToolCall], has_tools: bool, written: list[bool]
) -> None:
    provider = CachingProvider(ANTHROPIC)
    tools = [look] if has_tools else []
    worker = Agent("worker", model=provider, tools=tools, budget=Budget(usd=1))
    lead = Agent("lead", model=ScriptedModel([*calls, "done"]), delegates=[worker])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead, "all")

    assert [bool(it.cache_written_tokens) for it in provider.answered] == written
    assert run.tree.total.micro_usd == provider.micro_usd
