"""The OpenAI Agents SDK over both protocols.

Its import name is `agents`, as that of one of our own packages: type checkers would read the
wrong one, so it is imported by its name.
"""

import asyncio
import json
from importlib import import_module
from typing import Any

import openai
from check_kit import KEY, PIXEL, URL, check, contains, ending_of, equal, main, newest_run, raises
from pydantic import BaseModel

sdk: Any = import_module("agents")
sdk.set_tracing_disabled(True)


class Weather(BaseModel):
    """How it is outside."""

    city: str
    degrees: int


FITTING = Weather(city="Lima", degrees=18)


@sdk.function_tool
def weather(city: str) -> str:
    """Say how it is outside."""
    return f"foggy in {city}"


def both(name: str = "report") -> list[Any]:
    """Return a model for each protocol."""
    client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
    return [
        sdk.OpenAIChatCompletionsModel(model=name, openai_client=client),
        sdk.OpenAIResponsesModel(model=name, openai_client=client),
    ]


def agent(model: Any, **more: Any) -> Any:
    return sdk.Agent(name="tried", model=model, **more)


async def run(model: Any, text: Any, **more: Any) -> Any:
    return (await sdk.Runner.run(agent(model, **more), text)).final_output


async def report(model: Any, **settings: Any) -> Any:
    return json.loads(await run(model, "report", model_settings=sdk.ModelSettings(**settings)))


@check("plain")
async def final_output() -> None:
    for model in both():
        equal(await run(model, "hello"), "You said: hello")


@check("plain")
async def instructions_reach_the_model() -> None:
    for model in both():
        answer = json.loads(await run(model, "report", instructions="Be brief."))
        contains(answer["instructions"], "Be brief.")


@check("stream")
async def run_streamed() -> None:
    for model in both():
        running = sdk.Runner.run_streamed(agent(model), "one two three")
        pieces = [
            event.data.delta
            async for event in running.stream_events()
            if event.type == "raw_response_event"
            and event.data.type == "response.output_text.delta"
        ]
        equal("".join(pieces), "You said: one two three")
        assert len(pieces) > 1


@check("usage")
async def usage() -> None:
    for model in both():
        done = await sdk.Runner.run(agent(model), "hello")
        equal(done.context_wrapper.usage.total_tokens, 13)
        settings = sdk.ModelSettings(include_usage=True)
        running = sdk.Runner.run_streamed(agent(model, model_settings=settings), "hello")
        async for _ in running.stream_events():
            pass
        equal(running.context_wrapper.usage.total_tokens, 13)


@check("tools")
async def call_and_result() -> None:
    for model in both():
        answer = await run(model, "call weather", tools=[weather])
        equal(answer, "The tools say: foggy in Lima.")


@check("tools")
async def handoff_and_agent_as_tool() -> None:
    for model in both():
        other = sdk.Agent(name="other", model=model, instructions="I am the other.")
        handed = await run(model, "call transfer_to_other", handoffs=[other])
        contains(handed, "assistant")
        tool = other.as_tool("ask_other", "Ask it.")
        answer = await run(model, "call ask_other", tools=[tool])
        equal(answer, "The tools say: You said: Lima.")


@check("parallel calls")
async def two_calls_in_one_answer() -> None:
    for model in both():
        answer = await run(model, "call weather twice", tools=[weather])
        equal(answer, "The tools say: foggy in Lima, foggy in Lima.")


@check("streamed calls")
async def calls_in_a_stream() -> None:
    for model in both():
        running = sdk.Runner.run_streamed(agent(model, tools=[weather]), "call weather twice")
        names = [
            event.name
            async for event in running.stream_events()
            if event.type == "run_item_stream_event"
        ]
        equal(names.count("tool_called"), 2)
        equal(running.final_output, "The tools say: foggy in Lima, foggy in Lima.")


@check("tool choice")
async def none_auto_required_named() -> None:
    for model in both():
        for choice, wanted in (
            ("none", "You said: hello"),
            ("auto", "You said: hello"),
            ("required", "foggy in Lima"),
            ("weather", "foggy in Lima"),
        ):
            answer = await run(
                model,
                "hello",
                tools=[weather],
                tool_use_behavior="stop_on_first_tool",
                model_settings=sdk.ModelSettings(tool_choice=choice),
            )
            equal(answer, wanted)


@check("one call at a time")
async def parallel_tool_calls_false() -> None:
    for model in both():
        settings = sdk.ModelSettings(parallel_tool_calls=False)
        answer = await run(model, "call weather twice", tools=[weather], model_settings=settings)
        equal(answer, "The tools say: foggy in Lima.")


@check("structured output")
async def output_type() -> None:
    for model in both():
        equal(await run(model, "hello", output_type=Weather), FITTING)
        behind = await run(model, "call weather", output_type=Weather, tools=[weather])
        equal(behind, FITTING)


@check("structured output")
async def a_streamed_object() -> None:
    for model in both():
        running = sdk.Runner.run_streamed(agent(model, output_type=Weather), "hello")
        async for _ in running.stream_events():
            pass
        equal(running.final_output, FITTING)


@check("settings")
async def sampling_reaches_the_model() -> None:
    given: Any = {"temperature": 0.5, "top_p": 0.9}
    for model in both():
        equal((await report(model, **given))["settings"], given)
    more: Any = {"presence_penalty": 0.1, "frequency_penalty": 0.2}
    equal((await report(both()[0], **more))["settings"], more)


@check("settings")
async def limits() -> None:
    chat, responses = both()
    settings = sdk.ModelSettings(max_tokens=3)
    answer = await run(chat, "one two three", model_settings=settings)
    equal(answer, "You said: one ")
    # It takes no response that is incomplete, whichever server it comes from.
    with raises(sdk.ModelBehaviorError) as error:
        await run(responses, "one two three", model_settings=settings)
    contains(str(error.value), "max_output_tokens")


@check("images and files")
async def parts() -> None:
    content = [
        {"type": "input_text", "text": "report"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": f"data:application/pdf;base64,{PIXEL}",
        },
    ]
    for model in both():
        answer = await run(model, [{"role": "user", "content": content}])
        shown = json.loads(answer)["messages"][0]["parts"]
        equal([part["type"] for part in shown], ["image/png", "application/pdf"])


@check("several turns")
async def a_session() -> None:
    for model in both():
        session = sdk.SQLiteSession("1")
        asked = agent(model, tools=[weather])
        await sdk.Runner.run(asked, "call weather", session=session)
        done = await sdk.Runner.run(asked, "report", session=session)
        shown = json.loads(done.final_output)["messages"]
        equal([it["role"] for it in shown], ["user", "assistant", "tool", "assistant", "user"])


@check("previous_response_id")
async def a_response_is_continued() -> None:
    asked = agent(both()[1], tools=[weather])
    first = await sdk.Runner.run(asked, "call weather", auto_previous_response_id=True)
    equal(first.final_output, "The tools say: foggy in Lima.")
    done = await sdk.Runner.run(asked, "report", previous_response_id=first.last_response_id)
    equal(len(json.loads(done.final_output)["messages"]), 5)


@check("conversation")
async def a_session_of_conversations() -> None:
    client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY)
    session = sdk.OpenAIConversationsSession(openai_client=client)
    asked = agent(both()[1], tools=[weather])
    await sdk.Runner.run(asked, "call weather", session=session)
    done = await sdk.Runner.run(asked, "report", session=session)
    equal(len(json.loads(done.final_output)["messages"]), 5)


@check("conversation")
async def a_conversation_by_its_id() -> None:
    client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY)
    made = await client.conversations.create()
    asked = agent(both()[1], tools=[weather])
    await sdk.Runner.run(asked, "call weather", conversation_id=made.id)
    done = await sdk.Runner.run(asked, "report", conversation_id=made.id)
    equal(len(json.loads(done.final_output)["messages"]), 5)


@check("reasoning")
async def reasoning_items() -> None:
    settings = sdk.ModelSettings(reasoning={"summary": "auto"})
    asked = agent(both("thoughtful")[1], model_settings=settings)
    done = await sdk.Runner.run(asked, "hi")
    contains([item.type for item in done.new_items], "reasoning_item")


@check("errors")
async def each_failure_has_its_class() -> None:
    for name, kind in (
        ("limited", openai.RateLimitError),
        ("long", openai.BadRequestError),
        ("broken", openai.InternalServerError),
        ("nobody", openai.NotFoundError),
    ):
        for model in both(name):
            with raises(kind):
                await run(model, "hi")


@check("idempotency")
async def one_key_is_one_run() -> None:
    for model in both("count"):
        first = await run(model, "hi")
        headers = {"Idempotency-Key": f"agents {first}"}
        settings = sdk.ModelSettings(extra_headers=headers)
        said = [await run(model, "hi", model_settings=settings) for _ in range(2)]
        equal(said[0], said[1])
        assert first != said[0]


@check("cancel")
async def a_cancelled_run() -> None:
    running = sdk.Runner.run_streamed(agent(both("endless")[0]), "go")
    async for event in running.stream_events():
        if event.type == "raw_response_event" and event.data.type.endswith("text.delta"):
            break
    run_id = newest_run()
    running.cancel()
    async for _ in running.stream_events():
        pass
    equal(await asyncio.to_thread(ending_of, run_id), "cancelled")


main("openai-agents", "openai")
