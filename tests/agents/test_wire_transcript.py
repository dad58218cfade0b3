"""Every history becomes a valid request in all three protocols."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    Failure,
    Message,
    ModelError,
    ModelRequest,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
)
from orchestrator.agents.messages import INTERRUPTED, Part
from orchestrator.agents.models.http.strict_schema import ProviderSchema, provider_schema
from orchestrator.agents.models.http.wire_transcript import (
    GO_ON,
    NOTHING,
    AnsweredCall,
    WireAssistantMessage,
    WireUserMessage,
    as_json,
    wire_transcript,
)
from orchestrator.agents.models.providers.anthropic import message_request
from orchestrator.agents.models.providers.openai_chat import completion_request
from orchestrator.agents.models.providers.openai_responses import response_request
from tests.provider_rules import check_chat, check_messages, check_responses, check_strict

Build = Callable[[str, ModelRequest, ProviderSchema | None], dict[str, Any]]
Check = Callable[[dict[str, Any]], None]

PROTOCOLS: list[tuple[Build, Check]] = [
    (completion_request, check_chat),
    (response_request, check_responses),
    (message_request, check_messages),
]

# Few ids, so that they collide, and some that no provider takes.
ids = st.sampled_from(["a", "b", "call_0", "call_1", "", "x" * 50, "ä", "a b", "a.b:0"])
texts = st.sampled_from(["", " ", "\n", "hello", "ä", "\udcff"]) | st.text(max_size=5)
names = st.sampled_from(["look", "", "functions.look", "ä" * 3, "x" * 99]) | texts
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
calls = st.builds(
    lambda name, arguments, call: ToolCall(name, arguments, id=CallId(call)),
    names,
    st.dictionaries(texts, values, max_size=2),
    ids,
)
# Images, texts and documents, some of which one protocol takes and another does not.
media_types = st.sampled_from(
    [
        "image/png",
        "image/tiff",
        "application/pdf",
        "application/msword",
        "application/json",
        "text/plain",
        "text/csv",
        "audio/wav",
    ]
)
contents = st.sampled_from([b" ", b"%PDF", "ä".encode(), b"\xff\xfe", b"a,b\n1,2"])
urls = st.sampled_from(["https://example.org/a", "http://localhost:8000/a"])
parts = st.builds(
    lambda kind, source, name: Part(kind, **source, name=name),
    media_types,
    st.fixed_dictionaries({"data": contents}) | st.fixed_dictionaries({"url": urls}),
    texts | st.just("x" * 600),
)
welcome_parts = st.builds(
    lambda kind, name: Part(kind, data=b"abc", name=name),
    st.sampled_from(["image/png", "application/pdf", "text/csv", "application/json"]),
    texts,
)


def histories(parts: st.SearchStrategy[Part]) -> st.SearchStrategy[list[Message]]:
    user_messages = st.builds(UserMessage, texts, st.lists(parts, max_size=2).map(tuple))
    return st.lists(messages | user_messages, max_size=12)


messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, texts),
    st.builds(AssistantMessage, texts, st.lists(calls, max_size=3).map(tuple)),
    st.builds(ToolMessage, ids.map(CallId), texts, st.booleans()),
)


@tool
def look(at: str = "", often: int = 1) -> str:
    """Look at something."""
    return at * often


def request(
    transcript: list[Message],
    instructions: str = "",
    tools: tuple[Tool, ...] = (),
    output: Mapping[str, Any] | None = None,
) -> ModelRequest:
    return ModelRequest(
        instructions=instructions, transcript=transcript, tools=tools, output=output
    )


@settings(deadline=None)
@given(
    histories(welcome_parts),
    texts,
    st.sampled_from([(), (look,)]),
    st.sampled_from([None, {"type": "integer"}, {"type": "object"}]),
)
def test_every_history_makes_a_valid_request(
    transcript: list[Message],
    instructions: str,
    tools: tuple[Tool, ...],
    output: Mapping[str, Any] | None,
) -> None:
    asked = request(transcript, instructions, tools, output)
    shape = None if output is None else provider_schema(output)
    for build, check in PROTOCOLS:
        if build is message_request and shape is not None and not shape.is_strict:
            shape = None

        body = build("some-model", asked, shape)

        sent = as_json(body)
        check(json.loads(sent))
        assert not any(message.id.encode() in sent for message in transcript)
        assert ("response_format" in body or "text" in body) <= (output is not None)


@settings(deadline=None)
@given(histories(parts))
def test_every_attachment_makes_a_valid_request_or_is_refused(transcript: list[Message]) -> None:
    for build, check in PROTOCOLS:
        match built(build, transcript):
            case ModelError() as error:
                assert error.kind is Failure.BAD_REQUEST
                assert "cannot be sent: " in str(error)
            case body:
                check(json.loads(as_json(body)))


def built(build: Build, transcript: list[Message]) -> dict[str, Any] | ModelError:
    try:
        return build("some-model", request(transcript), None)
    except ModelError as exc:
        return exc


@settings(deadline=None)
@given(histories(parts))
def test_a_well_formed_transcript_is_sent_unchanged(transcript: list[Message]) -> None:
    once = wire_transcript(transcript)
    again: list[Message] = []
    for part in once:
        match part:
            case WireUserMessage(text, attached):
                again.append(UserMessage(text, attached))
            case WireAssistantMessage(text, exchanges):
                again.append(
                    AssistantMessage(
                        text,
                        tuple(
                            ToolCall(each.name, each.arguments, id=CallId(each.id))
                            for each in exchanges
                        ),
                    )
                )
                again += [
                    ToolMessage(CallId(each.id), each.answer, each.failed) for each in exchanges
                ]

    assert wire_transcript(again) == once


LOOK = ToolCall("look", id=CallId("a"))
IMAGE = Part("image/png", data=b"png")
OPEN = AnsweredCall("a", "look", {}, INTERRUPTED, failed=True)


@pytest.mark.parametrize(
    ("transcript", "parts"),
    [
        ([], [WireUserMessage(GO_ON)]),
        ([UserMessage(" ")], [WireUserMessage(GO_ON)]),
        # What has no words may still show something.
        ([UserMessage(" ", (IMAGE,))], [WireUserMessage("", (IMAGE,))]),
        (
            [AssistantMessage("hi")],
            [WireUserMessage(GO_ON), WireAssistantMessage("hi"), WireUserMessage(GO_ON)],
        ),
        ([UserMessage("x"), AssistantMessage("")], [WireUserMessage("x")]),
        # A call without an answer, at the end or before something else.
        (
            [UserMessage("x"), AssistantMessage("", (LOOK,))],
            [WireUserMessage("x"), WireAssistantMessage("", (OPEN,))],
        ),
        (
            [UserMessage("x"), AssistantMessage("", (LOOK,)), UserMessage("y")],
            [WireUserMessage("x"), WireAssistantMessage("", (OPEN,)), WireUserMessage("y")],
        ),
        # An answer that comes late is moved to its call.
        (
            [
                UserMessage("x"),
                AssistantMessage("", (LOOK,)),
                UserMessage("y"),
                ToolMessage(LOOK.id, "late"),
            ],
            [
                WireUserMessage("x"),
                WireAssistantMessage("", (AnsweredCall("a", "look", {}, "late", failed=False),)),
                WireUserMessage("y"),
            ],
        ),
        # The first answer counts, and an answer to nothing says nothing.
        (
            [
                UserMessage("x"),
                ToolMessage(LOOK.id, "early"),
                AssistantMessage("", (LOOK,)),
                ToolMessage(LOOK.id, ""),
                ToolMessage(LOOK.id, "second"),
            ],
            [
                WireUserMessage("x"),
                WireAssistantMessage("", (AnsweredCall("a", "look", {}, NOTHING, failed=False),)),
            ],
        ),
    ],
)
def test_a_transcript_that_a_provider_would_refuse_is_repaired(
    transcript: list[Message], parts: list[WireUserMessage | WireAssistantMessage]
) -> None:
    assert wire_transcript(transcript) == parts


def test_a_repeated_call_id_is_answered_by_its_next_result() -> None:
    """Some servers count their calls anew in every answer."""
    first, second = wire_transcript(
        [
            UserMessage("x"),
            AssistantMessage("", (LOOK,)),
            ToolMessage(LOOK.id, "one"),
            AssistantMessage("", (LOOK,)),
            ToolMessage(LOOK.id, "two"),
        ]
    )[1:]

    assert isinstance(first, WireAssistantMessage)
    assert isinstance(second, WireAssistantMessage)
    assert [first.calls[0].answer, second.calls[0].answer] == ["one", "two"]
    assert first.calls[0].id != second.calls[0].id


@attrs.frozen
class Leaf:
    name: str
    size: Annotated[int, msgspec.Meta(ge=0, description="in bytes")] = 0
    kind: Literal["a", "b"] = "a"


@attrs.frozen
class Folder:
    leaves: list[Leaf]
    inner: "list[Folder]" = attrs.field(factory=list["Folder"])
    note: str | None = None


def test_a_strict_schema_requires_every_field_and_describes_the_bounds() -> None:
    """Every field is required, no other is allowed, and bounds are in the description."""
    shape = provider_schema(msgspec.json.schema(Folder))

    assert shape.is_strict
    assert not shape.is_wrapped
    check_strict(shape.schema)
    assert shape.schema["required"] == ["leaves", "inner", "note"]
    size = shape.schema["$defs"]["Leaf"]["properties"]["size"]
    assert size == {"type": "integer", "description": 'in bytes {"minimum":0}'}


@pytest.mark.parametrize("type_", [int, list[Leaf], Folder | None, Literal["a", "b"]])
def test_a_schema_other_than_an_object_is_wrapped_in_one(type_: Any) -> None:
    shape = provider_schema(msgspec.json.schema(type_))

    assert shape.is_strict
    assert shape.is_wrapped
    check_strict(shape.schema)


@pytest.mark.parametrize("type_", [dict[str, int], Any, dict[str, Any], list[Any], tuple[int, str]])
def test_a_schema_that_cannot_be_strict_is_sent_unchanged(type_: Any) -> None:
    shape = provider_schema(msgspec.json.schema(type_))

    assert not shape.is_strict
    assert shape.schema["type"] == "object"


def test_a_constant_is_strict_and_an_unknown_keyword_is_not() -> None:
    assert provider_schema({"const": 7}).is_strict
    assert not provider_schema({"type": "integer", "not": {"const": 7}}).is_strict
    assert not provider_schema({"$ref": "#/$defs/Nothing"}).schema.get("$defs")
