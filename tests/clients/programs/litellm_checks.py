"""litellm: chat completions, responses and text completions, with its own errors."""

import asyncio
import json
from typing import Any

import litellm
from check_kit import KEY, PIXEL, URL, check, contains, ending_of, equal, main, newest_run, raises
from pydantic import BaseModel

litellm.suppress_debug_info = True
litellm.drop_params = False
SERVER: Any = {"api_base": f"{URL}/v1", "api_key": KEY, "num_retries": 0}
PARAMETERS: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
WEATHER: Any = {"name": "weather", "parameters": PARAMETERS}
TOOLS: Any = [{"type": "function", "function": WEATHER}]
FUNCTIONS: Any = [{"type": "function", **WEATHER}]


class Weather(BaseModel):
    city: str
    degrees: int


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def ask(text: str, model: str = "report", **more: Any) -> Any:
    given: Any = {"messages": [user(text)], **SERVER, **more}
    return litellm.completion(model=f"openai/{model}", **given)


def content(answer: Any) -> str:
    return answer.choices[0].message.content or ""


def respond(given: Any, model: str = "report", **more: Any) -> Any:
    return litellm.responses(model=f"openai/{model}", input=given, **SERVER, **more)


def text_of(response: Any) -> str:
    return response.output[-1].content[0].text


@check("plain")
def completion_and_response() -> None:
    equal(content(ask("hello")), "You said: hello")
    equal(text_of(respond("hello")), "You said: hello")


@check("stream")
def chunks() -> None:
    pieces = [it.choices[0].delta.content or "" for it in ask("one two", stream=True)]
    equal("".join(pieces), "You said: one two")
    events = list(respond("one two", stream=True))
    pieces = [it.delta for it in events if it.type == "response.output_text.delta"]
    equal("".join(pieces), "You said: one two")


@check("usage")
def usage() -> None:
    equal(ask("hello").usage.total_tokens, 13)
    options: Any = {"include_usage": True}
    *_, last = ask("hello", stream=True, stream_options=options)
    equal(last.usage.total_tokens, 13)


@check("tools")
def call_and_result() -> None:
    answer = ask("call weather", tools=TOOLS)
    message = answer.choices[0].message
    (call,) = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "foggy"}
    messages = [user("call weather"), message, result]
    equal(content(ask("", messages=messages, tools=TOOLS)), "The tools say: foggy.")


@check("parallel calls")
def two_calls_in_one_answer() -> None:
    answer = ask("call weather twice", tools=TOOLS)
    equal(len(answer.choices[0].message.tool_calls), 2)


@check("streamed calls")
def calls_in_a_stream() -> None:
    chunks = list(ask("call weather twice", tools=TOOLS, stream=True))
    whole: Any = litellm.stream_chunk_builder(chunks)
    calls = whole.choices[0].message.tool_calls
    equal([json.loads(it.function.arguments) for it in calls], [{"city": "Lima"}] * 2)


@check("tool choice")
def none_auto_required_named() -> None:
    none = ask("report", tools=TOOLS, tool_choice="none")
    equal(json.loads(content(none))["tools"], [])
    auto = ask("hello", tools=TOOLS, tool_choice="auto")
    equal(content(auto), "You said: hello")
    named = {"type": "function", "function": {"name": "weather"}}
    for choice in ("required", named):
        answer = ask("hello", tools=TOOLS, tool_choice=choice)
        equal(answer.choices[0].message.tool_calls[0].function.name, "weather")


@check("one call at a time")
def parallel_tool_calls_false() -> None:
    answer = ask("call weather twice", tools=TOOLS, parallel_tool_calls=False)
    equal(len(answer.choices[0].message.tool_calls), 1)


@check("structured output")
def a_type_and_a_json_object() -> None:
    answer = content(ask("hello", response_format=Weather))
    equal(Weather.model_validate_json(answer), Weather(city="Lima", degrees=18))
    answer = content(ask("hello", response_format={"type": "json_object"}))
    equal(json.loads(answer), {})


@check("structured output")
def a_type_of_a_response() -> None:
    answer = text_of(respond("hello", text_format=Weather))
    equal(json.loads(answer), {"city": "Lima", "degrees": 18})


@check("settings")
def sampling_reaches_the_model() -> None:
    given: Any = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "presence_penalty": 0.1}
    answer = ask("report", **given, frequency_penalty=0.2)
    settings = json.loads(content(answer))["settings"]
    equal(settings, {**given, "frequency_penalty": 0.2})


@check("settings")
def limits_and_stop() -> None:
    cut = ask("one two three", max_tokens=3)
    equal((content(cut), cut.choices[0].finish_reason), ("You said: one ", "length"))
    equal(content(ask("one two", stop=["two"])), "You said: one ")


@check("images and files")
def parts() -> None:
    message = user(
        [
            {"type": "text", "text": "report"},
            {"type": "image_url", "image_url": f"data:image/png;base64,{PIXEL}"},
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"},
            },
        ]
    )
    answer = content(ask("", messages=[message]))
    shown = json.loads(answer)["messages"][0]["parts"]
    equal([part["type"] for part in shown], ["image/png", "application/pdf"])


@check("several turns")
def history_reaches_the_model() -> None:
    said = {"role": "assistant", "content": "Hi."}
    answer = ask("", messages=[user("I am Ann."), said, user("report")])
    equal(len(json.loads(content(answer))["messages"]), 3)


@check("previous_response_id")
def a_response_is_continued() -> None:
    first = respond("I am Ann.")
    second = respond("report", previous_response_id=first.id)
    equal(len(json.loads(text_of(second))["messages"]), 3)


@check("background")
def begun_and_read() -> None:
    begun = respond("go", model="endless", background=True)
    settings: Any = {"custom_llm_provider": "openai", **SERVER}
    settings.pop("num_retries")
    found: Any = litellm.get_responses(response_id=begun.id, **settings)
    contains(("queued", "in_progress"), found.status)
    ended: Any = litellm.cancel_responses(response_id=begun.id, **settings)
    equal(ended.status, "cancelled")


@check("reasoning")
def reasoning_content() -> None:
    answer = respond("hi", model="thoughtful", reasoning={"summary": "auto"})
    contains([item.type for item in answer.output], "reasoning")


@check("completions")
def a_text_completion() -> None:
    answer: Any = litellm.text_completion(
        model="text-completion-openai/report", prompt="hello", **SERVER
    )
    equal(answer.choices[0].text, "You said: hello")


@check("n")
def several_choices() -> None:
    answer = ask("hello", n=2)
    equal([it.message.content for it in answer.choices], ["You said: hello"] * 2)


@check("errors")
def each_failure_has_its_class() -> None:
    for name, kind in (
        ("limited", litellm.RateLimitError),
        ("poor", litellm.RateLimitError),
        ("long", litellm.ContextWindowExceededError),
        ("nobody", litellm.NotFoundError),
    ):
        with raises(kind):
            ask("hi", model=name)
    with raises(litellm.InternalServerError, litellm.ServiceUnavailableError):
        ask("hi", model="broken")
    with raises(litellm.AuthenticationError):
        ask("hi", api_key="of-nobody")
    with raises(litellm.BadRequestError):
        ask("hi", temperature=9)


@check("errors")
def another_model_takes_over() -> None:
    other = {"model": "openai/report", **SERVER}
    equal(content(ask("hi", model="limited", fallbacks=[other])), "You said: hi")


@check("idempotency")
def one_key_is_one_run() -> None:
    first = content(ask("hi", model="count"))
    headers = {"Idempotency-Key": f"litellm {first}"}
    said = [content(ask("hi", model="count", extra_headers=headers)) for _ in range(2)]
    equal(said[0], said[1])
    assert first != said[0]


@check("cancel")
async def a_cancelled_task_cancels_the_run() -> None:
    started = asyncio.Event()

    async def read() -> None:
        stream: Any = await litellm.acompletion(
            model="openai/endless", messages=[user("go")], stream=True, **SERVER
        )
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                started.set()

    reading = asyncio.create_task(read())
    await started.wait()
    run = newest_run()
    reading.cancel()
    await asyncio.wait([reading])
    equal(await asyncio.to_thread(ending_of, run), "cancelled")


main("litellm", "openai")
