"""`/v1/completions`: what older clients ask, answered by an agent."""

from typing import Any

import openai
import pytest

from orchestrator.agents import Agent, ModelRequest, UserMessage
from tests.kit import worker
from tests.server.chat_kit import USAGE, answering
from tests.server.kit import serving

pytestmark = [
    pytest.mark.realtime,
    # The official client leaves its generators behind when it has read [DONE].
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]


def echoing() -> Agent[str]:
    """Return an agent that repeats what it is asked."""

    def repeat(request: ModelRequest) -> str:
        asked = request.transcript[-1]
        assert isinstance(asked, UserMessage)
        return f" and {asked.text}"

    return Agent("helper", model=answering(repeat))


async def test_each_prompt_has_its_texts_in_order() -> None:
    async with serving(echoing()) as served:
        one = await served.openai.completions.create(
            model="helper", prompt="tea", max_tokens=5, stop=["\n"]
        )
        more = await served.openai.completions.create(
            model="helper", prompt=["tea", "milk"], n=2, echo=True
        )

    assert [it.text for it in one.choices] == [" and tea"]
    assert one.choices[0].finish_reason == "stop"
    assert (one.object, one.model) == ("text_completion", "helper")
    assert [(it.index, it.text) for it in more.choices] == [
        (0, "tea and tea"),
        (1, "tea and tea"),
        (2, "milk and milk"),
        (3, "milk and milk"),
    ]
    assert more.usage is not None
    assert more.usage.total_tokens == 4 * USAGE.tokens


async def test_a_stream_has_the_pieces_of_each_text_and_one_end() -> None:
    async with serving(echoing()) as served:
        stream = await served.openai.completions.create(
            model="helper",
            prompt=["tea", "milk"],
            echo=True,
            stream=True,
            stream_options={"include_usage": True},
        )
        async with stream:
            chunks = [chunk async for chunk in stream]

    texts = {0: "", 1: ""}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == {0: "tea and tea", 1: "milk and milk"}
    ends = [it.finish_reason for c in chunks for it in c.choices if not it.text]
    assert ends == ["stop", "stop"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 2 * USAGE.tokens


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"suffix": " the end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"prompt": [[1], [2]]}, "prompt"),
        ({"prompt": ["more"] * 17}, "prompt"),
    ],
)
async def test_unsupported_completion_parameters_are_refused_by_name(
    body: dict[str, Any], param: str
) -> None:
    async with serving(worker()) as served:
        with pytest.raises(openai.BadRequestError) as refused:
            await served.openai.completions.create(**{"model": "worker", "prompt": "hello", **body})
        assert not served.orchestrator.read.session_ids, "nothing was begun"

    assert refused.value.param == param
