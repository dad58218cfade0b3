"""LlamaIndex: `OpenAILike` for chat completions, `OpenAIResponses`, and its agents."""

import asyncio
import json
from typing import Any

import openai
from check_kit import KEY, PIXEL, URL, check, contains, ending_of, equal, main, newest_run, raises
from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.llms import ChatMessage, DocumentBlock, ImageBlock, MessageRole, TextBlock
from llama_index.core.program import FunctionCallingProgram
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel


class Weather(BaseModel):
    """How it is outside."""

    city: str
    degrees: int


def weather(city: str) -> str:
    """Say how it is outside."""
    return f"foggy in {city}"


TOOL = FunctionTool.from_defaults(weather)
FITTING = Weather(city="Lima", degrees=18)


def like(name: str = "report", **more: Any) -> OpenAILike:
    settings: Any = {"is_chat_model": True, "is_function_calling_model": True, **more}
    return OpenAILike(model=name, api_base=f"{URL}/v1", api_key=KEY, max_retries=0, **settings)


def responses(name: str = "report", **more: Any) -> OpenAIResponses:
    return OpenAIResponses(
        model=name, api_base=f"{URL}/v1", api_key=KEY, max_retries=0, context_window=8000, **more
    )


def both(name: str = "report", **more: Any) -> list[Any]:
    """Return a model for each protocol."""
    return [like(name, **more), responses(name, **more)]


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


@check("plain")
def chat_and_complete() -> None:
    for llm in both():
        equal(llm.chat([user("hello")]).message.content, "You said: hello")
        equal(llm.complete("hello").text, "You said: hello")


@check("plain")
def instructions_reach_the_model() -> None:
    for llm in both():
        system = ChatMessage(role="system", content="Be brief.")
        answer = llm.chat([system, user("report")]).message.content
        contains(json.loads(answer)["instructions"], "Be brief.")


@check("stream")
def stream_chat() -> None:
    for llm in both():
        pieces = [it.delta or "" for it in llm.stream_chat([user("one two three")])]
        equal("".join(pieces), "You said: one two three")
        assert len(pieces) > 1


@check("usage")
def usage() -> None:
    equal(like().chat([user("hello")]).raw.usage.total_tokens, 13)
    equal(responses().chat([user("hello")]).raw.usage.total_tokens, 13)


@check("tools")
def predict_and_call() -> None:
    for llm in both():
        answer = llm.predict_and_call([TOOL], user_msg="call weather")
        equal(str(answer), "foggy in Lima")


@check("tools")
async def a_function_agent() -> None:
    for llm in both():
        agent = FunctionAgent(tools=[TOOL], llm=llm, streaming=False)
        answer = await agent.run("call weather")
        equal(str(answer), "The tools say: foggy in Lima.")


@check("parallel calls")
def two_calls_in_one_answer() -> None:
    for llm in both():
        answer = llm.chat_with_tools(
            [TOOL], user_msg="call weather twice", allow_parallel_tool_calls=True
        )
        equal(len(llm.get_tool_calls_from_response(answer)), 2)


@check("streamed calls")
async def a_function_agent_that_streams() -> None:
    for llm in both():
        running = FunctionAgent(tools=[TOOL], llm=llm).run("call weather")
        pieces = [
            event.delta async for event in running.stream_events() if isinstance(event, AgentStream)
        ]
        contains("".join(pieces), "The tools say: foggy in Lima.")
        await running


@check("tool choice")
def auto_required_named() -> None:
    for llm in both():
        auto = llm.chat_with_tools([TOOL], user_msg="hello", tool_choice="auto")
        equal(auto.message.content, "You said: hello")
        for choice in ({"tool_required": True}, {"tool_choice": "weather"}):
            answer = llm.chat_with_tools([TOOL], user_msg="hello", **choice)
            (call,) = llm.get_tool_calls_from_response(answer)
            equal(call.tool_name, "weather")


@check("tool choice")
def none() -> None:
    for llm in both():
        answer = llm.chat_with_tools([TOOL], user_msg="report", tool_choice="none")
        equal(json.loads(answer.message.content)["tools"], [])


@check("one call at a time")
def parallel_tool_calls_false() -> None:
    for llm in both():
        answer = llm.chat_with_tools([TOOL], user_msg="call weather twice")
        equal(len(llm.get_tool_calls_from_response(answer)), 1)


@check("structured output")
def a_structured_model() -> None:
    for llm in both():
        answer = llm.as_structured_llm(Weather).chat([user("hello")])
        equal(answer.raw, FITTING)


@check("structured output")
def a_structured_model_by_json_schema() -> None:
    llm = like(should_use_structured_outputs=True)
    equal(llm.as_structured_llm(Weather).chat([user("hello")]).raw, FITTING)


@check("structured output")
def a_streamed_object() -> None:
    # It does not require the call of its tool in a stream, so the message asks for it.
    *_, last = like().as_structured_llm(Weather).stream_chat([user("call Weather")])
    equal((last.raw.city, last.raw.degrees), ("Lima", 18))


@check("structured output", fails="its stream reads the calls of chat completions only")
def a_streamed_object_of_a_response() -> None:
    llm = responses().as_structured_llm(Weather)
    *_, last = llm.stream_chat([user("call Weather")])
    equal((last.raw.city, last.raw.degrees), ("Lima", 18))


@check("structured output")
def programs() -> None:
    for llm in both():
        program = FunctionCallingProgram.from_defaults(
            output_cls=Weather, prompt_template_str="hello", llm=llm
        )
        equal(program(), FITTING)


@check("structured output")
async def the_answer_of_an_agent() -> None:
    for llm in both():
        agent = FunctionAgent(tools=[TOOL], llm=llm, output_cls=Weather)
        answer = await agent.run("call weather")
        equal(answer.get_pydantic_model(Weather), FITTING)


@check("settings")
def sampling_reaches_the_model() -> None:
    llm = like(temperature=0.5, additional_kwargs={"top_p": 0.9, "seed": 7})
    settings = json.loads(llm.chat([user("report")]).message.content)["settings"]
    equal(settings, {"temperature": 0.5, "top_p": 0.9, "seed": 7})
    llm = responses(temperature=0.5, top_p=0.9)
    settings = json.loads(llm.chat([user("report")]).message.content)["settings"]
    equal((settings["temperature"], settings["top_p"]), (0.5, 0.9))


@check("settings")
def limits() -> None:
    cut = like(max_tokens=3).chat([user("one two three")])
    equal(cut.message.content, "You said: one ")
    cut = responses(max_output_tokens=3).chat([user("one two three")])
    equal(cut.message.content, "You said: one ")


@check("images and files")
def parts() -> None:
    blocks = [
        TextBlock(text="report"),
        ImageBlock(image=PIXEL.encode(), image_mimetype="image/png"),
        DocumentBlock(data=PIXEL.encode(), document_mimetype="application/pdf"),
    ]
    for llm in both():
        answer = llm.chat([ChatMessage(role="user", blocks=blocks)]).message.content
        shown = json.loads(answer)["messages"][0]["parts"]
        equal([part["type"] for part in shown], ["image/png", "application/pdf"])


@check("several turns")
def history_reaches_the_model() -> None:
    for llm in both():
        said = ChatMessage(role=MessageRole.ASSISTANT, content="Hi.")
        answer = llm.chat([user("I am Ann."), said, user("report")]).message.content
        shown = json.loads(answer)["messages"]
        equal([it["role"] for it in shown], ["user", "assistant", "user"])


@check("previous_response_id")
def a_response_is_continued() -> None:
    llm = responses(track_previous_responses=True)
    llm.chat([user("I am Ann.")])
    answer = llm.chat([user("report")]).message.content
    equal(len(json.loads(answer)["messages"]), 3)


@check("reasoning")
def reasoning_blocks() -> None:
    # Its `reasoning_options` are for names of OpenAI's models only.
    more = {"reasoning": {"summary": "auto"}}
    llm = responses("thoughtful", additional_kwargs=more)
    answer = llm.chat([user("hi")])
    kinds = [block.block_type for block in answer.message.blocks]
    contains(kinds, "thinking")


@check("completions")
def a_legacy_completion() -> None:
    llm = like(is_chat_model=False)
    equal(llm.complete("hello").text, "You said: hello")
    equal([it.text for it in llm.stream_complete("hello")][-1], "You said: hello")


@check("errors")
def each_failure_has_its_class() -> None:
    for name, kind in (
        ("limited", openai.RateLimitError),
        ("long", openai.BadRequestError),
        ("broken", openai.InternalServerError),
        ("nobody", openai.NotFoundError),
    ):
        for llm in both(name):
            with raises(kind):
                llm.chat([user("hi")])


@check("idempotency")
def one_key_is_one_run() -> None:
    for llm in both("count"):
        first = llm.chat([user("hi")]).message.content
        headers = {"Idempotency-Key": f"llamaindex {first}"}
        said = [llm.chat([user("hi")], extra_headers=headers).message.content for _ in range(2)]
        equal(said[0], said[1])
        assert first != said[0]


@check("cancel")
async def a_cancelled_task_cancels_the_run() -> None:
    started = asyncio.Event()

    async def read() -> None:
        async for piece in await like("endless").astream_chat([user("go")]):
            if piece.delta:
                started.set()

    reading = asyncio.create_task(read())
    await started.wait()
    run = newest_run()
    reading.cancel()
    await asyncio.wait([reading])
    equal(ending_of(run), "cancelled")


main("llama-index-core", "llama-index-llms-openai", "llama-index-llms-openai-like")
