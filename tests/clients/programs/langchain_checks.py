"""LangChain's `ChatOpenAI` over both protocols, and the agents of LangChain on LangGraph."""

import asyncio
import json
from typing import Any

import openai
from check_kit import KEY, PIXEL, URL, check, contains, ending_of, equal, main, newest_run, raises
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel


class Weather(BaseModel):
    """How it is outside."""

    city: str
    degrees: int


@tool
def weather(city: str) -> str:
    """Say how it is outside."""
    return f"foggy in {city}"


FITTING = Weather(city="Lima", degrees=18)


def model(name: str = "report", **more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=name, base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=20, **more
    )


def both(name: str = "report", **more: Any) -> list[ChatOpenAI]:
    """Return a model for each protocol."""
    return [model(name, use_responses_api=is_responses, **more) for is_responses in (False, True)]


@check("plain")
def invoke_and_batch() -> None:
    for llm in both():
        equal(llm.invoke("hello").text, "You said: hello")
        equal([it.text for it in llm.batch(["a", "b"])], ["You said: a", "You said: b"])


@check("plain")
def instructions_reach_the_model() -> None:
    for llm in both():
        answer = llm.invoke([SystemMessage("Be brief."), HumanMessage("report")])
        contains(json.loads(answer.text)["instructions"], "Be brief.")


@check("stream")
def stream() -> None:
    for llm in both():
        pieces = [chunk.text for chunk in llm.stream("one two three")]
        equal("".join(pieces), "You said: one two three")
        assert len(pieces) > 1


@check("usage")
def usage_metadata() -> None:
    for llm in both(stream_usage=True):
        equal(llm.invoke("hello").usage_metadata["total_tokens"], 13)
        whole = sum(list(llm.stream("hello"))[1:], next(llm.stream("hello")))
        assert whole.usage_metadata is not None


@check("tools")
def call_and_result() -> None:
    for llm in both():
        bound = llm.bind_tools([weather])
        first = bound.invoke("call weather")
        (call,) = first.tool_calls
        result = weather.invoke(call)
        assert isinstance(result, ToolMessage)
        last = bound.invoke([HumanMessage("call weather"), first, result])
        equal(last.text, "The tools say: foggy in Lima.")


@check("tools")
def an_agent_of_langgraph() -> None:
    for llm in both():
        agent = create_agent(llm, [weather])
        state = agent.invoke({"messages": [HumanMessage("call weather")]})
        equal(state["messages"][-1].text, "The tools say: foggy in Lima.")


@check("parallel calls")
def two_calls_in_one_answer() -> None:
    for llm in both():
        agent = create_agent(llm, [weather])
        state = agent.invoke({"messages": [HumanMessage("call weather twice")]})
        said = state["messages"][-1].text
        equal(said, "The tools say: foggy in Lima, foggy in Lima.")


@check("streamed calls")
def calls_in_a_stream() -> None:
    for llm in both():
        whole: Any = None
        for chunk in llm.bind_tools([weather]).stream("call weather"):
            whole = chunk if whole is None else whole + chunk
        equal([call["args"] for call in whole.tool_calls], [{"city": "Lima"}])


@check("streamed calls")
def an_agent_that_streams() -> None:
    for llm in both():
        agent = create_agent(llm, [weather])
        given = {"messages": [HumanMessage("call weather")]}
        pieces = [it.text for it, _ in agent.stream(given, stream_mode="messages")]
        contains("".join(pieces), "The tools say: foggy in Lima.")


@check("tool choice")
def none_auto_any_named() -> None:
    for llm in both():
        none = llm.bind_tools([weather], tool_choice="none").invoke("report")
        equal(json.loads(none.text)["tools"], [])
        auto = llm.bind_tools([weather], tool_choice="auto").invoke("hello")
        equal(auto.text, "You said: hello")
        for choice in ("any", "required", "weather"):
            answer = llm.bind_tools([weather], tool_choice=choice).invoke("hello")
            equal([call["name"] for call in answer.tool_calls], ["weather"])


@check("one call at a time")
def parallel_tool_calls_false() -> None:
    for llm in both():
        bound = llm.bind_tools([weather], parallel_tool_calls=False)
        equal(len(bound.invoke("call weather twice").tool_calls), 1)


@check("structured output")
def with_structured_output() -> None:
    for llm in both():
        equal(llm.with_structured_output(Weather).invoke("hello"), FITTING)
        for method in ("json_schema", "function_calling"):
            bound = llm.with_structured_output(Weather, method=method)
            equal(bound.invoke("hello"), FITTING)
        raw = llm.with_structured_output(Weather, include_raw=True).invoke("hello")
        equal(raw["parsed"], FITTING)


@check("structured output")
def json_mode() -> None:
    for llm in both():
        bound = llm.with_structured_output(None, method="json_mode")
        equal(bound.invoke("hello"), {})


@check("structured output")
def a_streamed_object() -> None:
    for llm in both():
        *_, last = llm.with_structured_output(Weather).stream("hello")
        equal(last, FITTING)


@check("structured output")
def the_answer_of_an_agent() -> None:
    for llm in both():
        for strategy in (ToolStrategy(Weather), ProviderStrategy(Weather)):
            agent = create_agent(llm, [weather], response_format=strategy)
            state = agent.invoke({"messages": [HumanMessage("hello")]})
            equal(state["structured_response"], FITTING)


@check("settings")
def sampling_reaches_the_model() -> None:
    given: Any = {"temperature": 0.5, "top_p": 0.9}
    for llm in both(reasoning_effort="low", **given):
        settings = json.loads(llm.invoke("report").text)["settings"]
        equal(settings, {**given, "reasoning_effort": "low"})
    given = {"seed": 7, "presence_penalty": 0.1, "frequency_penalty": 0.2}
    settings = json.loads(model(**given).invoke("report").text)["settings"]
    equal(settings, given)


@check("settings")
def limits_and_stop() -> None:
    for llm in both(max_tokens=3):
        contains(llm.invoke("one two three").text, "You said: one")
    chat, responses = both(max_tokens=3)
    cut = chat.invoke("one two three").response_metadata
    equal(cut["finish_reason"], "length")
    cut = responses.invoke("one two three").response_metadata
    equal(cut["status"], "incomplete")
    equal(model(stop=["two"]).invoke("one two").text, "You said: one ")


@check("images and files")
def parts() -> None:
    message = HumanMessage(
        content=[
            {"type": "text", "text": "report"},
            {"type": "image", "base64": PIXEL, "mime_type": "image/png"},
            {"type": "file", "base64": PIXEL, "mime_type": "application/pdf", "filename": "a.pdf"},
        ]
    )
    for llm in both():
        shown = json.loads(llm.invoke([message]).text)["messages"][0]["parts"]
        equal([part["type"] for part in shown], ["image/png", "application/pdf"])


@check("several turns")
def history_reaches_the_model() -> None:
    for llm in both():
        first = llm.invoke("I am Ann.")
        answer = llm.invoke([HumanMessage("I am Ann."), first, HumanMessage("report")])
        shown = json.loads(answer.text)["messages"]
        equal([it["role"] for it in shown], ["user", "assistant", "user"])
        answer = llm.invoke([HumanMessage("I am Ann."), AIMessage("Hi."), HumanMessage("report")])
        equal(json.loads(answer.text)["messages"][1]["text"], "Hi.")


@check("several turns")
def an_agent_with_memory() -> None:
    for llm in both():
        agent = create_agent(llm, [weather], checkpointer=InMemorySaver())
        thread: Any = {"configurable": {"thread_id": "1"}}
        agent.invoke({"messages": [HumanMessage("call weather")]}, thread)
        state = agent.invoke({"messages": [HumanMessage("report")]}, thread)
        shown = json.loads(state["messages"][-1].text)["messages"]
        equal([it["role"] for it in shown], ["user", "assistant", "tool", "assistant", "user"])


@check("previous_response_id")
def a_response_is_continued() -> None:
    llm = model(use_responses_api=True, use_previous_response_id=True)
    first = llm.invoke("I am Ann.")
    answer = llm.invoke([HumanMessage("I am Ann."), first, HumanMessage("report")])
    shown = json.loads(answer.text)["messages"]
    equal([it["text"] for it in shown], ["I am Ann.", "You said: I am Ann.", "report"])


@check("conversation")
def turns_of_a_conversation() -> None:
    client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY)
    made = client.conversations.create()
    llm = model(use_responses_api=True, model_kwargs={"conversation": made.id})
    llm.invoke("I am Ann.")
    shown = json.loads(llm.invoke("report").text)["messages"]
    equal(len(shown), 3)


@check("reasoning")
def reasoning_blocks() -> None:
    llm = model("thoughtful", use_responses_api=True, reasoning={"summary": "auto"})
    answer = llm.invoke("hi")
    contains([block["type"] for block in answer.content_blocks], "reasoning")


@check("custom tools")
def a_custom_tool_is_called() -> None:
    from langchain_openai import custom_tool

    @custom_tool
    def shell(code: str) -> str:
        """Run it."""
        return "done"

    agent = create_agent(model(use_responses_api=True), [shell])
    state = agent.invoke({"messages": [HumanMessage("call shell")]})
    equal(state["messages"][-1].text, "The tools say: done.")


@check("completions")
def a_legacy_completion() -> None:
    llm = OpenAI(model="report", base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
    equal(llm.invoke("hello"), "You said: hello")
    equal("".join(llm.stream("hello")), "You said: hello")


@check("n")
def several_choices() -> None:
    answers = model(n=2).generate([[HumanMessage("hello")]]).generations[0]
    equal([it.text for it in answers], ["You said: hello"] * 2)


@check("logprobs")
def what_no_agent_has_is_named() -> None:
    answer = model(logprobs=True, include_response_headers=True).invoke("hello")
    headers = answer.response_metadata["headers"]
    contains(headers["x-ignored-parameters"], "logprobs")


@check("errors")
def each_failure_has_its_class() -> None:
    for name, kind in (
        ("limited", openai.RateLimitError),
        ("poor", openai.RateLimitError),
        ("long", ContextOverflowError),
        ("broken", openai.InternalServerError),
        ("nobody", openai.NotFoundError),
    ):
        for llm in both(name):
            with raises(kind):
                llm.invoke("hi")
        with raises(kind):
            list(model(name).stream("hi"))


@check("errors", fails="a streamed response that fails is a `ValueError`, whatever its code")
def failures_of_a_streamed_response() -> None:
    with raises(openai.RateLimitError):
        list(model("limited", use_responses_api=True).stream("hi"))


@check("errors")
def another_model_takes_over() -> None:
    for llm in both("limited"):
        equal(llm.with_fallbacks([model()]).invoke("hi").text, "You said: hi")


@check("idempotency")
def one_key_is_one_run() -> None:
    for llm in both("count"):
        keyed = llm.bind(extra_headers={"Idempotency-Key": f"langchain {llm.invoke('hi').text}"})
        first = keyed.invoke("hi").text
        equal(keyed.invoke("hi").text, first)
        assert llm.invoke("hi").text != first


@check("cancel")
async def a_cancelled_task_cancels_the_run() -> None:
    started = asyncio.Event()

    async def read() -> None:
        async for chunk in model("endless").astream("go"):
            if chunk.text:
                started.set()

    reading = asyncio.create_task(read())
    await started.wait()
    run = newest_run()
    reading.cancel()
    await asyncio.wait([reading])
    equal(ending_of(run), "cancelled")


main("langchain", "langchain-openai", "langgraph")
