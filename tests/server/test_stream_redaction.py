"""A secret that a model lets slip is in no stream, just as it is not in the journal."""

import json
import random

import pytest
import trio
import trio.testing

from orchestrator.agents import Agent
from tests.server.chat_kit import HELLO
from tests.server.kit import Served, serving
from tests.server.streaming_kit import speaker

pytestmark = [
    pytest.mark.realtime,
    # The official client leaves the end of a stream unread.
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

KEY = "sk-proj-" + "1234567890abcdef"
SECRET = "a-word-nobody-knows"
ENVIRON = {"SERVICE_PASSWORD": SECRET}
PIECES = ("It is sk-pr", KEY[5:12], KEY[12:], " and a-wo", SECRET[4:], ", yes")
CLEAN = "It is *** and ***, yes"


async def test_a_chat_stream_holds_no_secret() -> None:
    agent = Agent("a", model=speaker(PIECES))
    async with serving(agent, environ=ENVIRON) as served:
        body = {"model": "a", "messages": HELLO, "stream": True}
        answer = await served.http.post("/v1/chat/completions", json=body)
    *chunks, done = answer.text.removesuffix("\n\n").split("\n\n")
    choices = [json.loads(it.removeprefix("data: "))["choices"][0] for it in chunks]

    assert done == "data: [DONE]"
    assert "".join(it["delta"].get("content", "") for it in choices) == CLEAN


async def test_a_response_is_streamed_without_it_also_to_a_client_that_comes_later() -> None:
    go = trio.Event()
    model = speaker((*PIECES[:2], go, *PIECES[2:]))
    async with serving(Agent("a", model=model), environ=ENVIRON) as served:
        begun = await served.openai.responses.create(model="a", input="go", background=True)
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


async def test_the_deltas_of_a_run_hold_no_secret() -> None:
    go = trio.Event()
    model = speaker((go, *PIECES, "\n"))
    async with serving(Agent("a", model=model), environ=ENVIRON) as served:
        run = (await served.http.post("/v1/runs", json={"model": "a", "input": "go"})).json()["id"]
        async with served.http.stream("GET", f"/v1/runs/{run}/events?deltas=true") as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            while not served.server.state.journals.first.live_text._channels:
                await trio.lowlevel.checkpoint()
            go.set()
            told = [line async for line in lines]

    assert any("event: delta" in line for line in told)
    assert not [it for it in told if KEY[5:] in it or SECRET[4:] in it]


STREAMS = 30
HIDDEN = (KEY[8:], SECRET[2:])


def random_pieces(seed: int) -> tuple[str, ...]:
    """Return a text with secrets, cut at random places."""
    chance = random.Random(seed)
    words = ["plain words, ", "在2024年，", "12,345 ", KEY, SECRET, '{"a": "b"} ', "\n"]  # noqa: RUF001
    text = "".join(f"{chance.choice(words)} " for _ in range(12)) + f"{KEY} {SECRET}."
    cuts = sorted(chance.sample(range(1, len(text)), chance.randint(3, 25)))
    return tuple(text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True))


async def test_streams_cut_at_random_places_hold_no_secret() -> None:
    """Through a real socket, in both protocols; a failure names its seed."""
    texts = [random_pieces(seed) for seed in range(STREAMS)]
    model = speaker(*(pieces for pieces in texts for _ in range(2)))
    async with serving(Agent("a", model=model), environ=ENVIRON) as served:
        for seed, pieces in enumerate(texts):
            chat = await served.openai.chat.completions.create(
                model="a", messages=HELLO, stream=True
            )
            said = [it.choices[0].delta.content or "" async for it in chat]
            response = await served.openai.responses.create(model="a", input="go", stream=True)
            events = [it.to_dict() async for it in response]
            deltas = [str(it["delta"]) for it in events if "delta" in it]
            clean = "".join(pieces).replace(KEY, "***").replace(SECRET, "***")
            assert ("".join(said), "".join(deltas)) == (clean, clean), seed
            assert not [it for it in HIDDEN if it in str(events)], seed
