"""Images and files that tools answer with are in the journal, and in a replay."""

from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, Part, ScriptedModel, ToolCall, tool
from orchestrator.delegation.events import ToolAnswered
from orchestrator.products.cluster.lending.lent_call import result_of
from orchestrator.products.cluster.worker.wire import Answered
from orchestrator.products.history.replay.run import replay
from tests.kit import facts

SECRET = f"sk-ant-{'aB3dE6gH9k' * 4}"
PNG = Part("image/png", data=b"\x89PNG\xff" + SECRET.encode())
TEXT = Part("text/plain", data=f"the key is {SECRET}".encode())


@tool
async def draw() -> list[Any]:
    """Draw a cat."""
    await trio.lowlevel.checkpoint()
    return ["a cat", PNG, TEXT]


def artist() -> Agent:
    return Agent("artist", model=ScriptedModel([ToolCall("draw"), "so"]), tools=[draw])


@pytest.mark.realtime
async def test_the_journal_keeps_binary_parts_unchanged_and_redacts_text() -> None:
    """An image with a byte changed is no image; a text is searched like any other."""
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(artist(), "go")

    assert run.output == "so"
    (answered,) = facts(journal.entries, ToolAnswered)
    image, text = answered.message.parts
    assert image == PNG
    assert SECRET.encode() not in text.data
    assert (await replay(journal.entries, artist())).is_same


def test_a_worker_sends_them_to_the_writer() -> None:
    result = result_of(Answered("d", "a cat", (PNG,)), draw)

    assert not isinstance(result, str)
    assert (result.text, result.parts) == ("a cat", (PNG,))
