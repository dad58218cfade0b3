"""Outputs too long to read at once are read in pages, without loss."""

import json
import re
from typing import Any

import pytest

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    Compaction,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
)
from orchestrator.delegation.events import ToolAnswered
from tests.kit import editor, facts, hand_on, worker
from tests.orchestrator.delegate_task_kit import answer_to, long

LEFT_OUT = re.compile(
    r"\n\[(\d+) of (\d+) characters are left out here: task\(action="
    r'"result", ids=\["(\w+)"\], offset=(\d+)\) reads on\.\]$'
)


def whole_of(page: str) -> tuple[str, int | None]:
    """Return what a page has of the text, and where the next one begins."""
    left_out = LEFT_OUT.search(page)
    if left_out is None:
        return page, None
    left, total, _, offset = left_out.groups()
    assert int(left) + int(offset) == int(total)
    return page[: left_out.start()], int(offset)


class Reader:
    """Delegates, and then reads the whole output of the first task, page by page."""

    def __init__(self, call: ToolCall) -> None:
        self._call = call
        self.pages: list[str] = []

    @property
    def model(self) -> ScriptedModel:
        return ScriptedModel.always(self._step)

    def _step(self, transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, UserMessage) and not last.text.startswith("A task"):
            return self._call
        if isinstance(last, UserMessage):
            page = last.text.partition("Output:\n")[2]
            task = re.findall(r"t_[0-9a-f]+", last.text)[0]
        else:
            answer = json.loads(last.text)
            if answer["status"] == "dispatched":
                return "wait"
            page = answer["results"][0]["output"]
            task = answer["results"][0]["task_id"]
        text, offset = whole_of(page)
        self.pages.append(text)
        if offset is None:
            return "read"
        asked = {"action": "result", "ids": [task], "offset": offset}
        return ToolCall("task", asked)


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("characters", [0, 1, 49_999, 50_000, 50_001, 123_456])
async def test_a_long_output_is_read_in_pages_without_loss(
    characters: int, background: bool
) -> None:
    text = long(characters)
    assert len(text) == characters
    reader = Reader(hand_on("a", background=background))
    agent = Agent("editor", model=reader.model, delegates=[worker(says=text)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert "".join(reader.pages) == text
    assert len(reader.pages) == max(1, -(-characters // 50_000))


async def test_a_long_output_is_read_on_after_a_restart() -> None:
    text = long(120_000)
    journal = MemoryJournal()
    agent = Agent(
        "editor", model=Reader(hand_on("a", background=True)).model, delegates=[worker(says=text)]
    )
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
            (task,) = session.tree.children(session.tree.root)
    pages: list[str] = []

    def read(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, ToolMessage):
            page, offset = whole_of(json.loads(last.text)["results"][0]["output"])
            pages.append(page)
        else:
            offset = 0
        if offset is None:
            return "read"
        asked = {"action": "result", "ids": [task], "offset": offset}
        return ToolCall("task", asked)

    again = Agent("editor", model=ScriptedModel.always(read), delegates=[worker()])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(again, session=session.id) as session:
            await session.ask("read it again")

    assert "".join(pages) == text


async def test_several_results_share_the_readable_characters_and_short_ones_stay_whole() -> None:
    """Outputs that are cut are marked, and no others."""

    def say(transcript: Transcript) -> str:
        return "short" if transcript[0].text == "s" else long(20_000)

    call = hand_on(*"slsslsssss", background=False)
    answer = await answer_to(call, Agent("worker", model=ScriptedModel.always(say)))

    outputs = [result["output"] for result in answer["results"]]
    assert [whole_of(output)[1] for output in outputs] == [
        None,
        5_000,
        None,
        None,
        5_000,
        *[None] * 5,
    ]
    assert outputs.count("short") == 8


async def test_each_of_many_results_has_a_minimum_length() -> None:
    call = hand_on(*["l"] * 60, background=False)

    answer = await answer_to(call, worker(says=long(3_000)))

    assert {whole_of(result["output"])[1] for result in answer["results"]} == {2_000}


async def share_of(window: int, said: int) -> int:
    """Return how many characters of a long result a tool answers, to whom so much was said."""
    agent = editor(
        hand_on("a", background=False),
        "end",
        delegates=[worker(says=long(60_000))],
        compaction=Compaction(window=window, summarizer=ScriptedModel.always("short")),
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("x" * said)
    # What the model is sent may be shorter still: this is what the tool has answered.
    (answered,) = facts(journal.entries, ToolAnswered)
    (result,) = json.loads(answered.message.text)["results"]
    shown, offset = whole_of(result["output"])
    assert offset == len(shown)
    return len(shown)


async def test_a_small_window_makes_the_share_small() -> None:
    """And the transcript so far makes it smaller: the reader has to answer, too."""
    filled = await share_of(10_000, 20_000)
    small = await share_of(10_000, 10)
    middle = await share_of(20_000, 10)
    large = await share_of(1_000_000, 10)

    assert 2_000 <= filled < small < middle < large <= 50_000
    assert small <= 10_000 * 4 / 2
    assert middle <= 20_000 * 4 / 2


@pytest.mark.parametrize("window", [4_000, 6_000, 10_000, 20_000, 100_000])
@pytest.mark.parametrize("background", [True, False])
async def test_a_result_always_fits_the_window_of_the_delegating_agent(
    window: int, background: bool
) -> None:
    """A result that does not fit into the window would end the turn that waits for it."""
    agent = Agent(
        "editor",
        model=ScriptedModel.always(
            lambda transcript: "end" if len(transcript) > 1 else hand_on("a", background=background)
        ),
        delegates=[worker(says="word " * 20_000)],
        compaction=Compaction(window=window, summarizer=ScriptedModel.always("short")),
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            replies = [await session.ask("go")]
            await session.wait_idle()
            if background:
                replies.append(session.replies.receive_nowait())

    assert [reply.text for reply in replies] == ["end"] * len(replies)
