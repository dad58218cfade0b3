"""The official Python client of Anthropic, `anthropic`: messages, streams, tools and counts."""

import asyncio
import json
from typing import Any

import anthropic
from check_kit import KEY, PIXEL, URL, check, contains, ending_of, equal, main, newest_run, raises
from pydantic import BaseModel

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=20)
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
TOOLS: Any = [{"name": "weather", "description": "How it is outside.", "input_schema": PARAMETERS}]
IMAGE: Any = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
}


class Weather(BaseModel):
    city: str
    degrees: int


FITTING = Weather(city="Lima", degrees=18)


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def send(*messages: Any, model: str = "report", **more: Any) -> Any:
    given: Any = {"model": model, "max_tokens": 1000, "messages": messages, **more}
    return client.messages.create(**given)


def ask(text: str, **more: Any) -> Any:
    return send(user(text), **more)


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def calls_of(message: Any) -> list[Any]:
    return [block for block in message.content if block.type == "tool_use"]


def result(call: Any, content: Any, **more: Any) -> Any:
    return {"type": "tool_result", "tool_use_id": call.id, "content": content, **more}


def stream_of(text: str, *, model: str = "report", **more: Any) -> Any:
    given: Any = {"model": model, "max_tokens": 1000, "messages": [user(text)], **more}
    return client.messages.stream(**given)


@check("plain")
def message() -> None:
    answer = ask("hello")
    equal((text_of(answer), answer.stop_reason), ("You said: hello", "end_turn"))


@check("plain")
def models_are_listed() -> None:
    contains([model.id for model in client.models.list()], "report")
    equal(client.models.retrieve("report").id, "report")


@check("plain")
def instructions_reach_the_model() -> None:
    block: Any = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    for system in ("Be brief.", [block]):
        contains(json.loads(text_of(ask("report", system=system)))["instructions"], "Be brief.")


@check("stream")
def events() -> None:
    found = list(ask("one two three", stream=True))
    equal((found[0].type, found[-1].type), ("message_start", "message_stop"))
    pieces = [it.delta.text for it in found if it.type == "content_block_delta"]
    equal("".join(pieces), "You said: one two three")
    assert len(pieces) > 1


@check("stream")
def stream_helper() -> None:
    with stream_of("one two") as stream:
        equal("".join(stream.text_stream), "You said: one two")
        equal(stream.get_final_message().stop_reason, "end_turn")


@check("usage")
def plain_and_streamed_usage() -> None:
    usage = ask("hello").usage
    equal((usage.input_tokens, usage.output_tokens), (10, 3))
    with stream_of("hello") as stream:
        usage = stream.get_final_message().usage
    equal((usage.input_tokens, usage.output_tokens), (10, 3))


@check("tools")
def call_and_result() -> None:
    first = ask("call weather", tools=TOOLS)
    (call,) = calls_of(first)
    equal((first.stop_reason, call.input), ("tool_use", {"city": "Lima"}))
    said = {"role": "assistant", "content": first.content}
    second = send(user("call weather"), said, user([result(call, "foggy")]), tools=TOOLS)
    equal(text_of(second), "The tools say: foggy.")


@check("tools")
def a_failed_call() -> None:
    first = ask("call weather", tools=TOOLS)
    (call,) = calls_of(first)
    said = {"role": "assistant", "content": first.content}
    failed = user([result(call, "no network", is_error=True)])
    answer = send(user("call weather"), said, failed, tools=TOOLS)
    equal(text_of(answer), "The tools say: no network.")


@check("tools")
def the_tool_runner() -> None:
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """How it is outside."""
        return f"foggy in {city}"

    runner = client.beta.messages.tool_runner(
        model="report", max_tokens=1000, messages=[user("call weather")], tools=[weather]
    )
    equal(text_of(runner.until_done()), "The tools say: foggy in Lima.")


@check("tools")
def a_name_with_dots() -> None:
    tools: Any = [{**TOOLS[0], "name": name} for name in ("weather.get", "weather_get")]
    choice: Any = {"type": "tool", "name": "weather.get"}
    first = ask("hello", tools=tools, tool_choice=choice)
    (call,) = calls_of(first)
    equal(call.name, "weather.get")
    said = {"role": "assistant", "content": first.content}
    answer = send(user("hello"), said, user([result(call, "foggy")]), tools=tools)
    equal(text_of(answer), "The tools say: foggy.")


@check("parallel calls")
def two_calls_in_one_answer() -> None:
    first = ask("call weather twice", tools=TOOLS)
    one, two = calls_of(first)
    said = {"role": "assistant", "content": first.content}
    results = user([result(one, "foggy"), result(two, "sunny")])
    answer = send(user("call weather twice"), said, results, tools=TOOLS)
    equal(text_of(answer), "The tools say: foggy, sunny.")


@check("streamed calls")
def calls_in_a_stream() -> None:
    with stream_of("call weather twice", tools=TOOLS) as stream:
        kinds = {event.type for event in stream}
        calls = calls_of(stream.get_final_message())
    contains(kinds, "input_json")
    equal([call.input for call in calls], [{"city": "Lima"}] * 2)


@check("tool choice")
def none_auto_any_named() -> None:
    none = ask("report", tools=TOOLS, tool_choice={"type": "none"})
    equal(json.loads(text_of(none))["tools"], [])
    equal(text_of(ask("hello", tools=TOOLS, tool_choice={"type": "auto"})), "You said: hello")
    for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
        equal(calls_of(ask("hello", tools=TOOLS, tool_choice=choice))[0].name, "weather")


@check("one call at a time")
def parallel_tool_use_is_disabled() -> None:
    choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
    equal(len(calls_of(ask("call weather twice", tools=TOOLS, tool_choice=choice))), 1)


@check("structured output")
def parse() -> None:
    answer = client.messages.parse(
        model="report", max_tokens=1000, messages=[user("hello")], output_format=Weather
    )
    equal(answer.parsed_output, FITTING)
    with stream_of("hello", output_format=Weather) as stream:
        equal(stream.get_final_message().parsed_output, FITTING)


@check("settings")
def sampling_reaches_the_model() -> None:
    # The client has no parameters for sampling, and passes these on.
    more: Any = {"temperature": 0.5, "top_p": 0.9}
    answer = ask("report", extra_body=more, stop_sequences=["@"])
    wanted = {**more, "stop": ["@"], "max_output_tokens": 1000}
    found = json.loads(text_of(answer))["settings"]
    equal({name: found.get(name) for name in wanted}, wanted)


@check("settings")
def a_limit_of_tokens_cuts_the_answer() -> None:
    answer = ask("one two three four", max_tokens=3)
    equal((text_of(answer).split(), answer.stop_reason), (["You", "said:", "one"], "max_tokens"))


@check("settings")
def other_parameters_are_named() -> None:
    given: Any = {"model": "report", "max_tokens": 9, "messages": [user("hello")]}
    raw = client.messages.with_raw_response.create(**given, extra_body={"top_k": 4})
    equal(raw.headers["x-ignored-parameters"], "top_k")


@check("images and files")
def blocks() -> None:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": PIXEL}
    link = {"type": "url", "url": "https://example.org/a.jpg"}
    answer = ask(
        [
            {"type": "text", "text": "report"},
            IMAGE,
            {"type": "image", "source": link},
            {"type": "document", "title": "a.pdf", "source": pdf},
        ]  # type: ignore[arg-type]
    )
    shown = json.loads(text_of(answer))["messages"][0]["parts"]
    equal([part["type"] for part in shown], ["image/png", "image/jpeg", "application/pdf"])


@check("images and files")
def an_image_in_a_result() -> None:
    first = ask("call weather", tools=TOOLS)
    (call,) = calls_of(first)
    said = {"role": "assistant", "content": first.content}
    answer = send(
        user("call weather"),
        said,
        user([result(call, [IMAGE]), {"type": "text", "text": "report"}]),
    )
    shown = json.loads(text_of(answer))["messages"][2]["parts"]
    equal([part["type"] for part in shown], ["image/png"])


@check("several turns")
def history_reaches_the_model() -> None:
    said = {"role": "assistant", "content": "Hello, Ann."}
    answer = send(user("I am Ann."), said, user("report"))
    roles = [it["role"] for it in json.loads(text_of(answer))["messages"]]
    equal(roles, ["user", "assistant", "user"])


@check("reasoning")
def thinking_blocks() -> None:
    thinking: Any = {"type": "adaptive"}
    answer = ask("hi", model="thoughtful", thinking=thinking)
    equal([block.type for block in answer.content], ["thinking", "text"])
    said = {"role": "assistant", "content": answer.content}
    again = send(user("hi"), said, user("report"))
    equal(len(json.loads(text_of(again))["messages"]), 3)
    with stream_of("hi", model="thoughtful", thinking=thinking) as stream:
        contains({event.type for event in stream}, "thinking")


@check("count_tokens")
def tokens_are_counted() -> None:
    few = client.messages.count_tokens(model="report", messages=[user("hello")])
    more = client.messages.count_tokens(model="report", messages=[user("hello")], tools=TOOLS)
    assert 0 < few.input_tokens < more.input_tokens, (few, more)


@check("auth headers")
def key_and_bearer_token() -> None:
    for given in ({"api_key": KEY}, {"auth_token": KEY}):
        own = anthropic.Anthropic(base_url=URL, max_retries=0, timeout=20, **given)
        contains([model.id for model in own.models.list()], "report")


@check("errors")
def each_failure_has_its_class_and_shape() -> None:
    for model, kind, name in (
        ("limited", anthropic.RateLimitError, "rate_limit_error"),
        ("poor", anthropic.RateLimitError, "rate_limit_error"),
        ("long", anthropic.BadRequestError, "invalid_request_error"),
        ("broken", anthropic.InternalServerError, "overloaded_error"),
        ("nobody", anthropic.NotFoundError, "not_found_error"),
    ):
        with raises(kind) as error:
            ask("hi", model=model)
        equal((error.value.body["type"], error.value.body["error"]["type"]), ("error", name))
        equal(error.value.body["request_id"], error.value.request_id)
        with raises(kind), stream_of("hi", model=model) as stream:
            stream.get_final_message()
    stranger = anthropic.Anthropic(base_url=URL, api_key="of-nobody", max_retries=0)
    with raises(anthropic.AuthenticationError):
        stranger.messages.create(model="report", max_tokens=9, messages=[user("hi")])
    with raises(anthropic.BadRequestError):
        ask("hi", extra_body={"temperature": 9})


@check("errors")
def a_wait_is_said() -> None:
    with raises(anthropic.RateLimitError) as error:
        ask("hi", model="limited")
    equal(error.value.response.headers["retry-after"], "7")


@check("errors")
def refusals_and_filters_are_answers() -> None:
    for model in ("refusing", "filtered"):
        equal(ask("hi", model=model).stop_reason, "refusal")


@check("idempotency")
def one_key_is_one_run() -> None:
    headers = {"Idempotency-Key": f"anthropic {text_of(ask('hi', model='count'))}"}
    first = text_of(ask("hi", model="count", extra_headers=headers))
    equal(text_of(ask("hi", model="count", extra_headers=headers)), first)
    assert text_of(ask("hi", model="count")) != first


@check("cancel")
def a_closed_stream_cancels_the_run() -> None:
    with stream_of("go", model="endless") as stream:
        next(stream.text_stream)
        run = newest_run()
    equal(ending_of(run), "cancelled")


@check("cancel")
async def a_cancelled_task_cancels_the_run() -> None:
    async with anthropic.AsyncAnthropic(base_url=URL, api_key=KEY, max_retries=0) as own:
        started = asyncio.Event()

        async def read() -> None:
            given: Any = {"model": "endless", "max_tokens": 9, "messages": [user("go")]}
            async with own.messages.stream(**given) as stream:
                async for _ in stream.text_stream:
                    started.set()

        reading = asyncio.create_task(read())
        await started.wait()
        run = newest_run()
        reading.cancel()
        await asyncio.wait([reading])
    equal(ending_of(run), "cancelled")


main("anthropic")
