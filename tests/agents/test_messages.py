"""Usage adds up, and a transcript knows which of its calls are open."""

import attrs
import pytest

from agents import (
    AssistantMessage,
    CallId,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
    unanswered_calls,
)

USER = UserMessage("go")
A, B, C = (ToolCall("look", id=CallId(name)) for name in "abc")


def answer_to(call: ToolCall, *, failed: bool = False) -> ToolMessage:
    return ToolMessage(call.id, "seen", failed)


def test_usage_adds_up_field_by_field() -> None:
    numbers = range(1, len(attrs.fields(Usage)) + 1)
    ones, tens = Usage(*numbers), Usage(*(10 * n for n in numbers))

    assert sum([ones, tens], Usage()) == Usage(*(11 * n for n in numbers))


def test_tokens_are_those_read_and_those_written() -> None:
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
    transcript: Transcript, open_calls: list[ToolCall]
) -> None:
    assert unanswered_calls(transcript) == open_calls


def test_only_the_last_answer_has_open_calls() -> None:
    """Every call is answered before the model is asked again."""
    transcript: Transcript = [
        USER,
        AssistantMessage(calls=(A,)),
        answer_to(A),
        AssistantMessage(calls=(B, C)),
        answer_to(C),
    ]

    assert unanswered_calls(transcript) == [B]


def test_what_was_said_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        USER.text = "stop"  # type: ignore[misc]
