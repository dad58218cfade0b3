"""The official Python client, `openai`: chat completions, responses and what belongs to them."""

import asyncio
import json
from typing import Any

import openai
from check_kit import KEY, PIXEL, URL, check, contains, ending_of, equal, main, newest_run, raises
from pydantic import BaseModel

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=20)
chat = client.chat.completions
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"name": "weather", "description": "How it is outside.", "parameters": PARAMETERS}
TOOLS: Any = [{"type": "function", "function": WEATHER}]
FUNCTIONS: Any = [{"type": "function", "strict": True, **WEATHER}]
SETTINGS: Any = {"temperature": 0.5, "top_p": 0.9}


class Weather(BaseModel):
    city: str
    degrees: int


FITTING = Weather(city="Lima", degrees=18)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def ask(text: str, **more: Any) -> Any:
    return chat.create(model="report", messages=[user(text)], **more)


def content(answer: Any) -> str:
    return answer.choices[0].message.content or ""


def respond(given: Any, **more: Any) -> Any:
    return client.responses.create(model="report", input=given, **more)


def calls_of(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "function_call"]


@check("plain")
def chat_completion() -> None:
    equal(content(ask("hello")), "You said: hello")


@check("plain")
def response() -> None:
    equal(respond("hello").output_text, "You said: hello")


@check("plain")
def models_are_listed() -> None:
    contains([model.id for model in client.models.list()], "report")
    equal(client.models.retrieve("report").id, "report")


@check("plain")
def instructions_reach_the_model() -> None:
    system: Any = {"role": "system", "content": "Be brief."}
    answer = chat.create(model="report", messages=[system, user("report")])
    contains(json.loads(content(answer))["instructions"], "Be brief.")
    answer = respond("report", instructions="Be brief.")
    contains(json.loads(answer.output_text)["instructions"], "Be brief.")


@check("stream")
def chat_chunks() -> None:
    stream = ask("one two three", stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    equal("".join(pieces), "You said: one two three")
    assert len(pieces) > 1


@check("stream")
def chat_stream_helper() -> None:
    with chat.stream(model="report", messages=[user("one two")]) as stream:
        kinds = {event.type for event in stream}
        equal(content(stream.get_final_completion()), "You said: one two")
    contains(kinds, "content.delta")


@check("stream")
def response_events() -> None:
    with client.responses.stream(model="report", input="one two") as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        equal(stream.get_final_response().output_text, "You said: one two")
    equal("".join(pieces), "You said: one two")


@check("usage")
def plain_usage() -> None:
    usage = ask("hello").usage
    equal((usage.prompt_tokens, usage.completion_tokens), (10, 3))
    usage = respond("hello").usage
    equal((usage.input_tokens, usage.output_tokens), (10, 3))


@check("usage")
def streamed_usage() -> None:
    options: Any = {"include_usage": True}
    *_, last = ask("hello", stream=True, stream_options=options)
    equal(last.usage.total_tokens, 13)
    *_, last = respond("hello", stream=True)
    equal(last.response.usage.total_tokens, 13)


@check("tools")
def chat_call_and_result() -> None:
    answer = ask("call weather", tools=TOOLS)
    equal(answer.choices[0].finish_reason, "tool_calls")
    message = answer.choices[0].message
    (call,) = message.tool_calls
    equal(json.loads(call.function.arguments), {"city": "Lima"})
    messages = [
        user("call weather"),
        message,
        {"role": "tool", "tool_call_id": call.id, "content": "foggy"},
    ]
    answer = chat.create(model="report", messages=messages, tools=TOOLS)
    equal(content(answer), "The tools say: foggy.")


@check("tools")
def response_call_and_result() -> None:
    first = respond("call weather", tools=FUNCTIONS)
    (call,) = calls_of(first)
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "foggy"}
    by_id = respond([result], tools=FUNCTIONS, previous_response_id=first.id)
    equal(by_id.output_text, "The tools say: foggy.")
    stateless = respond([user("call weather"), *first.output, result], tools=FUNCTIONS)
    equal(stateless.output_text, "The tools say: foggy.")


@check("tools")
def strict_tools_of_pydantic() -> None:
    tool = openai.pydantic_function_tool(Weather, name="weather")
    answer = chat.parse(model="report", messages=[user("call weather")], tools=[tool])
    (call,) = answer.choices[0].message.tool_calls or ()
    equal(call.function.parsed_arguments, FITTING)


@check("parallel calls")
def two_calls_in_one_answer() -> None:
    answer = ask("call weather twice", tools=TOOLS)
    message = answer.choices[0].message
    first, second = message.tool_calls
    messages = [
        user("call weather twice"),
        message,
        {"role": "tool", "tool_call_id": first.id, "content": "foggy"},
        {"role": "tool", "tool_call_id": second.id, "content": "sunny"},
    ]
    answer = chat.create(model="report", messages=messages, tools=TOOLS)
    equal(content(answer), "The tools say: foggy, sunny.")
    equal(len(calls_of(respond("call weather twice", tools=FUNCTIONS))), 2)


@check("streamed calls")
def chat_calls_in_a_stream() -> None:
    with chat.stream(model="report", messages=[user("call weather twice")], tools=TOOLS) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_completion().choices[0].message
    contains(kinds, "tool_calls.function.arguments.done")
    equal(len(message.tool_calls or ()), 2)


@check("streamed calls")
def response_calls_in_a_stream() -> None:
    with client.responses.stream(model="report", input="call weather", tools=FUNCTIONS) as stream:
        kinds = {event.type for event in stream}
        (call,) = calls_of(stream.get_final_response())
    contains(kinds, "response.function_call_arguments.done")
    equal(json.loads(call.arguments), {"city": "Lima"})


@check("tool choice")
def chat_none_auto_required_named() -> None:
    none = json.loads(content(ask("report", tools=TOOLS, tool_choice="none")))
    equal(none["tools"], [])
    auto = ask("hello", tools=TOOLS, tool_choice="auto")
    equal(content(auto), "You said: hello")
    named: Any = {"type": "function", "function": {"name": "weather"}}
    for choice in ("required", named):
        answer = ask("hello", tools=TOOLS, tool_choice=choice)
        equal(answer.choices[0].message.tool_calls[0].function.name, "weather")


@check("tool choice")
def response_none_auto_required_named() -> None:
    none = respond("report", tools=FUNCTIONS, tool_choice="none")
    equal(json.loads(none.output_text)["tools"], [])
    auto = respond("hello", tools=FUNCTIONS, tool_choice="auto")
    equal(auto.output_text, "You said: hello")
    for choice in ("required", {"type": "function", "name": "weather"}):
        answer = respond("hello", tools=FUNCTIONS, tool_choice=choice)
        equal(calls_of(answer)[0].name, "weather")


@check("tool choice")
def allowed_tools() -> None:
    other = {"type": "function", "name": "other", "parameters": PARAMETERS}
    allowed = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "weather"}],
    }
    answer = respond("hello", tools=[other, *FUNCTIONS], tool_choice=allowed)
    equal([call.name for call in calls_of(answer)], ["weather"])


@check("one call at a time")
def parallel_tool_calls_false() -> None:
    answer = ask("call weather twice", tools=TOOLS, parallel_tool_calls=False)
    equal(len(answer.choices[0].message.tool_calls), 1)
    answer = respond("call weather twice", tools=FUNCTIONS, parallel_tool_calls=False)
    equal(len(calls_of(answer)), 1)


@check("custom tools")
def a_custom_tool_is_called() -> None:
    tool: Any = {"type": "custom", "name": "shell", "description": "Runs it."}
    first = respond("call shell", tools=[tool])
    (call,) = (item for item in first.output if item.type == "custom_tool_call")
    result: Any = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "done"}
    second = respond([result], tools=[tool], previous_response_id=first.id)
    equal(second.output_text, "The tools say: done.")


@check("structured output")
def chat_parse() -> None:
    answer = chat.parse(model="report", messages=[user("hello")], response_format=Weather)
    equal(answer.choices[0].message.parsed, FITTING)


@check("structured output")
def response_parse() -> None:
    answer = client.responses.parse(model="report", input="hi", text_format=Weather)
    equal(answer.output_parsed, FITTING)


@check("structured output")
def json_schema_and_json_object() -> None:
    schema = {**PARAMETERS, "required": ["city"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "w", "schema": schema}}
    equal(json.loads(content(ask("hi", response_format=form))), {"city": "Lima"})
    form = {"type": "json_object"}
    equal(json.loads(content(ask("hi", response_format=form))), {})
    answer = respond("hi", text={"format": {"type": "json_object"}})
    equal(json.loads(answer.output_text), {})


@check("structured output")
def streamed_and_parsed() -> None:
    with chat.stream(model="report", messages=[user("hello")], response_format=Weather) as stream:
        answer = stream.get_final_completion()
    equal(answer.choices[0].message.parsed, FITTING)
    with client.responses.stream(model="report", input="hi", text_format=Weather) as events:
        equal(events.get_final_response().output_parsed, FITTING)


@check("settings")
def sampling_reaches_the_model() -> None:
    more: Any = {"seed": 7, "presence_penalty": 0.1, "frequency_penalty": 0.2}
    answer = ask("report", reasoning_effort="low", stop=["@"], **SETTINGS, **more)
    wanted = {**SETTINGS, **more, "reasoning_effort": "low", "stop": ["@"]}
    equal(json.loads(content(answer))["settings"], wanted)
    answer = respond("report", reasoning={"effort": "low"}, **SETTINGS)
    wanted = {**SETTINGS, "reasoning_effort": "low"}
    equal(json.loads(answer.output_text)["settings"], wanted)


@check("settings")
def a_limit_of_tokens_cuts_the_answer() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        answer = ask("one two three four", **{name: 3})
        equal(answer.choices[0].finish_reason, "length")
        equal(content(answer).split(), ["You", "said:", "one"])
    answer = respond("one two three four", max_output_tokens=3)
    equal((answer.status, answer.incomplete_details.reason), ("incomplete", "max_output_tokens"))


@check("settings")
def a_stop_sequence_ends_the_answer() -> None:
    equal(content(ask("one two three", stop="two")), "You said: one ")


@check("settings")
def metadata_is_kept() -> None:
    answer = respond("hello", metadata={"for": "Ann"})
    equal(client.responses.retrieve(answer.id).metadata, {"for": "Ann"})


@check("images and files")
def chat_parts() -> None:
    parts = [
        {"type": "text", "text": "report"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.jpg"}},
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"},
        },
    ]
    message: Any = {"role": "user", "content": parts}
    answer = chat.create(model="report", messages=[message])
    shown = json.loads(content(answer))["messages"][0]["parts"]
    equal([part["type"] for part in shown], ["image/png", "image/jpeg", "application/pdf"])


@check("images and files")
def response_parts() -> None:
    parts = [
        {"type": "input_text", "text": "report"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": f"data:application/pdf;base64,{PIXEL}",
        },
    ]
    answer = respond([{"role": "user", "content": parts}])
    shown = json.loads(answer.output_text)["messages"][0]["parts"]
    equal([part["type"] for part in shown], ["image/png", "application/pdf"])


@check("several turns")
def history_reaches_the_model() -> None:
    said: Any = {"role": "assistant", "content": "Hello, Ann."}
    answer = chat.create(model="report", messages=[user("I am Ann."), said, user("report")])
    roles = [it["role"] for it in json.loads(content(answer))["messages"]]
    equal(roles, ["user", "assistant", "user"])
    first = respond("hello")
    answer = respond([user("hello"), *first.output, user("report")])
    roles = [it["role"] for it in json.loads(answer.output_text)["messages"]]
    equal(roles, ["user", "assistant", "user"])


@check("several turns")
def an_item_by_its_id() -> None:
    first = respond("hello")
    reference: Any = {"type": "item_reference", "id": first.output[0].id}
    answer = respond([user("hello"), reference, user("report")])
    shown = json.loads(answer.output_text)["messages"]
    equal(shown[1]["text"], "You said: hello")


@check("previous_response_id")
def a_response_is_continued() -> None:
    first = respond("I am Ann.")
    second = respond("report", previous_response_id=first.id)
    shown = json.loads(second.output_text)["messages"]
    equal([it["text"] for it in shown], ["I am Ann.", "You said: I am Ann.", "report"])
    items = client.responses.input_items.list(second.id, order="asc")
    equal(len(list(items)), 3)


@check("background")
def begun_read_and_resumed() -> None:
    begun = client.responses.create(model="team", input="go", background=True)
    with client.responses.retrieve(begun.id, stream=True) as stream:
        events = list(stream)
    equal(events[-1].type, "response.completed")
    whole = client.responses.retrieve(begun.id)
    assert whole.output_text.endswith("Looked up."), whole.output_text
    again = client.responses.retrieve(begun.id, stream=True, starting_after=2)
    equal([it.sequence_number > 2 for it in again].count(False), 0)
    client.responses.delete(begun.id)
    with raises(openai.NotFoundError):
        client.responses.retrieve(begun.id)


@check("background")
def cancelled() -> None:
    begun = client.responses.create(model="endless", input="go", background=True)
    equal(client.responses.cancel(begun.id).status, "cancelled")


@check("background")
def with_tools() -> None:
    begun = respond("call weather", tools=FUNCTIONS, background=True)
    with client.responses.retrieve(begun.id, stream=True) as stream:
        *_, last = stream
    equal(last.type, "response.completed")
    equal(len(calls_of(client.responses.retrieve(begun.id))), 1)


@check("conversation")
def turns_of_a_conversation() -> None:
    made = client.conversations.create(metadata={"for": "Ann"})
    respond("I am Ann.", conversation=made.id)
    answer = respond("report", conversation=made.id)
    shown = json.loads(answer.output_text)["messages"]
    equal([it["text"] for it in shown], ["I am Ann.", "You said: I am Ann.", "report"])
    assert len(list(client.conversations.items.list(made.id))) >= 4
    client.conversations.delete(made.id)


@check("reasoning")
def reasoning_items() -> None:
    answer = client.responses.create(model="thoughtful", input="hi", reasoning={"summary": "auto"})
    contains([item.type for item in answer.output], "reasoning")
    again = client.responses.create(
        model="report", input=[user("hi"), *answer.output, user("report")]
    )
    equal(len(json.loads(again.output_text)["messages"]), 3)


@check("reasoning")
def reasoning_in_a_chat_stream() -> None:
    stream = chat.create(
        model="thoughtful",
        messages=[user("hi")],
        stream=True,
        extra_body={"include_reasoning": True},
    )
    said = [getattr(chunk.choices[0].delta, "reasoning_content", "") for chunk in stream]
    contains("".join(text or "" for text in said), "Let me see.")


@check("completions")
def a_legacy_completion() -> None:
    answer = client.completions.create(model="report", prompt="hello")
    equal(answer.choices[0].text, "You said: hello")
    stream = client.completions.create(model="report", prompt="hello", stream=True)
    equal("".join(it.choices[0].text for it in stream if it.choices), "You said: hello")


@check("n")
def several_choices() -> None:
    answer = ask("hello", n=2)
    equal([it.message.content for it in answer.choices], ["You said: hello"] * 2)


@check("logprobs")
def what_no_agent_has_is_named() -> None:
    answer = chat.with_raw_response.create(model="report", messages=[user("hello")], logprobs=True)
    contains(answer.headers["x-ignored-parameters"], "logprobs")
    equal(content(answer.parse()), "You said: hello")


@check("stored chats")
def stored_and_read_again() -> None:
    answer = ask("hello", store=True, metadata={"for": "Ann"})
    again = chat.retrieve(answer.id)
    equal(content(again), "You said: hello")
    contains([it.id for it in chat.list(metadata={"for": "Ann"})], answer.id)
    chat.delete(answer.id)
    with raises(openai.NotFoundError):
        chat.retrieve(answer.id)


@check("errors")
def each_failure_has_its_class() -> None:
    for model, kind, code in (
        ("limited", openai.RateLimitError, "rate_limit_exceeded"),
        ("poor", openai.RateLimitError, "insufficient_quota"),
        ("long", openai.BadRequestError, "context_length_exceeded"),
        ("broken", openai.InternalServerError, "provider"),
        ("nobody", openai.NotFoundError, "model_not_found"),
    ):
        with raises(kind) as error:
            chat.create(model=model, messages=[user("hi")])
        equal(error.value.code, code)
        with raises(kind):
            client.responses.create(model=model, input="hi")
    with raises(openai.AuthenticationError):
        client.with_options(api_key="of-nobody").models.list()
    with raises(openai.BadRequestError) as error:
        ask("hi", temperature=9)
    equal(error.value.param, "temperature")


@check("errors")
def a_wait_is_said() -> None:
    with raises(openai.RateLimitError) as error:
        chat.create(model="limited", messages=[user("hi")])
    equal(error.value.response.headers["retry-after"], "7")


@check("errors")
def refusals_and_filters_are_answers() -> None:
    answer = chat.create(model="refusing", messages=[user("hi")])
    contains(answer.choices[0].message.refusal or "", "cannot")
    answer = chat.create(model="filtered", messages=[user("hi")])
    equal(answer.choices[0].finish_reason, "content_filter")


@check("idempotency")
def one_key_is_one_run() -> None:
    for make in (
        lambda **more: content(chat.create(model="count", messages=[user("hi")], **more)),
        lambda **more: client.responses.create(model="count", input="hi", **more).output_text,
    ):
        headers = {"Idempotency-Key": f"key-{make()}"}
        first = make(extra_headers=headers)
        equal(make(extra_headers=headers), first)
        assert make() != first


@check("cancel")
def a_closed_stream_cancels_the_run() -> None:
    with chat.create(model="endless", messages=[user("go")], stream=True) as stream:
        next(piece for piece in stream if piece.choices[0].delta.content)
        run = newest_run()
    equal(ending_of(run), "cancelled")


@check("cancel")
async def a_cancelled_task_cancels_the_run() -> None:
    async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0) as own:
        stream = await own.chat.completions.create(
            model="endless", messages=[user("go")], stream=True
        )
        started = asyncio.Event()

        async def read() -> None:
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    started.set()

        reading = asyncio.create_task(read())
        await started.wait()
        run = newest_run()
        reading.cancel()
        await asyncio.wait([reading])
        await stream.close()
    equal(ending_of(run), "cancelled")


main("openai")
