"""`/v1/responses` accepts valid bodies, and refuses others by name."""

import base64

import pytest
from openai.types.responses import FunctionToolParam

from orchestrator.agents import Agent, Part, UserMessage
from tests.kit import worker
from tests.server.kit import serving
from tests.server.streaming_kit import speaker

pytestmark = pytest.mark.realtime

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "strict": False,
    "parameters": {"type": "object"},
}


async def test_pictures_and_files_reach_the_model() -> None:
    model = speaker("a dot")
    dot = base64.b64encode(b"dot").decode()
    async with serving(Agent("agent", model=model)) as served:
        response = await served.openai.responses.create(
            model="agent",
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "what is"},
                        {"type": "input_text", "text": "this?"},
                        {
                            "type": "input_image",
                            "detail": "auto",
                            "image_url": f"data:image/png;base64,{dot}",
                        },
                        {
                            "type": "input_image",
                            "detail": "auto",
                            "image_url": "https://example.com/a.png",
                        },
                        {"type": "input_file", "filename": "a.csv", "file_data": dot},
                    ],
                }
            ],
        )
        items = await served.openai.responses.input_items.list(response.id)

    (told,) = model.requests[0].transcript
    assert told == UserMessage(
        "what is\nthis?",
        (
            Part("image/png", data=b"dot"),
            Part("image/png", url="https://example.com/a.png"),
            Part("text/csv", data=b"dot", name="a.csv"),
        ),
    )
    assert [part.type for part in items.data[0].content] == [  # type: ignore[union-attr]
        "input_text",
        "input_image",
        "input_image",
        "input_file",
    ]


async def test_the_input_items_of_a_response_are_listed_in_pages() -> None:
    model = speaker("one", "two")
    async with serving(Agent("agent", model=model)) as served:
        first = await served.openai.responses.create(
            model="agent",
            input=[{"role": "system", "content": "be kind"}, {"role": "user", "content": "1?"}],
        )
        second = await served.openai.responses.create(
            model="agent", input="2?", previous_response_id=first.id
        )
        items = served.openai.responses.input_items
        asc = [it async for it in items.list(second.id, order="asc", limit=1)]
        desc = [it async for it in items.list(second.id)]

    texts = [(it.role, it.content[0].text) for it in asc]  # type: ignore[union-attr,index]
    assert texts == [("developer", "be kind"), ("user", "1?"), ("assistant", "one"), ("user", "2?")]
    assert desc == asc[::-1]


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


def image(url: str | None) -> list[object]:
    return [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]


WRONG: list[tuple[dict[str, object], str]] = [
    ({"input": 3}, "input"),
    ({"input": []}, "input"),
    ({"input": ""}, "input"),
    ({"input": [{"role": "user", "content": []}]}, "input[0]"),
    ({"input": [{"role": "robot", "content": "?"}]}, "input[0].role"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].id"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        "input[0].content[0].type",
    ),
    ({"input": image(None)}, "input[0].content[0].image_url"),
    ({"input": image("data:image/png;base64,?")}, "input[0].content[0].image_url"),
    ({"input": [{**CALL, "arguments": "["}]}, "input[0].arguments"),
    ({"input": [{**CALL, "arguments": '{"a":' * 5000}]}, "input[0].arguments"),
    ({"input": [{**CALL, "arguments": '{"a": NaN}'}]}, "input[0].arguments"),
    ({"input": [CALL, CALL]}, "input[1].call_id"),
    ({"input": [{**CALL, "call_id": ""}]}, "input[0].call_id"),
    ({"input": [CALL, {"role": "user", "content": "?"}]}, "input"),
    ({"input": image("data:text/html;base64,AAAA")}, "input[0].content[0].image_url"),
    ({"input": image("javascript:alert()")}, "input[0].content[0].image_url"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ({"model": "nobody"}, "model"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
    ({"reasoning": {"effort": "heroic"}}, "reasoning.effort"),
    ({"temperature": 3}, "temperature"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.name"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"metadata": {"key": "x" * 513}}, "metadata[...]"),
]


async def test_an_invalid_body_is_refused_with_its_parameter() -> None:
    named: list[str] = []
    async with serving(worker()) as served:
        for body, _ in WRONG:
            answer = await served.http.post(
                "/v1/responses", json={"model": "worker", "input": "?", **body}
            )
            assert answer.status_code in {400, 404}
            named.append(answer.json()["error"]["param"])

        assert named == [param for _, param in WRONG]
        assert not served.orchestrator.runs
