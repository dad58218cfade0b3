"""Tools that a client runs: in the background, custom ones, and in the older form."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pytest
import trio

from orchestrator.agents import Agent, AssistantMessage, CallId, ModelRequest, ToolCall, ToolMessage
from orchestrator.delegation import Mode
from orchestrator.delegation.events import (
    Entry,
    MessageReceived,
    TaskRequested,
    ToolAnswered,
    TurnEnded,
)
from orchestrator.kernel.journal.memory import MemoryJournal
from orchestrator.products.server.state import Settings
from orchestrator.testing import CrashedError, CrashingJournal, assert_laws
from tests.kit import FunctionModel, facts, hand_on, worker
from tests.server.chat_kit import HELLO
from tests.server.kit import TOKEN, Served, serving
from tests.server.server_process import server_process
from tests.server.streaming_kit import speaker
from tests.server.test_chat_stream import chunks
from tests.server.test_responses_background import wait_over

pytestmark = [
    pytest.mark.realtime,
    # The client leaves its streams to the garbage collector, which is its own to mend.
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
SHELL: Any = {
    "type": "custom",
    "name": "shell",
    "description": "Runs a line.",
    "format": {"type": "grammar", "syntax": "regex", "definition": "ls .*"},
}
CHAT_SHELL: Any = {
    "type": "custom",
    "custom": {
        "name": "shell",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "ls"'}},
    },
}
ASK = ToolCall("weather", {"city": "Lima"}, id=CallId("call_w"))
NEVER = 10_000


async def next_step(request: ModelRequest) -> AssistantMessage:
    """Delegate, then ask the client, then tell: also in the next process."""
    await trio.lowlevel.checkpoint()
    transcript = request.transcript
    answered = [it.text for it in transcript if isinstance(it, ToolMessage)]
    if "foggy" in answered:
        return AssistantMessage("It is foggy.")
    if any(isinstance(it, AssistantMessage) for it in transcript):
        return AssistantMessage("I ask.", (ASK,))
    return AssistantMessage("", (hand_on("look", background=True),))


def editor() -> Agent[str]:
    model = FunctionModel(next_step)
    return Agent("editor", model=model, delegates=[worker("helper")])


async def answer_the_call(client: openai.AsyncOpenAI, id_: str) -> Any:
    """Send what the client's tool has found, and return the next response."""
    return await client.responses.create(
        model="editor",
        previous_response_id=id_,
        tools=[WEATHER],
        background=True,
        input=[{"type": "function_call_output", "call_id": ASK.id, "output": "foggy"}],
    )


async def test_a_response_in_the_background_ends_with_calls_for_its_client() -> None:
    """Tasks are joined: none runs on beside a response that waits for its client."""
    async with serving(editor()) as served:
        begun = await served.openai.responses.create(
            model="editor", input="?", tools=[WEATHER], background=True
        )
        asked = await wait_over(served, begun)
        second = await wait_over(served, await answer_the_call(served.openai, begun.id))
        run = served.orchestrator.read.records.sessions
        requested = [
            it.event
            for id_ in run
            for it in await served.orchestrator.read.entries(id_)
            if isinstance(it.event, TaskRequested)
        ]

    assert begun.status in {"queued", "in_progress"}
    assert (asked.status, asked.output_text) == ("completed", "I ask.")
    call: Any = asked.output[-1]
    assert (call.type, call.call_id, call.name) == ("function_call", ASK.id, "weather")
    assert (second.status, second.output_text) == ("completed", "It is foggy.")
    assert [it.mode for it in requested] == [Mode.JOINED]


async def ask_through_a_crash(crash_after: int) -> Sequence[Entry]:
    """Ask in the background of a server that crashes, and return the journal."""
    journal = MemoryJournal()
    with suppress(CrashedError):
        dying = CrashingJournal(journal, after=crash_after)
        async with serving(editor(), journal=dying) as served:
            with suppress(openai.APIError):
                await ask(served)
    async with serving(editor(), journal=journal) as served:
        asked = await ask(served)
    assert (asked.status, asked.output[-1].call_id) == ("completed", ASK.id)
    return journal.entries


async def ask(served: Served) -> Any:
    begun = await served.openai.responses.create(
        model="editor",
        input="?",
        tools=[WEATHER],
        background=True,
        extra_headers={"Idempotency-Key": "k"},
    )
    return await wait_over(served, begun)


async def test_after_a_crash_anywhere_the_client_is_asked_once() -> None:
    """A call that was durable when the server died is the client's, and is not broken off."""
    whole = await ask_through_a_crash(NEVER)
    (begun,) = [it.seq for it in whole if isinstance(it.event, MessageReceived)]
    for crash_after in range(begun, len(whole)):
        kept = await ask_through_a_crash(crash_after)

        assert len(facts(kept, TurnEnded)) == 1, crash_after
        assert len(facts(kept, ToolAnswered)) == 1, crash_after
        assert_laws(kept)


AGENTS = """
from pathlib import Path

import trio

from orchestrator.agents import Agent, AssistantMessage, ToolCall, ToolMessage


class Hanging:
    name = "hanging"

    async def answer(self, request):
        Path("called").touch()
        if not Path("go").exists():
            await trio.sleep_forever()
        if isinstance(request.transcript[-1], ToolMessage):
            return AssistantMessage("It is foggy.")
        (tool,) = request.tools
        return AssistantMessage("", (ToolCall(tool.name, {"city": "Lima"}, id="call_w"),))


editor = Agent("editor", model=Hanging())
"""


async def test_client_tools_survive_kill_9(tmp_path: Path) -> None:
    async with server_process(tmp_path, AGENTS) as server:
        async with server.openai() as client:
            begun = await client.responses.create(
                model="editor", input="?", tools=[WEATHER], background=True
            )
            await server.kill()
        (tmp_path / "go").touch()
        await server.start()
        async with server.openai() as client:
            events = [it async for it in await client.responses.retrieve(begun.id, stream=True)]
            asked = await client.responses.retrieve(begun.id)
            going_on = await answer_the_call(client, begun.id)
            told = [it async for it in await client.responses.retrieve(going_on.id, stream=True)]
        assert await server.terminate() == 0

    assert events[-1].type == "response.completed"
    assert [it.type for it in asked.output] == ["function_call"]
    assert told[-1].response.output_text == "It is foggy."  # type: ignore[union-attr]
    assert server.errors == ""


async def test_a_custom_tool_of_a_response_is_called_with_a_text() -> None:
    model = speaker(ToolCall("shell", {"input": "ls -l"}, id=CallId("c_1")), "done", "!")
    async with serving(Agent("a", model=model)) as served:
        responses = served.openai.responses
        raw = await responses.with_raw_response.create(model="a", input="?", tools=[SHELL])
        first = raw.parse()
        call: Any = first.output[0]
        result: Any = {"type": "custom_tool_call_output", "call_id": "c_1", "output": "a.txt"}
        second = await responses.create(
            model="a", previous_response_id=first.id, input=[result], tools=[SHELL]
        )
        listed = [it async for it in await responses.input_items.list(second.id, order="asc")]
        stateless = await responses.create(
            model="a",
            input=[{"role": "user", "content": "?"}, call.model_dump(exclude_none=True), result],
        )

    assert first.tools[0].model_dump(exclude_none=True) == SHELL
    assert (call.type, call.name, call.input) == ("custom_tool_call", "shell", "ls -l")
    assert (second.output_text, stateless.output_text) == ("done", "!")
    assert [it.type for it in listed] == [
        *("message", "custom_tool_call", "custom_tool_call_output")
    ]
    (tool,) = model.requests[0].tools
    assert tool.parameters["required"] == ["input"]
    # A scripted model keeps to no grammar: it reads it, and the client is told.
    assert "ls .*" in tool.parameters["properties"]["input"]["description"]
    assert raw.headers["x-ignored-parameters"] == "tools.custom.format"
    said: Any = model.requests[-1].transcript[1]
    assert said.calls == (ToolCall("shell", {"input": "ls -l"}, id=CallId("c_1")),)


async def test_a_custom_call_is_streamed_with_its_own_events() -> None:
    model = speaker(ToolCall("shell", {"input": "ls -l"}, id=CallId("c_1")))
    async with serving(Agent("a", model=model)) as served:
        stream = await served.openai.responses.create(
            model="a", input="?", tools=[SHELL], stream=True
        )
        events = [it async for it in stream]

    assert [it.type.removeprefix("response.") for it in events] == [
        *("created", "in_progress", "output_item.added"),
        *("custom_tool_call_input.delta", "custom_tool_call_input.done"),
        *("output_item.done", "completed"),
    ]
    done: Any = events[4]
    assert done.input == "ls -l"


async def test_a_custom_tool_of_a_chat_is_called_with_a_text() -> None:
    call = ToolCall("shell", {"input": "ls"}, id=CallId("c_1"))
    model = speaker(call, "done", call)
    async with serving(Agent("a", model=model)) as served:
        create = served.openai.chat.completions.create
        first = await create(model="a", messages=HELLO, tools=[CHAT_SHELL])
        message = first.choices[0].message.model_dump(exclude_none=True)
        result = {"role": "tool", "tool_call_id": "c_1", "content": "a.txt"}
        conversation: Any = [*HELLO, message, result]
        second = await create(model="a", messages=conversation, tools=[CHAT_SHELL])
        read = await chunks(served, "a", tools=[CHAT_SHELL])

    assert first.choices[0].finish_reason == "tool_calls"
    expected = {"id": "c_1", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    assert message["tool_calls"] == [expected]
    assert second.choices[0].message.content == "done"
    calls = [it.choices[0].delta.tool_calls for it in read]
    (streamed,) = [it for it in calls if it]
    assert streamed[0].model_dump(exclude_none=True) == {"index": 0, **expected}
    said: Any = model.requests[1].transcript[1]
    assert said.calls == (call,)


async def test_a_strict_server_refuses_a_grammar_that_no_model_keeps() -> None:
    settings = Settings(token=TOKEN, is_strict=True)
    async with serving(Agent("a", model=speaker("x")), settings=settings) as served:
        with pytest.raises(openai.BadRequestError, match=r"tools\.custom\.format"):
            await served.openai.responses.create(model="a", input="?", tools=[SHELL])
        plain: Any = {"type": "custom", "name": "shell"}
        answer = await served.openai.responses.create(model="a", input="?", tools=[plain])

    assert answer.output_text == "x"


async def test_functions_are_tools_in_the_older_form() -> None:
    call = ToolCall("weather", {"city": "Lima"})
    model = speaker(call, "foggy", call)
    function: Any = {"name": "weather", "parameters": {"type": "object"}}
    async with serving(Agent("a", model=model)) as served:
        create = served.openai.chat.completions.create
        first = await create(
            model="a", messages=HELLO, functions=[function], function_call={"name": "weather"}
        )
        message = first.choices[0].message
        conversation: Any = [
            *HELLO,
            message.model_dump(exclude_none=True),
            {"role": "function", "name": "weather", "content": "fog"},
        ]
        second = await create(model="a", messages=conversation, functions=[function])
        read = await chunks(served, "a", functions=[function])
        with pytest.raises(openai.BadRequestError) as unknown:
            await create(model="a", messages=[*HELLO, conversation[-1]])

    assert first.choices[0].finish_reason == "function_call"
    assert message.tool_calls is None
    assert message.function_call is not None
    assert message.function_call.arguments == '{"city":"Lima"}'
    assert model.requests[0].settings.tool_choice == "weather"
    assert second.choices[0].message.content == "foggy"
    deltas = [it.choices[0].delta.function_call for it in read]
    (streamed,) = [it for it in deltas if it]
    assert (streamed.name, streamed.arguments) == ("weather", '{"city":"Lima"}')
    assert read[-1].choices[0].finish_reason == "function_call"
    assert unknown.value.param == "messages[1].tool_call_id"


async def test_only_allowed_tools_are_offered() -> None:
    """Both protocols have the choice, each in its own words."""
    model = speaker("1", "2", "3")
    other: Any = {"type": "function", "name": "other", "parameters": {}}
    allowed: Any = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "weather"}],
    }
    async with serving(Agent("a", model=model)) as served:
        response = await served.openai.responses.create(
            model="a", input="?", tools=[WEATHER, SHELL, other], tool_choice=allowed
        )
        tools: Any = [
            {"type": "function", "function": {"name": name}} for name in ("weather", "other")
        ]
        choice: Any = {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [tools[1]]},
        }
        await served.openai.chat.completions.create(
            model="a", messages=HELLO, tools=tools, tool_choice=choice
        )
        await served.openai.responses.create(
            model="a",
            input="?",
            tools=[WEATHER, SHELL],
            tool_choice={"type": "custom", "name": "shell"},
        )

    shown = [[it.name for it in request.tools] for request in model.requests]
    assert shown == [["weather"], ["other"], ["weather", "shell"]]
    choices = [it.settings.tool_choice for it in model.requests]
    assert choices == ["required", None, "shell"]
    assert len(response.tools) == 3


async def test_a_client_tool_may_use_our_names_unless_the_agent_delegates() -> None:
    """An agent that delegates keeps its names, and the error says so."""
    model = speaker("1")
    task: Any = {"type": "function", "name": "task", "parameters": {}}
    lead = Agent("lead", model=speaker("x"), delegates=[worker("helper")])
    async with serving(Agent("a", model=model), lead) as served:
        create = served.openai.responses.create
        answer = await create(model="a", input="?", tools=[task])
        with pytest.raises(openai.BadRequestError, match="its own tool 'task'") as taken:
            await create(model="lead", input="?", tools=[task])

    assert answer.output_text == "1"
    assert taken.value.param == "tools[0].name"
