"""`n` of chat completions: each choice is a run of its own, and all are one answer."""

from pathlib import Path

import openai
import pytest
import trio

from orchestrator.agents import Agent, ModelRequest
from orchestrator.delegation import Ending
from orchestrator.products.server.keys.key import KeyLimits
from orchestrator.products.server.openai.choices import MOST_CHOICES
from tests.kit import worker
from tests.server.chat_kit import HELLO, USAGE, answering
from tests.server.keys_kit import serving_with_keys
from tests.server.kit import serving

pytestmark = [
    pytest.mark.realtime,
    # The official client leaves its generators behind when it has read [DONE].
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]


def counter() -> Agent[str]:
    """Return an agent that answers with the number of its call."""
    said: list[str] = []

    def count(request: ModelRequest) -> str:
        del request
        said.append("again")
        return f"answer {len(said)}"

    return Agent("helper", model=answering(count))


async def test_each_choice_is_its_own_answer_and_the_usage_covers_all() -> None:
    async with serving(counter()) as served:
        answer = await served.openai.chat.completions.create(model="helper", messages=HELLO, n=3)
        assert len(served.orchestrator.read.session_ids) == 3

    assert [it.index for it in answer.choices] == [0, 1, 2]
    texts = {it.message.content for it in answer.choices}
    assert texts == {"answer 1", "answer 2", "answer 3"}
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 3 * USAGE.input_tokens
    assert answer.usage.completion_tokens == 3 * USAGE.output_tokens


async def test_choices_are_streamed_beside_each_other_with_one_end() -> None:
    async with serving(counter()) as served:
        stream = await served.openai.chat.completions.create(
            model="helper", messages=HELLO, n=2, stream=True, stream_options={"include_usage": True}
        )
        async with stream:
            chunks = [chunk async for chunk in stream]

    texts = {0: "", 1: ""}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert set(texts.values()) == {"answer 1", "answer 2"}
    assert len({chunk.id for chunk in chunks}) == 1
    ends = [it.finish_reason for c in chunks for it in c.choices if it.finish_reason]
    assert ends == ["stop", "stop"]
    total = chunks[-1].usage
    assert total is not None
    assert total.total_tokens == 2 * USAGE.tokens


async def test_a_key_finds_all_choices_again() -> None:
    async with serving(counter()) as served:
        asked = {"model": "helper", "messages": HELLO, "n": 2}
        headers = {"idempotency-key": "once"}
        path = "/v1/chat/completions"
        first = await served.http.post(path, json=asked, headers=headers)
        again = await served.http.post(path, json=asked, headers=headers)
        opened = len(served.orchestrator.read.session_ids)

    assert first.json() == again.json()
    assert opened == 2


async def test_one_choice_that_fails_fails_the_request() -> None:
    """As with OpenAI, there is no answer with holes."""
    calls: list[int] = []

    def fails_second(request: ModelRequest) -> str:
        del request
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of ink")
        return "fine"

    async with serving(Agent("helper", model=answering(fails_second))) as served:
        with pytest.raises(openai.InternalServerError, match="out of ink"):
            await served.openai.chat.completions.create(model="helper", messages=HELLO, n=2)


async def test_a_client_that_hangs_up_ends_all_choices() -> None:
    async with serving(worker("slow", seconds=1_000)) as served:
        read = served.orchestrator.read

        async def ask() -> None:
            asked = {"model": "slow", "messages": HELLO, "n": 3}
            await served.http.post("/v1/chat/completions", json=asked)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while len(read.session_ids) < 3:
                await read.wait_posted(after=read.last_seq)
            nursery.cancel_scope.cancel()
        runs = list(read.records.sessions.values())
        while any(it.turn is not None for it in runs):
            await read.wait_posted(after=read.last_seq)
        endings = [it.last_outcome.ending for it in runs if it.last_outcome]

    assert endings == [Ending.CANCELLED] * 3


async def test_choices_count_as_runs_of_their_key(tmp_path: Path) -> None:
    async with serving_with_keys(worker(), folder=tmp_path) as server:
        ann = server.new_token("ann", limits=KeyLimits(runs_at_once=2))
        path = "/v1/chat/completions"
        body = {"model": "worker", "messages": HELLO}
        refused = await server.ask(ann, "POST", path, {**body, "n": 3})
        assert not server.served.orchestrator.read.session_ids, "none of them is begun"
        taken = await server.ask(ann, "POST", path, {**body, "n": 2})

    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "too_many_runs"
    assert len(taken.json()["choices"]) == 2


async def test_the_choices_of_a_request_are_limited() -> None:
    async with serving(worker()) as served:
        for n in (0, MOST_CHOICES + 1):
            with pytest.raises(openai.BadRequestError) as refused:
                await served.openai.chat.completions.create(model="worker", messages=HELLO, n=n)
            assert refused.value.param == "n"
