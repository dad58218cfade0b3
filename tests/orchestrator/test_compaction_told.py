"""Omitted messages are reported in the request, in the journal and over HTTP."""

import pytest
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Compaction,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    Usage,
    tool,
)
from orchestrator.delegation.events import ModelAnswered
from orchestrator.testing import Harness, SpyModel
from tests.kit import FunctionModel
from tests.server.kit import serving
from tests.server.runs_kit import events_of, started

DOCUMENT = "begin " + "word " * 4_000 + " end"


def talkative(model: SpyModel) -> Agent:
    return Agent(
        "talker",
        model=model,
        compaction=Compaction(window=8_000, summarizer=ScriptedModel.always("they talked")),
    )


async def answer(request: ModelRequest) -> AssistantMessage:
    await trio.lowlevel.checkpoint()
    return AssistantMessage("yes " * 200, usage=Usage(calls=1), model="spy")


async def test_a_document_that_fills_the_window_ends_no_later_turn() -> None:
    harness = Harness()
    model = SpyModel(FunctionModel(answer))
    async with harness.open() as orchestrator:
        async with orchestrator.open_session(talkative(model)) as session:
            replies = [await session.ask(DOCUMENT)]
            replies += [await session.ask(f"question {n}") for n in range(10)]

    assert all(reply.outcome.succeeded for reply in replies)
    left_out = [fact.left_out for fact in harness.facts(ModelAnswered)]
    assert left_out[0] == 0
    assert all(left_out[-5:])
    (first, *_) = model.requests[-1].transcript
    assert "characters are left out here" in first.text
    assert first.text.startswith("begin")
    assert first.text.endswith("end")


async def test_a_message_that_cannot_fit_ends_its_own_turn_only() -> None:
    harness = Harness()
    model = SpyModel(FunctionModel(answer))
    async with harness.open() as orchestrator:
        async with orchestrator.open_session(talkative(model)) as session:
            too_long = await session.ask(DOCUMENT * 2)
            after = await session.ask("and now?")

    assert too_long.outcome.kind == "context_too_long"
    assert after.outcome.succeeded
    assert len(model.requests) == 1


@pytest.mark.realtime
async def test_readers_of_the_server_see_the_omitted_characters() -> None:
    @tool
    async def read() -> str:
        """Read the document."""
        await trio.lowlevel.checkpoint()
        return DOCUMENT * 2

    reader = Agent(
        "reader",
        model=ScriptedModel([ToolCall("read", {}), "It is long."]),
        tools=[read],
        compaction=Compaction(window=8_000),
    )
    async with serving(reader) as served:
        run = (await started(served, "reader"))["id"]
        events = await events_of(served, run)

    answers = [it.data for it in events if it.data.get("kind") == "ModelAnswered"]
    assert [fact["body"]["left_out"] > 0 for fact in answers] == [False, True]
    assert events[-1].data["status"] == "completed"
