"""A secret that a model lets slip is in no stream, just as it is not in the journal."""

import json

import pytest
import trio
import trio.testing

from agents import Agent
from tests.server.chat_kit import HELLO
from tests.server.kit import Served, serving
from tests.server.streaming_kit import speaker

pytestmark = pytest.mark.realtime

KEY = "sk-proj-" + "1234567890abcdef"
SECRET = "a-word-nobody-knows"
ENVIRON = {"SERVICE_PASSWORD": SECRET}
PIECES = ("It is sk-pr", KEY[5:12], KEY[12:], " and a-wo", SECRET[4:], ", yes")
CLEAN = "It is *** and ***, yes"


async def test_a_chat_is_streamed_without_it() -> None:
    agent = Agent("a", model=speaker(PIECES))
    async with serving(agent, environ=ENVIRON) as served:
        body = {"model": "a", "messages": HELLO, "stream": True}
        answer = await served.http.post("/v1/chat/completions", json=body)
    *chunks, done = answer.text.removesuffix("\n\n").split("\n\n")
    choices = [json.loads(it.removeprefix("data: "))["choices"][0] for it in chunks]

    assert done == "data: [DONE]"
    assert "".join(it["delta"].get("content", "") for it in choices) == CLEAN


async def test_a_response_is_streamed_without_it_also_to_a_client_that_comes_later() -> (
    None
):
    go = trio.Event()
    model = speaker((*PIECES[:2], go, *PIECES[2:]))
    async with serving(Agent("a", model=model), environ=ENVIRON) as served:
        begun = await served.openai.responses.create(
            model="a", input="go", background=True
        )
        await model.wait_called(1)
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(require_clean, served, begun.id)
            await trio.testing.wait_all_tasks_blocked(0.05)
            go.set()


async def require_clean(served: Served, response: str) -> None:
    stream = await served.openai.responses.retrieve(response, stream=True)
    events = [event.to_dict() async for event in stream]

    assert KEY[5:] not in str(events)
    assert SECRET[4:] not in str(events)
    deltas = [it["delta"] for it in events if "delta" in it]
    assert "".join(map(str, deltas)) == CLEAN


async def test_deltas_of_a_run_are_told_without_it() -> None:
    go = trio.Event()
    model = speaker((go, *PIECES, "\n"))
    async with serving(Agent("a", model=model), environ=ENVIRON) as served:
        run = (
            await served.http.post("/v1/runs", json={"model": "a", "input": "go"})
        ).json()["id"]
        async with served.http.stream(
            "GET", f"/v1/runs/{run}/events?deltas=true"
        ) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            while not served.server.state.journals.first.live_text._channels:
                await trio.lowlevel.checkpoint()
            go.set()
            told = [line async for line in lines]

    assert any("event: delta" in line for line in told)
    assert not [it for it in told if KEY[5:] in it or SECRET[4:] in it]
