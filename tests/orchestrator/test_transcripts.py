"""Models and scripts get values: they may keep them, and cannot change ours."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from orchestrator import open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Message,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    Transcript,
    tool,
)
from tests.kit import FunctionModel


@tool
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "found"


async def test_a_model_that_keeps_its_request_does_not_see_later_messages() -> None:
    kept: list[tuple[Sequence[Message], int]] = []

    async def answer(request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        kept.append((request.transcript, len(request.transcript)))
        if len(kept) == 1:
            return AssistantMessage(calls=(ToolCall("look"),))
        return AssistantMessage("done")

    agent = Agent("a", model=FunctionModel(answer), tools=[look])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("one")
            await session.ask("two")

    assert [len(transcript) for transcript, _ in kept] == [1, 3, 5]
    assert all(len(transcript) == length for transcript, length in kept)


@pytest.mark.parametrize("method", ["append", "clear", "pop", "extend", "insert"])
async def test_a_model_cannot_change_the_conversation(method: str) -> None:
    def meddle(transcript: Transcript) -> str:
        meddled: Any = transcript
        with pytest.raises(AttributeError):
            getattr(meddled, method)()
        with pytest.raises(TypeError):
            meddled[0] = "x"
        with pytest.raises(TypeError):
            del meddled[0]
        return "done"

    agent = Agent("a", model=ScriptedModel([meddle, meddle]))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("one")
            await session.ask("two")
            root = session.tree.root
            messages = await orchestrator.read.transcript(root)

    assert [it.text for it in messages] == ["one", "done", "two", "done"]


async def test_a_transcript_that_was_read_stays_as_it_was() -> None:
    agent = Agent("a", model=ScriptedModel(["first", "second"]))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("one")
            root = orchestrator.read.records.sessions[session.id].root
            before = await orchestrator.read.transcript(root.id)
            await session.ask("two")

    assert [it.text for it in before] == ["one", "first"]
    assert len(root.transcript) == 4
