"""Facts as versioned JSON, and back."""

import json
from typing import get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import AssistantMessage, CallId, Part, ToolCall
from delegation import (
    Encoded,
    TaskId,
    UnreadableFactError,
    UnwritableFactError,
    decode,
    encode,
)
from delegation.events import Event, JournalOpened, ModelAnswered

FACT = JournalOpened("1.0")

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
arguments = st.dictionaries(st.text(), json_values, max_size=3)
# Arguments are whatever JSON can say, which no type hint tells.
st.register_type_strategy(
    ToolCall, st.builds(ToolCall, st.text(), arguments, id=st.text().map(CallId))
)

st.register_type_strategy(
    Part, st.builds(Part, st.just("image/png"), data=st.binary(min_size=1))
)


@pytest.mark.parametrize("kind", get_args(Event))
@given(data=st.data())
def test_a_fact_survives_being_written(kind: type[Event], data: st.DataObject) -> None:
    """The journal is the only truth, so nothing of it may be lost or changed on the way."""
    fact = data.draw(st.from_type(kind))
    written = encode(fact)

    assert (written.kind, written.version) == (kind.__name__, 1)
    assert decode(written) == fact


def test_what_is_written_is_json_that_people_can_read() -> None:
    """Any tool reads a journal, and so does whoever comes after us."""
    call = ToolCall("look", {"for": "keys"}, id=CallId("call_1"))
    written = encode(ModelAnswered(TaskId("a"), AssistantMessage("hm", (call,))))
    body = json.loads(written.body)

    assert body["task"] == "a"
    assert body["message"]["text"] == "hm"
    assert body["message"]["calls"] == [
        {"name": "look", "arguments": {"for": "keys"}, "id": "call_1"}
    ]


@pytest.mark.parametrize(
    "argument",
    [
        pytest.param("caf\udce9", id="half a character"),
        pytest.param(object(), id="no data at all"),
    ],
)
def test_what_json_cannot_carry_is_refused_by_its_name(argument: object) -> None:
    """It is found before it is believed, and not when the disk is written."""
    answer = AssistantMessage(calls=(ToolCall("look", {"for": argument}),))

    with pytest.raises(UnwritableFactError, match="ModelAnswered holds what JSON"):
        encode(ModelAnswered(TaskId("a"), answer))


def test_a_newer_version_is_not_guessed_at() -> None:
    """The same words may mean something else by then."""
    with pytest.raises(UnreadableFactError, match="'JournalOpened' in version 2"):
        decode(attrs.evolve(encode(FACT), version=2))


def test_an_unknown_kind_is_not_skipped() -> None:
    """What it says would be missing from everything after it."""
    with pytest.raises(UnreadableFactError, match="written by a newer orchestrator"):
        decode(Encoded("MoonRisen", 1, b"{}"))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"version":"1', id="cut off"),
        pytest.param(b"[1]", id="of another shape"),
        pytest.param(b"{}", id="incomplete"),
        pytest.param(b'{"version":1}', id="of another type"),
        pytest.param(b"\xff\xfe", id="not JSON"),
        pytest.param(b'{"version":"\xff"}', id="not UTF-8"),
    ],
)
def test_a_damaged_fact_is_refused_by_its_name(body: bytes) -> None:
    """Whoever reads the message has a file to mend."""
    with pytest.raises(UnreadableFactError, match="a damaged 'JournalOpened': "):
        decode(Encoded("JournalOpened", 1, body))


@given(body=st.binary())
def test_no_noise_is_a_fact(body: bytes) -> None:
    """Every way to be damaged is the same error to whoever opens a journal."""
    with pytest.raises(UnreadableFactError):
        decode(Encoded("JournalOpened", 1, body))
