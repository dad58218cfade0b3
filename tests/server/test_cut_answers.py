"""Answers that end too soon, and refusals: told as OpenAI tells them, and no errors."""

from typing import Any

import openai
import pytest
from pydantic import BaseModel

from orchestrator.agents import Agent, Failure, ModelError
from tests.server.chat_kit import HELLO
from tests.server.kit import serving
from tests.server.streaming_kit import speaker

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

CUT = {Failure.CUT_OFF: "length", Failure.FILTERED: "content_filter"}
REASONS = {Failure.CUT_OFF: "max_output_tokens", Failure.FILTERED: "content_filter"}


class Sum(BaseModel):
    total: int


def cut(kind: Failure) -> Agent[Any]:
    error = ModelError("it ends here", kind=kind, partial="Once upon ")
    return Agent("a", model=speaker(("Once upon ", error)))


def refuser() -> Agent[Any]:
    said = "the model refused to answer: I will not say that."
    return Agent("a", model=speaker((ModelError(said, kind=Failure.REFUSED),)))


@pytest.mark.parametrize("kind", CUT)
async def test_a_chat_names_the_reason_for_an_early_end(kind: Failure) -> None:
    async with serving(cut(kind)) as served:
        answer = await served.openai.chat.completions.create(model="a", messages=HELLO)
    async with serving(cut(kind)) as served:
        stream = await served.openai.chat.completions.create(model="a", messages=HELLO, stream=True)
        chunks = [chunk.choices[0] async for chunk in stream]

    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("Once upon ", CUT[kind])
    assert "".join(it.delta.content or "" for it in chunks) == "Once upon "
    assert chunks[-1].finish_reason == CUT[kind]


@pytest.mark.parametrize("kind", CUT)
async def test_a_response_is_incomplete_and_can_be_continued(kind: Failure) -> None:
    error = ModelError("it ends here", kind=kind, partial="Once upon ")
    model = speaker(("Once upon ", error), "a time.", ("Once upon ", error))
    async with serving(Agent("a", model=model)) as served:
        response = await served.openai.responses.create(model="a", input="go")
        more = await served.openai.responses.create(
            model="a", input="go on", previous_response_id=response.id
        )
        stream = await served.openai.responses.create(model="a", input="go", stream=True)
        events = [event async for event in stream]

    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == REASONS[kind]
    assert response.error is None
    assert response.output_text == "Once upon "
    assert more.output_text == "a time."
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == "Once upon "


async def test_a_refusal_holds_the_words_of_the_model() -> None:
    async with serving(refuser()) as served:
        answer = await served.openai.chat.completions.parse(
            model="a", messages=HELLO, response_format=Sum
        )
    async with serving(refuser()) as served:
        stream = await served.openai.chat.completions.create(model="a", messages=HELLO, stream=True)
        chunks = [chunk.choices[0] async for chunk in stream]

    (choice,) = answer.choices
    assert choice.message.refusal == "I will not say that."
    assert (choice.message.parsed, choice.finish_reason) == (None, "stop")
    assert [it.delta.refusal for it in chunks if it.delta.refusal] == ["I will not say that."]
    assert chunks[-1].finish_reason == "stop"


async def test_a_refused_response_has_a_refusal() -> None:
    async with serving(refuser()) as served:
        response = await served.openai.responses.create(model="a", input="go")
    async with serving(refuser()) as served:
        stream = await served.openai.responses.create(model="a", input="go", stream=True)
        events = [event async for event in stream]

    assert response.status == "completed"
    (item,) = response.output
    assert item.type == "message"
    assert item.content[0].type == "refusal"
    assert item.content[0].refusal == "I will not say that."
    assert [event.type for event in events[2:]] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.refusal.delta",
        "response.refusal.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


@pytest.mark.parametrize(
    ("kind", "code", "error"),
    [
        (Failure.RATE_LIMIT, "rate_limit_exceeded", openai.RateLimitError),
        (Failure.QUOTA, "insufficient_quota", openai.RateLimitError),
        (Failure.CONTEXT_TOO_LONG, "context_length_exceeded", openai.BadRequestError),
    ],
)
async def test_errors_have_the_codes_that_libraries_know(
    kind: Failure, code: str, error: type[openai.APIStatusError]
) -> None:
    model = speaker(*[(ModelError("no", kind=kind),)] * 2)
    async with serving(Agent("a", model=model)) as served:
        with pytest.raises(error) as chat:
            await served.openai.chat.completions.create(model="a", messages=HELLO)
        with pytest.raises(error) as response:
            await served.openai.responses.create(model="a", input="go")

    assert chat.value.code == response.value.code == code
