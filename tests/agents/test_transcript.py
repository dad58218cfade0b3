"""A transcript is a value, and each message of it is looked at once."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    Message,
    MessageId,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
)

A, B = (ToolCall("t", id=CallId(name)) for name in "ab")
GO = UserMessage("go")
ASKS = AssistantMessage(calls=(A,))
SAID = AssistantMessage("said")


def lengths(message: Message) -> int:
    return len(message.text)


def test_a_transcript_is_a_sequence_and_equals_its_messages() -> None:
    messages: list[Message] = [GO, ASKS, ToolMessage(A.id, "ok"), SAID]

    transcript = Transcript(messages)

    assert transcript == messages == [*transcript]
    assert transcript == tuple(messages)
    assert transcript != messages[:-1]
    assert transcript != "go"
    assert list(reversed(transcript)) == messages[::-1]
    assert transcript[-1] is SAID
    assert transcript[:2] == messages[:2]
    assert transcript[1:] == messages[1:]
    assert transcript[::-1] == messages[::-1]
    more = (GO,)
    assert transcript + more == [*messages, GO]
    assert SAID in transcript
    assert hash(Transcript([GO])) == hash((GO,))
    assert repr(Transcript([GO])) == f"Transcript([{GO!r}])"
    with pytest.raises(IndexError):
        transcript[4]


def test_a_transcript_does_not_change_with_its_source_list() -> None:
    messages: list[Message] = [GO]
    transcript = Transcript(messages)

    messages.append(SAID)

    assert transcript == [GO]


def test_extending_a_transcript_leaves_the_original_unchanged() -> None:
    first = Transcript().followed_by(GO)
    second = first.followed_by(SAID)
    other = first.followed_by(ASKS)

    assert first == [GO]
    assert second == [GO, SAID]
    assert other == [GO, ASKS]
    assert second.followed_by(GO) == [GO, SAID, GO]


def test_two_that_go_on_alike_share_their_messages() -> None:
    measured: list[Message] = []

    def count(message: Message) -> int:
        measured.append(message)
        return 1

    first = Transcript([GO])
    ours, theirs = first.followed_by(SAID), first.followed_by(SAID)

    assert ours.total(count) == theirs.total(count) == 2
    assert measured == [GO, SAID]


def test_each_message_is_measured_once() -> None:
    measured: list[Message] = []

    def count(message: Message) -> int:
        measured.append(message)
        return len(message.text)

    transcript = Transcript()
    for number in range(100):
        transcript = transcript.followed_by(UserMessage("x" * number))
        assert transcript.total(count) == number * (number + 1) // 2
    assert len(measured) == 100
    assert transcript[:10].total(count) == 45
    assert Transcript().total(count) == 0


def test_a_call_and_a_message_are_found_by_their_ids() -> None:
    transcript = Transcript([GO, ASKS])
    later = transcript.followed_by(AssistantMessage(calls=(B,)))

    assert later.has_call(B.id)
    assert later.has_call(A.id)
    assert not transcript.has_call(B.id)
    assert later.find(GO.id) is GO
    assert later.find(MessageId("m_none")) is None
    assert transcript.find(later[-1].id) is None


def test_a_call_that_a_turn_left_open_is_answered_once() -> None:
    """Each turn goes on from the answers that the turn before has made up."""
    broken = Transcript([GO, AssistantMessage(calls=(A, B)), ToolMessage(A.id, "ok")])
    assert broken.completed() is broken

    whole = broken.followed_by(GO).completed()
    assert [type(it) for it in whole[3:]] == [ToolMessage, UserMessage]
    later = broken.followed_by(whole[-1], SAID).completed()

    assert later[:5] == whole
    assert later[3] is whole[3]
    assert broken.followed_by(GO).completed() == whole
    assert broken.completed() == broken


def reference(messages: Sequence[Message]) -> list[Any]:
    """Return what `completed` must give: each open call is answered before the next input."""
    whole: list[Any] = []
    waiting: dict[CallId, ToolCall] = {}
    for message in messages:
        if isinstance(message, UserMessage):
            whole += waiting
            waiting = {}
        elif isinstance(message, AssistantMessage):
            waiting = {call.id: call for call in message.calls}
        else:
            waiting.pop(message.call, None)
        whole.append(message)
    return whole


MESSAGES = st.lists(
    st.one_of(
        st.builds(UserMessage, st.just("go")),
        st.builds(AssistantMessage, st.just("said")),
        st.builds(AssistantMessage, st.just(""), st.just((A, B))),
        st.builds(ToolMessage, st.sampled_from([A.id, B.id]), st.just("ok")),
    ),
    max_size=12,
)


@given(MESSAGES, st.data())
def test_a_transcript_reads_the_same_through_every_view(
    messages: list[Message], data: st.DataObject
) -> None:
    transcript = Transcript()
    views = [transcript]
    for message in messages:
        transcript = transcript.followed_by(message)
        views.append(transcript)
    for at in data.draw(st.permutations(range(len(views)))):
        view, said = views[at], messages[:at]
        assert view == said
        assert view.total(lengths) == sum(map(lengths, said))
        answered = [
            it.call if it not in said and isinstance(it, ToolMessage) else it
            for it in view.completed()
        ]
        assert answered == reference(said)
        other = UserMessage("other")
        assert view.followed_by(other) == [*said, other]
        assert view == said
