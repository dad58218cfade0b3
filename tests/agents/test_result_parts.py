"""Tools may answer with images and files: every protocol carries them, or says why it cannot."""

import base64
from typing import Any

import pytest
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    DefinitionError,
    Message,
    ModelRequest,
    Part,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
    take_turn,
    tool,
)
from orchestrator.agents.models.providers.anthropic import AnthropicModel
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.agents.models.providers.openai_responses import ResponsesModel
from orchestrator.agents.models.registry import model_named
from orchestrator.agents.models.token_estimate import message_length
from orchestrator.agents.models.usage_bound import max_request_tokens
from orchestrator.agents.models.wrappers.compaction import with_compaction
from orchestrator.agents.models.wrappers.cut_request import cut_message
from orchestrator.agents.tools.result_text import MOST_PART_BYTES, ToolResult
from tests.agents.turn_kit import MemoryHost
from tests.fake_provider import FakeProvider, Say, open_provider

KEY = "sk-0123456789"
PNG = Part("image/png", data=b"\x89PNG\r\n\x1a\n\x00", name="cat.png")
PDF = Part("application/pdf", data=b"%PDF-1.7", name="a.pdf")
SOUND = Part("audio/wav", data=b"RIFF", name="a.wav")
IMAGE = base64.b64encode(PNG.data).decode()
FIRST = ToolCall("draw", {}, id=CallId("c1"))
SECOND = ToolCall("draw", {}, id=CallId("c2"))
TRANSCRIPT: list[Message] = [
    UserMessage("go"),
    AssistantMessage("", (FIRST, SECOND)),
    ToolMessage(FIRST.id, "a cat", parts=(PNG, PDF)),
    ToolMessage(SECOND.id, "a song", parts=(SOUND,)),
]


async def steps_of(drawn: Tool) -> list[Any]:
    """Take a turn in which a tool is called once, and return its steps."""
    model = ScriptedModel([ToolCall(drawn.name, {}), "so"])
    agent = Agent("artist", model=model, tools=[drawn])
    host = MemoryHost()
    await take_turn(agent, [UserMessage("go")], model=model, tools=agent.tools, host=host)
    return host.steps


@pytest.mark.parametrize(
    ("result", "text", "parts"),
    [
        (PNG, "see the file 'cat.png' (image/png)", (PNG,)),
        (["a cat", PNG], "a cat", (PNG,)),
        ((PNG, "a cat", PDF, "and more"), "a cat\nand more", (PNG, PDF)),
        (["a cat"], '["a cat"]', ()),
    ],
)
async def test_a_tool_answers_with_parts(result: Any, text: str, parts: Any) -> None:
    async def draw() -> Any:
        await trio.lowlevel.checkpoint()
        return result

    answer = (await steps_of(tool(draw)))[1]

    assert (answer.text, answer.parts) == (text, parts)


async def test_a_source_of_tools_answers_with_parts() -> None:
    """As a client of another protocol does, whose tools are no functions."""

    async def run(call: ToolCall) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return ToolResult(f"{call.name} is done", parts=(PNG,))

    drawn = Tool(name="draw", description="Draw.", parameters={"type": "object"}, run=run)
    answer = (await steps_of(drawn))[1]

    assert (answer.text, answer.parts) == ("draw is done", (PNG,))


async def test_files_that_are_too_large_are_an_error_that_the_model_reads() -> None:
    async def draw() -> Part:
        await trio.lowlevel.checkpoint()
        return Part("image/png", data=b"x" * (MOST_PART_BYTES + 1))

    answer = (await steps_of(tool(draw)))[1]

    assert answer.failed
    assert "ask for less" in answer.text


def test_parts_are_parts() -> None:
    wrong: Any = ("cat.png",)

    with pytest.raises(DefinitionError, match="must be a tuple of Part"):
        ToolResult("a cat", parts=wrong)


async def sent(server: FakeProvider, model: Any) -> Any:
    try:
        await model.answer(ModelRequest(instructions="", transcript=TRANSCRIPT, tools=()))
    finally:
        await model.aclose()
    return server.heard[-1].body


NO_SOUND = "the file 'a.wav' (audio/wav) cannot be sent: "


@pytest.mark.realtime
async def test_messages_have_them_in_the_result() -> None:
    async with open_provider(Say(text="so")) as server:
        body = await sent(server, AnthropicModel("m", key=KEY, base_url=server.url))

    first, second = body["messages"][2]["content"]
    assert [it["type"] for it in first["content"]] == ["text", "image", "document"]
    assert first["content"][1]["source"]["data"] == IMAGE
    text, note = second["content"]
    assert text == {"type": "text", "text": "a song"}
    assert NO_SOUND in note["text"]


@pytest.mark.realtime
async def test_responses_have_them_in_the_output() -> None:
    async with open_provider(Say(text="so")) as server:
        model = ResponsesModel("m", key=KEY, base_url=f"{server.url}/v1")
        body = await sent(server, model)

    first, second = (it for it in body["input"] if it["type"] == "function_call_output")
    kinds = [it["type"] for it in first["output"]]
    assert kinds == ["input_text", "input_image", "input_file"]
    assert first["output"][1]["image_url"] == f"data:image/png;base64,{IMAGE}"
    assert NO_SOUND in second["output"][1]["text"]


@pytest.mark.realtime
async def test_chat_completions_have_them_in_a_message_that_follows() -> None:
    async with open_provider(Say(text="so")) as server:
        model = OpenAIModel("m", key=KEY, base_url=f"{server.url}/v1")
        body = await sent(server, model)

    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user"]
    note, image, file, other, sound = body["messages"][-1]["content"]
    assert "The answer of draw came with the file 'cat.png'" in note["text"]
    assert image["image_url"]["url"] == f"data:image/png;base64,{IMAGE}"
    assert file["type"] == "file"
    assert "came with the file 'a.wav'" in other["text"]
    assert NO_SOUND in sound["text"]


@pytest.mark.realtime
async def test_mistral_has_them_in_the_message_of_the_tool() -> None:
    """It refuses a message of the user there."""
    async with open_provider(Say(text="so")) as server:
        variables = {"MISTRAL_API_KEY": KEY, "MISTRAL_BASE_URL": f"{server.url}/at-mistral/v1"}
        body = await sent(server, model_named("mistral:m", variables))

    assert body["messages"][2]["content"][1]["type"] == "image_url"


def test_parts_count_as_tokens() -> None:
    bare = ToolMessage(FIRST.id, "a cat")
    request = ModelRequest(instructions="", transcript=TRANSCRIPT, tools=())

    assert message_length(TRANSCRIPT[2]) > message_length(bare) + 4_000
    assert max_request_tokens(request) > 2_000


def test_a_result_that_is_cut_leaves_its_files_out() -> None:
    cut = cut_message(TRANSCRIPT[2], 100)

    assert isinstance(cut, ToolMessage)
    assert cut.parts == ()
    assert "the file 'cat.png' (image/png) is left out here" in cut.text


async def test_files_that_a_model_has_read_make_room_in_its_window() -> None:
    asked: list[ModelRequest] = []

    class Spy:
        name = "spy"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            asked.append(request)
            return AssistantMessage("so", model=self.name)

    photo = Part("image/png", data=b"\x89PNG", name="a.png")
    transcript: list[Any] = [UserMessage("go")]
    for number in range(6):
        call = ToolCall("draw", {"at": number}, id=CallId(f"c{number}"))
        transcript += [
            AssistantMessage("", (call,)),
            ToolMessage(call.id, "a photo", parts=(photo,)),
        ]

    model = with_compaction(Spy(), window=8_000, keep_last=2)
    await model.answer(ModelRequest(instructions="", transcript=transcript, tools=()))

    results = [it for it in asked[0].transcript if isinstance(it, ToolMessage)]
    assert results[0].parts == ()
    assert "was left out" in results[0].text
    assert results[-1].parts == (photo,)
