"""Long texts are searched for secrets beside the event loop, with the same result."""

import sys

import pytest
import trio

from orchestrator import open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool
from orchestrator.agents.redaction.long_texts import VERY_LONG_TEXT, search_ahead
from orchestrator.agents.redaction.redactor import LONG_TEXT, REMEMBERED, Redactor
from tests.kit import own_processes

SECRET = "quite-a-secret"
KEY = "\n".join(["-----BEGIN PRIVATE KEY-----", *["MIIEvQIBADANBgkqhkiG9w0BAQEF"] * 40])


def text_of(characters: int) -> str:
    """Return a text whose secrets stand everywhere, a key of many lines across each border."""
    piece = f"{KEY}\n-----END PRIVATE KEY-----\npassword: hunter2\nso {SECRET} it goes\n"
    return piece * (characters // len(piece) + 1)


@pytest.mark.realtime
@pytest.mark.parametrize("characters", [LONG_TEXT, VERY_LONG_TEXT])
async def test_searching_a_text_ahead_gives_the_same_redaction(characters: int) -> None:
    text = text_of(characters)
    redactor = Redactor([SECRET])

    await search_ahead(redactor, [text, "short"])

    assert redactor.has_searched(text)
    assert not redactor.has_searched("short")
    assert redactor.redact(text) == Redactor([SECRET]).redact(text)
    assert SECRET not in redactor.redact(text)


@pytest.mark.realtime
async def test_a_thread_searches_when_no_process_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/there/is/no/python")
    text = text_of(VERY_LONG_TEXT)
    redactor = Redactor([SECRET])

    await search_ahead(redactor, [text])

    assert redactor.redact(text) == Redactor([SECRET]).redact(text)


@pytest.mark.realtime
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
async def test_a_search_that_is_cancelled_leaves_no_process() -> None:
    redactor = Redactor([SECRET])
    text = text_of(10_000_000)
    before = own_processes()
    with trio.move_on_after(0.2):
        await search_ahead(redactor, [text])

    assert not redactor.has_searched(text)
    assert own_processes() <= before


async def test_a_text_without_any_mark_of_a_secret_needs_no_thread() -> None:
    text = "so it goes " * 20_000
    redactor = Redactor([SECRET])

    # The clock of this test would jump over a deadline while a thread works.
    with trio.fail_after(1):
        await search_ahead(redactor, [text])

    assert redactor.redact(text) is text


@pytest.mark.realtime
async def test_a_mark_across_two_pieces_is_seen() -> None:
    redactor = Redactor([SECRET])
    for before in range(50_000 - len(SECRET), 50_001):
        text = f"{'x' * before}{SECRET}{'y' * 9_000}"
        await search_ahead(redactor, [text])
        assert SECRET not in redactor.redact(text)


def test_the_memory_of_searched_texts_is_bounded() -> None:
    redactor = Redactor()
    texts = [f"{number}{'x' * 1_000_000}" for number in range(30)]
    for text in texts:
        redactor.remember(text, text)

    assert not redactor.has_searched(texts[0])
    assert redactor.has_searched(texts[-1])
    assert sum(map(redactor.has_searched, texts)) * 1_000_000 <= REMEMBERED


@pytest.mark.realtime
async def test_long_goals_answers_and_results_are_searched_ahead() -> None:
    goal, answer, result = (f"{word} {text_of(LONG_TEXT)}" for word in "abc")

    @tool(limit=0)
    def big() -> str:
        """Return a long text."""
        return result

    child = Agent("child", model=ScriptedModel.always(answer))
    model = ScriptedModel(
        [ToolCall("big", {}), ToolCall("delegate_task", {"goal": f"d {answer}"}), "ok"]
    )
    parent = Agent("parent", model=model, tools=[big], delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(parent, goal)
        searched = orchestrator.read.redactor.has_searched

        assert run.output == "ok"
        assert all(map(searched, [goal, answer, result, f"d {answer}"]))
        goals = [node.goal for node in run.tree.nodes().values()]
        assert not any("hunter2" in text for text in goals)
