"""Usage adds up, messages keep their ids, and a transcript knows which calls are open."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    Message,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    unanswered_calls,
)
from orchestrator.agents.messages import MessageId, Part, new_message_id
from orchestrator.agents.models.wrappers.cassette import RecordingModel, ReplayModel
from orchestrator.delegation import TaskId, decode, encode
from orchestrator.delegation.events import ModelAnswered, ToolAnswered

USER = UserMessage("go")
A, B, C = (ToolCall("look", id=CallId(name)) for name in "abc")


def answer_to(call: ToolCall, *, failed: bool = False) -> ToolMessage:
    return ToolMessage(call.id, "seen", failed)


def test_usage_adds_up_field_by_field() -> None:
    numbers = range(1, len(Usage.__struct_fields__) + 1)
    ones, tens = Usage(*numbers), Usage(*(10 * n for n in numbers))

    assert sum([ones, tens], Usage()) == Usage(*(11 * n for n in numbers))


def test_tokens_are_the_sum_of_input_and_output() -> None:
    assert Usage(input_tokens=3, output_tokens=4).tokens == 7


@pytest.mark.parametrize(
    ("transcript", "open_calls"),
    [
        ([], []),
        ([USER], []),
        ([USER, AssistantMessage("done")], []),
        ([USER, AssistantMessage(calls=(A, B))], [A, B]),
        ([USER, AssistantMessage(calls=(A, B)), answer_to(B)], [A]),
        ([USER, AssistantMessage(calls=(A, B)), answer_to(B), answer_to(A)], []),
        ([USER, AssistantMessage(calls=(A,)), answer_to(A, failed=True)], []),
        ([AssistantMessage(calls=(A,))], [A]),
        ([answer_to(A)], []),
    ],
)
def test_a_call_is_open_until_a_tool_answers_it(
    transcript: Sequence[Message], open_calls: list[ToolCall]
) -> None:
    assert unanswered_calls(transcript) == open_calls


def test_only_the_last_answer_has_open_calls() -> None:
    """Every call is answered before the model is asked again."""
    transcript: Sequence[Message] = [
        USER,
        AssistantMessage(calls=(A,)),
        answer_to(A),
        AssistantMessage(calls=(B, C)),
        answer_to(C),
    ]

    assert unanswered_calls(transcript) == [B]


def test_a_message_is_immutable() -> None:
    with pytest.raises(AttributeError):
        USER.text = "stop"  # type: ignore[misc]


MESSAGES: list[Message] = [
    UserMessage("go", (Part("image/png", data=b"png"),)),
    AssistantMessage("so", (A,), Usage(calls=1), "openai:m"),
    answer_to(A),
]


def test_every_message_has_an_id_from_its_birth() -> None:
    ids = {UserMessage("go").id for _ in range(1000)}

    assert len(ids) == 1000
    assert all(id_.startswith("m_") and len(id_) == 12 for id_ in ids)


@pytest.mark.parametrize("message", MESSAGES)
def test_two_messages_with_the_same_content_are_equal(message: Message) -> None:
    other = replace(message, id=MessageId("m_other"))

    assert other == message
    assert other.id != message.id
    assert repr(other) == repr(message)


def test_equal_messages_are_one_in_a_set() -> None:
    assert len({UserMessage("go"), UserMessage("go")}) == 1


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_that_is_changed_stays_the_same_message(message: Message) -> None:
    assert replace(message, text="else").id == message.id


def test_the_fields_of_a_message_are_matched_in_their_order() -> None:
    """The id is not among them, so that patterns of before still fit."""
    assert UserMessage.__match_args__ == ("text", "parts")
    assert AssistantMessage.__match_args__ == ("text", "calls", "usage", "model")
    assert ToolMessage.__match_args__ == ("call", "text", "failed")


@pytest.mark.parametrize(
    "fact",
    [
        ModelAnswered(TaskId("a"), AssistantMessage("so", (A,))),
        ToolAnswered(TaskId("a"), answer_to(A)),
    ],
)
def test_a_journal_keeps_the_id_of_a_message(fact: ModelAnswered | ToolAnswered) -> None:
    read = decode(encode(fact))

    assert read == fact
    assert isinstance(read, ModelAnswered | ToolAnswered)
    assert read.message.id == fact.message.id


@pytest.mark.parametrize(
    "fact",
    [
        ModelAnswered(TaskId("a"), AssistantMessage("so", (A,))),
        ToolAnswered(TaskId("a"), answer_to(A)),
    ],
)
def test_a_journal_from_before_there_were_ids_can_be_read(
    fact: ModelAnswered | ToolAnswered,
) -> None:
    written = encode(fact)
    body = json.loads(written.body)
    del body["message"]["id"]

    read = decode(replace(written, body=json.dumps(body).encode()))

    assert read == fact
    assert isinstance(read, ModelAnswered | ToolAnswered)
    assert read.message.id.startswith("m_")


@pytest.mark.realtime
async def test_a_cassette_matches_messages_by_content_and_not_by_id(tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    asked = ModelRequest(instructions="", transcript=MESSAGES, tools=())
    first = await RecordingModel(ScriptedModel(["42"]), file).answer(asked)
    others: list[Message] = [
        replace(message, id=MessageId(f"m_{number}")) for number, message in enumerate(MESSAGES)
    ]

    again = await ReplayModel(file).answer(replace(asked, transcript=others))

    assert again == first
    # It is said once more, so it is another message.
    assert again.id != first.id
    assert "m_" not in await trio.Path(file).read_text()


def test_a_forked_process_draws_other_ids() -> None:
    receive, send = os.pipe()
    if not (child := os.fork()):
        os.write(send, new_message_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    drawn = os.read(receive, 100).decode()
    os.close(receive)
    os.close(send)

    assert drawn.startswith("m_")
    assert drawn not in {new_message_id() for _ in range(3)}
