"""Our fake provider speaks the real protocols: the official clients understand every word.

All that we test our own client against is only worth something if this holds.
"""

from typing import Any

import anthropic
import openai
import pytest

from orchestrator.agents import CallId, ToolCall
from tests.fake_provider import FakeProvider, Raw, Say, open_provider

pytestmark = [
    pytest.mark.realtime,
    # The clients leave their streams to the garbage collector, which is theirs to mend.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KEY = "sk-0123456789abcdefghij"
SAID = [{"type": "message", "role": "user", "content": "hi"}]
FUNCTION = {"name": "lookup", "parameters": {"type": "object", "properties": {}}}
LOOK = ToolCall("lookup", {"word": "trio"}, id=CallId("call_1"))


def openai_client(server: FakeProvider) -> Any:
    url = f"{server.url}/v1"
    return openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0)


def anthropic_client(server: FakeProvider) -> Any:
    return anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0)


async def test_the_official_openai_client_reads_chat_completions() -> None:
    async with open_provider() as server:
        server.replies = [
            Say(text="hello there", read=7, wrote=2, is_plain=True),
            Say(text="hello there", read=7, wrote=2),
            Say(calls=(LOOK,)),
        ]
        async with openai_client(server) as client:
            ask = client.chat.completions.create
            conversation = [{"role": "user", "content": "hi"}]
            plain = await ask(model="m", messages=conversation)
            streamed = await ask(
                model="m",
                messages=conversation,
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = [chunk async for chunk in streamed]
            called = await ask(
                model="m",
                messages=conversation,
                stream=True,
                tools=[{"type": "function", "function": FUNCTION}],
            )
            calls = [
                call
                async for chunk in called
                for choice in chunk.choices
                for call in choice.delta.tool_calls or ()
            ]

    assert plain.choices[0].message.content == "hello there"
    assert plain.usage.total_tokens == 9
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(piece or "" for piece in pieces) == "hello there"
    assert chunks[-1].usage.prompt_tokens == 7
    assert calls[0].function.name == "lookup"
    assert "".join(call.function.arguments or "" for call in calls) == '{"word": "trio"}'


async def test_the_official_openai_client_reads_responses() -> None:
    async with open_provider() as server:
        server.replies = [
            Say(text="hello there", read=7, wrote=2, is_plain=True),
            Say(text="hello there", read=7, wrote=2),
        ]
        async with openai_client(server) as client:
            plain = await client.responses.create(model="m", input=SAID)
            streamed = await client.responses.create(model="m", input=SAID, stream=True)
            events = [event async for event in streamed]

    assert plain.output_text == "hello there"
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert "".join(deltas) == "hello there"
    assert events[-1].type == "response.completed"


async def test_the_official_anthropic_client_reads_messages() -> None:
    async with open_provider() as server:
        server.replies = [
            Say(text="hello there", read=7, wrote=2, is_plain=True),
            Say(text="let me look", calls=(LOOK,), read=7, wrote=2),
        ]
        async with anthropic_client(server) as client:
            conversation = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
            plain = await client.messages.create(model="m", max_tokens=100, messages=conversation)
            async with client.messages.stream(
                model="m",
                max_tokens=100,
                messages=conversation,
                tools=[{"name": "lookup", "input_schema": FUNCTION["parameters"]}],
            ) as stream:
                final = await stream.get_final_message()

    assert plain.content[0].text == "hello there"
    assert [block.type for block in final.content] == ["text", "tool_use"]
    assert final.content[1].input == {"word": "trio"}
    assert final.usage.output_tokens == 2


async def test_the_official_clients_read_its_errors() -> None:
    limited = Raw(
        b'{"error": {"message": "slow down", "type": "x", "code": "rate_limit_exceeded"}}',
        429,
        {"retry-after": "7", "content-type": "application/json"},
    )
    async with open_provider(limited) as server:
        async with openai_client(server) as client:
            with pytest.raises(openai.RateLimitError, match="slow down") as caught:
                await client.responses.create(model="m", input=SAID)

    assert caught.value.response.headers["retry-after"] == "7"
