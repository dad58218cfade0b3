"""The agent of a delegated task, and the settings that a copy inherits."""

import json
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    tool,
)
from orchestrator.testing import SpyModel
from tests.kit import FunctionModel, hand_on, last_text, run, worker
from tests.orchestrator.delegate_task_kit import answer_to, handed, own


@tool
async def special() -> str:
    """Be a delegate's tool."""
    await trio.lowlevel.checkpoint()
    return "special"


async def test_a_copy_has_the_tools_of_its_parent_and_may_delegate() -> None:
    model = SpyModel([hand_on("half", background=False), "leaf", "whole"])
    agent = Agent("editor", instructions="Edit.", model=model, tools=[own], copies=True)

    finished = await run(agent)

    parent, child, _ = model.requests
    assert [tool.name for tool in parent.tools] == ["own", "delegate_task", "task"]
    assert [tool.name for tool in child.tools] == ["own", "delegate_task", "task"]
    assert child.instructions == "Edit."
    assert [finished.tree[task].path for task in finished.tree] == ["/editor", "/editor/editor[1]"]


async def test_an_omitted_agent_with_two_delegates_means_a_leaf_copy() -> None:
    model = SpyModel([handed("half", background=False), "leaf", last_text])
    delegates = [
        Agent("a", model=ScriptedModel([]), tools=[special]),
        Agent("b", model=ScriptedModel([]), tools=[special]),
    ]
    agent = Agent("editor", model=model, tools=[own], delegates=delegates)

    finished = await run(agent)

    assert [tool.name for tool in model.requests[1].tools] == ["own"]
    (result,) = json.loads(finished.output)["results"]
    assert (result["path"], result["agent"]) == ("/editor/editor[1]", "editor")
    assert result["output"] == "leaf"


async def test_an_omitted_agent_with_one_delegate_means_that_delegate() -> None:
    answer = await answer_to(handed("a", background=False), worker("only"))

    assert answer["results"][0]["path"] == "/editor/only[1]"


async def test_an_omitted_agent_with_copies_means_a_copy() -> None:
    model = SpyModel([handed("half", background=False), "leaf", last_text])
    agent = Agent(
        "editor",
        model=model,
        tools=[own],
        delegates=[Agent("only", model=ScriptedModel([]), tools=[special])],
        copies=True,
    )

    finished = await run(agent)

    assert json.loads(finished.output)["results"][0]["path"] == "/editor/editor[1]"
    assert "special" not in [tool.name for tool in model.requests[1].tools]


async def test_a_leaf_copy_has_no_delegate_tool() -> None:
    model = SpyModel([handed("half", background=False), handed("quarter"), last_text, last_text])
    agent = Agent("editor", model=model, tools=[own], delegates=[worker("a"), worker("b")])

    finished = await run(agent)

    assert "there is no tool 'delegate_task'" in finished.output
    assert len(finished.tree) == 2


async def test_an_agent_without_delegates_has_no_delegate_tool() -> None:
    model = SpyModel(["x"])

    await run(Agent("solo", model=model, tools=[own]))

    assert [tool.name for tool in model.requests[0].tools] == ["own"]


@pytest.mark.parametrize("copies", [True, False])
async def test_a_child_does_not_see_the_history_of_its_parent(copies: bool) -> None:
    model = SpyModel([ToolCall("own"), handed("part", context="Be brief.", background=False), "x"])
    child = SpyModel(["done"])

    async def either(request: ModelRequest) -> AssistantMessage:
        is_child = request.transcript[0].text.endswith("part")
        return await (child if is_child else model).answer(request)

    if copies:
        both = FunctionModel(either)
        agent = Agent("editor", model=both, tools=[own], copies=True)
    else:
        helper = Agent("helper", instructions="Help.", model=child)
        agent = Agent(
            "editor", instructions="Know a secret.", model=model, tools=[own], delegates=[helper]
        )
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(agent, "the whole story, with a secret")

    (request,) = child.requests
    assert child.texts == [["Context:\nBe brief.\n\nYour task:\npart"]]
    assert isinstance(request.transcript[0], UserMessage)
    assert "secret" not in request.instructions


async def test_a_copy_is_found_again_after_a_crash() -> None:
    def say(transcript: Transcript) -> Any:
        if transcript[0].text.startswith("part"):
            return "copied"
        answered = any(isinstance(message, ToolMessage) for message in transcript)
        return last_text(transcript) if answered else handed("part", background=True)

    def agent(seconds: float) -> Agent:
        model = ScriptedModel.always(say, seconds)
        return Agent("editor", model=model, delegates=[worker("a"), worker("b")])

    journal = MemoryJournal()
    with trio.move_on_after(10):
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(agent(4)) as session:
                await session.ask("go")
                await trio.sleep_forever()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent(0), session=session.id) as again:
            await again.wait_idle()

            assert "copied" in again.replies.receive_nowait().text


async def test_a_copy_promises_the_output_of_its_parent() -> None:
    model = ScriptedModel([handed("part", background=False), "no list", "[1]", "[2]"])
    agent = Agent("editor", model=model, output=list[int], copies=True)

    finished = await run(agent)

    assert finished.output == [2]
    (child,) = finished.tree.children(finished.tree.root)
    assert finished.tree[child].usage.calls == 2  # one repair
