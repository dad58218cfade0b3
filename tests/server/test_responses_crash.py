"""A response in the background survives its server, and so does the stream of a client."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pytest
import trio

from orchestrator.agents import Agent, AssistantMessage, ScriptedModel, ToolCall, Transcript
from orchestrator.delegation.events import (
    Entry,
    MessageReceived,
    SessionOpened,
    TaskSettled,
    TurnEnded,
)
from orchestrator.kernel.journal.memory import MemoryJournal
from orchestrator.testing import CrashedError, CrashingJournal, assert_laws
from tests.kit import facts, hand_on, worker
from tests.server.kit import serving
from tests.server.server_process import server_process

pytestmark = pytest.mark.realtime

NEVER = 10_000
SCRIPT: list[str | ToolCall] = [hand_on("look", background=True), "I wait.", "It is 42."]


def next_step(transcript: Transcript) -> str | ToolCall:
    """Go on where the transcript ends, also in the next process."""
    return SCRIPT[sum(isinstance(it, AssistantMessage) for it in transcript)]


EDITOR = ScriptedModel.always(next_step)
AGENT = Agent("editor", model=EDITOR, delegates=[worker("helper")])


async def read(
    client: openai.AsyncOpenAI,
    events: list[dict[str, Any]],
    *,
    then: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Read a response from where one is, until there is no more of it.

    Args:
        client: who asks.
        events: what was read, and is added to.
        then: what happens after the first words.
    """
    responses = client.responses
    if events:
        stream = await responses.retrieve(
            events[0]["response"]["id"], stream=True, starting_after=events[-1]["sequence_number"]
        )
    else:
        stream = await responses.create(
            model="editor",
            input="?",
            background=True,
            stream=True,
            extra_headers={"Idempotency-Key": "k"},
        )
    async for event in stream:
        events.append(event.to_dict(mode="json"))
        if then is not None and words(events):
            await then()


async def read_through_a_crash(crash_after: int) -> tuple[list[dict[str, Any]], Sequence[Entry]]:
    """Return what a client reads of a response whose server crashes, and the journal."""
    journal = MemoryJournal()
    events: list[dict[str, Any]] = []
    with suppress(CrashedError):
        dying = CrashingJournal(journal, after=crash_after)
        async with serving(AGENT, journal=dying) as served:
            with suppress(openai.APIError):
                await read(served.openai, events)
    if not events or events[-1]["type"] != "response.completed":
        async with serving(AGENT, journal=journal) as served:
            await read(served.openai, events)
    return events, journal.entries


def shape(events: Sequence[dict[str, Any]]) -> list[Any]:
    """Return all but the pieces in which the words came, and that a server has ended."""
    return [
        (event["type"], event["sequence_number"])
        for event in events
        if not event["type"].endswith(".delta") and event["type"] != "error"
    ]


def words(events: Sequence[dict[str, Any]]) -> str:
    return "".join(event.get("delta", "") for event in events)


async def test_after_a_crash_anywhere_a_response_is_completed_once() -> None:
    """A client that has read a part continues there, and reads the same to the end."""
    whole, entries = await read_through_a_crash(NEVER)
    assert words(whole) == "I wait.\n\nIt is 42."
    (begun,) = [it.seq for it in entries if isinstance(it.event, MessageReceived)]
    for crash_after in range(begun, len(entries)):
        events, kept = await read_through_a_crash(crash_after)

        assert shape(events) == shape(whole), crash_after
        assert words(events) == words(whole), crash_after
        assert events[-1]["response"]["status"] == "completed"
        assert len(facts(kept, TaskSettled)) == 1
        assert len(facts(kept, TurnEnded)) == 2
        assert_laws(kept)


HANGING = """
from pathlib import Path

import trio

from orchestrator.agents import Agent, AssistantMessage, TextDelta, ToolCall


class Hanging:
    name = "hanging"

    def __init__(self, *answers):
        self.answers = answers

    async def answer(self, request):
        said = sum(isinstance(it, AssistantMessage) for it in request.transcript)
        answer = self.answers[said]
        if isinstance(answer, ToolCall):
            return AssistantMessage("", (answer,))
        request.tell(TextDelta(answer[:4]))
        if not Path("go").exists():
            await trio.sleep_forever()
        request.tell(TextDelta(answer[4:]))
        return AssistantMessage(answer)


look = ToolCall("delegate_task", {"tasks": [{"goal": "look"}], "background": True}, id="c")
helper = Agent("helper", model=Hanging("it is"))
editor = Agent("editor", model=Hanging(look, "I wait.", "It is 42."), delegates=[helper])
"""


async def test_a_reader_goes_on_in_the_midst_of_a_word_after_kill_9(tmp_path: Path) -> None:
    """On SQLite, in processes of their own, and while a child is under way."""
    events: list[dict[str, Any]] = []
    async with server_process(tmp_path, HANGING) as server:
        async with server.openai() as client:
            with pytest.raises(openai.APIError):
                await read(client, events, then=server.kill)
        # The last letter is held back where a secret of the server begins with it.
        assert "I wa".startswith(words(events))
        await trio.Path(tmp_path / "go").touch()
        await server.start()
        whole: list[dict[str, Any]] = []
        async with server.openai() as client:
            await read(client, events)
            # It has the same key, so this is no other response.
            await read(client, whole)
        assert await server.terminate() == 0

    assert words(events) == words(whole) == "I wait.\n\nIt is 42."
    assert shape(events) == shape(whole)
    assert events[-1] == whole[-1]
    assert server.errors == ""


async def test_a_chat_that_died_with_its_server_is_listed_and_can_be_resumed() -> None:
    """Its client is gone: no later server answers it, or cancels it when it stops."""
    journal = MemoryJournal()
    with suppress(CrashedError):
        async with serving(AGENT, journal=CrashingJournal(journal, after=9)) as served:
            with suppress(openai.APIError):
                await served.openai.chat.completions.create(
                    model="editor", messages=[{"role": "user", "content": "?"}]
                )
    (opened,) = facts(journal.entries, SessionOpened)
    id_, shown = opened.session, list[dict[str, Any]]()
    for _ in range(2):
        async with serving(AGENT, journal=journal) as served:
            shown.append((await served.http.get(f"/v1/runs/{id_}")).json())
            tree = await served.orchestrator.read_tree(id_)
            assert tree[tree.root].status == "interrupted"
            events = await served.http.get(f"/v1/runs/{id_}/events")
            assert events.status_code == 200, "the stream of what has no more facts ends"
    assert not facts(journal.entries, TurnEnded)

    async with serving(AGENT, journal=journal) as served:
        run = await served.orchestrator.resume(AGENT, id_)
        answer = (await served.http.get(f"/v1/runs/{id_}")).json()

    assert [it["status"] for it in shown] == ["failed", "failed"]
    assert "orchestrator resume" in shown[0]["error"]["message"]
    assert run.output == "I wait."
    assert (answer["status"], answer["output"]) == ("completed", "I wait.")
