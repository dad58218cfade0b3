"""Pydantic AI: its models for chat completions and for responses."""

import asyncio
import json
from typing import Any

from check_kit import KEY, PIXEL, URL, check, contains, ending_of, equal, main, newest_run, raises
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    ModelHTTPError,
    ModelSettings,
    NativeOutput,
    PromptedOutput,
    ToolOutput,
)
from pydantic_ai.direct import model_request_sync
from pydantic_ai.messages import ModelRequest, ThinkingPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition


class Weather(BaseModel):
    """How it is outside."""

    city: str
    degrees: int


FITTING = Weather(city="Lima", degrees=18)
TOOL = ToolDefinition(
    name="weather",
    parameters_json_schema={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
)


def weather(city: str) -> str:
    """Say how it is outside."""
    return f"foggy in {city}"


def both(name: str = "report") -> list[Any]:
    """Return a model for each protocol."""
    provider = OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY)
    return [kind(name, provider=provider) for kind in (OpenAIChatModel, OpenAIResponsesModel)]


def answer_of(model: Any, text: str, **settings: Any) -> Any:
    """Ask a model that may call one tool."""
    return model_request_sync(
        model,
        [ModelRequest.user_text_prompt(text)],
        model_settings=ModelSettings(**settings),
        model_request_parameters=ModelRequestParameters(function_tools=[TOOL]),
    )


def calls_of(answer: Any) -> list[Any]:
    return [part for part in answer.parts if isinstance(part, ToolCallPart)]


@check("plain")
def run() -> None:
    for model in both():
        equal(Agent(model).run_sync("hello").output, "You said: hello")


@check("plain")
def instructions_reach_the_model() -> None:
    for model in both():
        answer = Agent(model, instructions="Be brief.").run_sync("report").output
        contains(json.loads(answer)["instructions"], "Be brief.")


@check("stream")
async def stream_text() -> None:
    for model in both():
        async with Agent(model).run_stream("one two three") as answer:
            pieces = [it async for it in answer.stream_text(delta=True, debounce_by=None)]
        equal("".join(pieces), "You said: one two three")
        assert len(pieces) > 1


@check("usage")
async def usage() -> None:
    for model in both():
        used = (await Agent(model).run("hello")).usage
        used = used() if callable(used) else used
        equal((used.input_tokens, used.output_tokens), (10, 3))
        async with Agent(model).run_stream("hello") as answer:
            await answer.get_output()
        used = answer.usage() if callable(answer.usage) else answer.usage
        equal(used.input_tokens, 10)


@check("tools")
def call_and_result() -> None:
    for model in both():
        answer = Agent(model, tools=[weather]).run_sync("call weather").output
        equal(answer, "The tools say: foggy in Lima.")


@check("parallel calls")
def two_calls_in_one_answer() -> None:
    for model in both():
        answer = Agent(model, tools=[weather]).run_sync("call weather twice").output
        equal(answer, "The tools say: foggy in Lima, foggy in Lima.")


@check("streamed calls")
async def calls_in_a_stream() -> None:
    for model in both():
        agent = Agent(model, tools=[weather])
        async with agent.run_stream("call weather twice") as answer:
            said = await answer.get_output()
        equal(said, "The tools say: foggy in Lima, foggy in Lima.")


@check("tool choice")
def none_auto_required_named() -> None:
    for model in both():
        none = answer_of(model, "report", tool_choice="none")
        equal(json.loads(none.text)["tools"], [])
        equal(answer_of(model, "hello", tool_choice="auto").text, "You said: hello")
        for choice in ("required", ["weather"]):
            (call,) = calls_of(answer_of(model, "hello", tool_choice=choice))
            equal(call.tool_name, "weather")


@check("one call at a time")
def parallel_tool_calls_false() -> None:
    for model in both():
        answer = answer_of(model, "call weather twice", parallel_tool_calls=False)
        equal(len(calls_of(answer)), 1)


@check("structured output")
def each_way_of_output() -> None:
    for model in both():
        for output in (
            Weather,
            ToolOutput(Weather),
            NativeOutput(Weather),
            PromptedOutput(Weather),
        ):
            equal(Agent(model, output_type=output).run_sync("hello").output, FITTING)


@check("structured output")
def behind_a_tool() -> None:
    for model in both():
        agent = Agent(model, output_type=NativeOutput(Weather), tools=[weather])
        equal(agent.run_sync("call weather").output, FITTING)


@check("structured output")
async def a_streamed_object() -> None:
    for model in both():
        for output in (Weather, NativeOutput(Weather)):
            async with Agent(model, output_type=output).run_stream("hello") as answer:
                *_, last = [it async for it in answer.stream_output(debounce_by=None)]
            equal(last, FITTING)


@check("settings")
def sampling_reaches_the_model() -> None:
    given: Any = {"temperature": 0.5, "top_p": 0.9}
    more: Any = {"seed": 7, "presence_penalty": 0.1, "frequency_penalty": 0.2}
    chat, responses = both()
    settings = json.loads(answer_of(chat, "report", **given, **more).text)["settings"]
    equal(settings, {**given, **more})
    settings = json.loads(answer_of(responses, "report", **given).text)["settings"]
    equal(settings, given)


@check("settings")
def limits_and_stop() -> None:
    for model in both():
        cut = answer_of(model, "one two three", max_tokens=3)
        equal((cut.text, cut.finish_reason), ("You said: one ", "length"))
    stopped = answer_of(both()[0], "one two", stop_sequences=["two"])
    equal(stopped.text.strip(), "You said: one")


@check("images and files")
def parts() -> None:
    content = [
        "report",
        BinaryContent(PIXEL.encode(), media_type="image/png"),
        BinaryContent(PIXEL.encode(), media_type="application/pdf"),
    ]
    for model in both():
        answer = Agent(model).run_sync(content).output
        shown = json.loads(answer)["messages"][0]["parts"]
        equal([part["type"] for part in shown], ["image/png", "application/pdf"])


@check("several turns")
def message_history() -> None:
    for model in both():
        agent = Agent(model, tools=[weather])
        first = agent.run_sync("call weather")
        second = agent.run_sync("report", message_history=first.all_messages())
        shown = json.loads(second.output)["messages"]
        equal([it["role"] for it in shown], ["user", "assistant", "tool", "assistant", "user"])


@check("previous_response_id")
def a_response_is_continued() -> None:
    agent = Agent(both()[1])
    first = agent.run_sync("I am Ann.")
    second = agent.run_sync(
        "report",
        message_history=first.all_messages(),
        model_settings={"openai_previous_response_id": "auto"},
    )
    equal(len(json.loads(second.output)["messages"]), 3)


@check("conversation")
def turns_of_a_conversation() -> None:
    import openai

    made = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY).conversations.create()
    agent = Agent(both()[1], model_settings={"openai_conversation_id": made.id})
    agent.run_sync("I am Ann.")
    equal(len(json.loads(agent.run_sync("report").output)["messages"]), 3)


@check("reasoning")
def thinking_parts() -> None:
    settings: Any = {"openai_reasoning_summary": "auto"}
    answer = model_request_sync(
        both("thoughtful")[1], [ModelRequest.user_text_prompt("hi")], model_settings=settings
    )
    assert any(isinstance(part, ThinkingPart) for part in answer.parts), answer.parts


@check("errors")
def each_failure_has_its_status() -> None:
    for name, status in (
        ("limited", 429),
        ("poor", 429),
        ("long", 400),
        ("broken", 503),
        ("nobody", 404),
    ):
        for model in both(name):
            with raises(ModelHTTPError) as error:
                Agent(model).run_sync("hi")
            equal(error.value.status_code, status)


@check("errors")
def another_model_takes_over() -> None:
    for first, second in zip(both("limited"), both(), strict=True):
        answer = Agent(FallbackModel(first, second)).run_sync("hi").output
        equal(answer, "You said: hi")


@check("idempotency")
def one_key_is_one_run() -> None:
    for model in both("count"):
        first = Agent(model).run_sync("hi").output
        headers = {"Idempotency-Key": f"pydantic-ai {first}"}
        keyed = Agent(model, model_settings={"extra_headers": headers})
        said = [keyed.run_sync("hi").output for _ in range(2)]
        equal(said[0], said[1])
        assert first != said[0]


@check("cancel")
async def a_cancelled_task_cancels_the_run() -> None:
    started = asyncio.Event()

    async def read() -> None:
        async with Agent(both("endless")[0]).run_stream("go") as answer:
            async for _ in answer.stream_text(delta=True, debounce_by=None):
                started.set()

    reading = asyncio.create_task(read())
    await started.wait()
    run = newest_run()
    reading.cancel()
    await asyncio.wait([reading])
    equal(ending_of(run), "cancelled")


main("pydantic-ai-slim", "openai")
