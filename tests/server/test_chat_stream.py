"""Chat completions as streams: pieces as they are said, and one end, whatever happens."""

from typing import Any

import openai
import pytest
import trio

from orchestrator import delegate
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    Failure,
    ModelError,
    ScriptedModel,
    TextDelta,
    ToolCall,
    agent,
    tool,
)
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.testing import StreamingModel
from orchestrator.testing.models import Piece
from tests.kit import worker
from tests.server.chat_kit import HELLO, USAGE, answering, streaming
from tests.server.kit import Served, serving

pytestmark = [
    pytest.mark.realtime,
    # The client leaves its streams to the garbage collector, which is its own to mend.
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]


async def chunks(served: Served, model: str, **more: Any) -> list[Any]:
    """Return all that the official client reads of a stream."""
    stream = await served.openai.chat.completions.create(
        model=model, messages=more.pop("messages", HELLO), stream=True, **more
    )
    return [chunk async for chunk in stream]


def text_of(read: list[Any]) -> str:
    return "".join(it.choices[0].delta.content or "" for it in read if it.choices)


async def lines(served: Served, model: str, **more: Any) -> list[str]:
    """Return the events of a stream as they are sent."""
    body = {"model": model, "messages": HELLO, "stream": True, **more}
    async with served.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = (await answer.aread()).decode()
    assert text.endswith("\n\n")
    return text.removesuffix("\n\n").split("\n\n")


async def test_pieces_arrive_while_the_agent_still_speaks() -> None:
    goes_on = trio.Event()
    model = streaming("good ", goes_on, "day")
    async with serving(Agent("helper", model=model)) as served:
        stream = await served.openai.chat.completions.create(
            model="helper", messages=HELLO, stream=True
        )
        read = [await anext(stream), await anext(stream)]
        assert [it.choices[0].delta.content for it in read] == ["", "good "]
        goes_on.set()
        read += [chunk async for chunk in stream]

    assert read[0].choices[0].delta.role == "assistant"
    assert text_of(read) == "good day"
    ends = [it.choices[0].finish_reason for it in read]
    assert ends == [*[None] * (len(read) - 1), "stop"]
    assert {it.id for it in read} == {read[0].id}
    assert {it.model for it in read} == {"helper"}
    assert {it.object for it in read} == {"chat.completion.chunk"}
    assert all(it.usage is None for it in read)


async def test_the_last_chunk_has_the_usage_if_that_is_asked_for() -> None:
    async with serving(Agent("helper", model=streaming("hi"))) as served:
        read = await chunks(served, "helper", stream_options={"include_usage": True})
        plain = await lines(served, "helper")

    *before, last = read
    assert last.choices == []
    assert last.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 2,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
    assert all(it.usage is None for it in before)
    assert before[-1].choices[0].finish_reason == "stop"
    assert not any("usage" in line for line in plain)


async def test_a_stream_ends_once_and_with_done() -> None:
    async with serving(worker()) as served:
        sent = await lines(served, "worker")

    assert sent[-1] == "data: [DONE]"
    assert sum("[DONE]" in line for line in sent) == 1
    assert sum('"finish_reason":"stop"' in line for line in sent) == 1


async def test_intermediate_text_is_separated_by_a_blank_line() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "a cat"

    call = ToolCall("look", id=CallId("c1"))
    answers: list[list[Piece]] = [
        [AssistantMessage("I look.", (call,), USAGE)],
        [TextDelta("A cat"), AssistantMessage("A cat.", usage=USAGE)],
    ]
    model = StreamingModel(answers * 2)
    async with serving(Agent("helper", model=model, tools=[look])) as served:
        read = await chunks(served, "helper")
        plain = await served.openai.chat.completions.create(model="helper", messages=HELLO)

    assert text_of(read) == "I look.\n\nA cat."
    assert plain.choices[0].message.content == "A cat."


async def test_a_differing_second_attempt_is_streamed_after_the_first() -> None:
    gone = ModelError("gone", kind=Failure.CONNECTION, retry_after=0)
    wavering = StreamingModel([["It is not", gone], ["Yes."]], usage=USAGE)
    async with serving(Agent("helper", model=with_retries(wavering))) as served:
        read = await chunks(served, "helper")

    assert text_of(read) == "It is not\n\nYes."


async def test_client_calls_are_streamed_at_the_end() -> None:
    call = ToolCall("weather", {"city": "Köln"}, id=CallId("call_a"))
    helper = Agent("helper", model=answering(lambda _: [call]))
    async with serving(helper) as served:
        stream = served.openai.chat.completions.stream(
            model="helper",
            messages=HELLO,
            tools=[{"type": "function", "function": {"name": "weather"}}],
        )
        async with stream as events:
            final = await events.get_final_completion()

    assert final.choices[0].finish_reason == "tool_calls"
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert [(it.id, it.function.name, it.function.arguments) for it in calls] == [
        ("call_a", "weather", '{"city":"Köln"}')
    ]


async def test_the_output_of_a_pipeline_is_streamed_at_its_end() -> None:
    child = worker(says="from the child")

    @agent
    async def program(goal: str) -> str:
        return f"{goal}: {await delegate(child, goal)}"

    async with serving(program) as served:
        read = await chunks(served, "program")

    assert text_of(read) == "hello: from the child"


async def test_an_empty_answer_is_a_whole_stream() -> None:
    async with serving(worker(says="")) as served:
        read = await chunks(served, "worker")

    assert text_of(read) == ""
    assert [it.choices[0].finish_reason for it in read] == [None, "stop"]


async def test_every_text_survives_a_chat_stream() -> None:
    text = 'Grüße, 世界 👩‍🚀 \u2028\u0085 \x00 "quoted" \\ \r\n data: [DONE]\n\n: end'
    model = ScriptedModel.always(lambda said: said[-1].text)
    async with serving(Agent("echo", model=model)) as served:
        read = await chunks(served, "echo", messages=[{"role": "user", "content": text}])

    assert text_of(read) == text


async def test_a_huge_answer_is_streamed_whole() -> None:
    pieces = [f"{number} " + "wörd " * 500 for number in range(200)]
    async with serving(Agent("helper", model=streaming(*pieces))) as served:
        read = await chunks(served, "helper")

    assert text_of(read) == "".join(pieces)


async def test_a_failure_ends_the_stream_and_keeps_the_streamed_text() -> None:
    tells = trio.Event()
    model = streaming("so far so ", tells, ModelError("too many", kind=Failure.RATE_LIMIT))
    async with serving(Agent("helper", model=model)) as served:
        stream = await served.openai.chat.completions.create(
            model="helper", messages=HELLO, stream=True
        )
        read = [await anext(stream), await anext(stream)]
        tells.set()
        with pytest.raises(openai.APIError) as caught:
            read += [chunk async for chunk in stream]

    assert text_of(read) == "so far so "
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.type == "rate_limit_error"
    assert "too many" in caught.value.message


async def test_a_failure_in_the_midst_is_the_only_end() -> None:
    tells = trio.Event()
    model = streaming("so far", tells, ModelError("gone", kind=Failure.CONNECTION))
    async with serving(Agent("helper", model=model)) as served:
        body = {"model": "helper", "messages": HELLO, "stream": True}
        async with served.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            text = ""
            async for piece in answer.aiter_text():
                text += piece
                if "so far" in text:
                    tells.set()
    events = text.removesuffix("\n\n").split("\n\n")

    assert events[-1].startswith('data: {"error":{"message":')
    assert '"code":"provider"' in events[-1]
    assert sum('"error"' in event for event in events) == 1
    assert "[DONE]" not in text
    assert '"finish_reason":"stop"' not in text


async def test_a_run_that_is_cancelled_in_the_midst_ends_its_stream() -> None:
    async with serving(Agent("helper", model=streaming("so ", trio.Event()))) as served:
        stream = await served.openai.chat.completions.create(
            model="helper", messages=HELLO, stream=True
        )
        read = [await anext(stream), await anext(stream)]
        (session,) = served.orchestrator.read.records.sessions.values()
        await served.server.state.journals.first.door.close(session)
        with pytest.raises(openai.APIError) as caught:
            read += [chunk async for chunk in stream]

    assert text_of(read) == "so "
    assert caught.value.code == "cancelled"


async def test_the_same_key_is_the_same_stream() -> None:
    model = answering(lambda _: "once")
    key = {"Idempotency-Key": "order 7"}
    async with serving(Agent("helper", model=model)) as served:
        first = await chunks(served, "helper", extra_headers=key)
        again = await chunks(served, "helper", extra_headers=key)

    assert again == first
    assert text_of(again) == "once"
    assert len(model.requests) == 1
