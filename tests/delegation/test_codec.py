"""Facts as versioned JSON, and back."""

import json
from typing import get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    Budget,
    CallId,
    Part,
    ReasoningBlock,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from orchestrator.agents.logprobs import TokenLogprob, TokenOption
from orchestrator.delegation import (
    DeliveryCapability,
    Encoded,
    Ending,
    Ledger,
    Mode,
    Origin,
    Outcome,
    Reason,
    SessionId,
    TaskId,
    TaskRequest,
    UnreadableFactError,
    UnwritableFactError,
    decode,
    encode,
)
from orchestrator.delegation.events import (
    Entry,
    Event,
    JournalOpened,
    MessageReceived,
    MetadataChanged,
    ModelAnswered,
    ModelFailed,
    SessionOpened,
    StateChanged,
    TaskRequested,
    TaskSettled,
    ToolAnswered,
)

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

# JSON has no number for what has no end.
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(Part, st.builds(Part, st.just("image/png"), data=st.binary(min_size=1)))
amounts = st.none() | st.integers(0, 2**53)
st.register_type_strategy(
    Budget,
    st.builds(
        Budget,
        usd=st.none() | st.floats(0, 1e6),
        tokens=amounts,
        calls=amounts,
        seconds=st.none() | st.floats(0, 1e6),
        tasks=amounts,
        depth=amounts,
        name=st.text(max_size=5),
    ),
)
# The same goes for the schema of an answer, and where a message comes from is always a dict.
st.register_type_strategy(
    TaskRequest,
    st.builds(
        TaskRequest,
        output_schema=st.none() | arguments,
        **{
            name: st.from_type(hint)
            for name, hint in get_type_hints(TaskRequest).items()
            if name in TaskRequest.__struct_fields__ and name != "output_schema"
        },
    ),
)
st.register_type_strategy(
    MessageReceived,
    st.builds(
        MessageReceived,
        parts=...,
        id=...,
        context=st.dictionaries(st.text(), st.text(), max_size=2),
        grants=...,
        instructions=...,
        silent=...,
    ),
)
st.register_type_strategy(
    SessionOpened,
    st.builds(
        SessionOpened,
        budget=...,
        grants=...,
        history=...,
        kind=...,
        metadata=st.dictionaries(st.text(), st.text(), max_size=2),
        states=st.dictionaries(st.text(), arguments, max_size=2),
    ),
)
st.register_type_strategy(
    MetadataChanged,
    st.builds(MetadataChanged, metadata=st.dictionaries(st.text(), st.text(), max_size=2)),
)
st.register_type_strategy(StateChanged, st.builds(StateChanged, changes=arguments))
st.register_type_strategy(
    ReasoningBlock, st.builds(ReasoningBlock, st.text(), arguments, st.integers())
)
likelihoods = st.floats(allow_nan=False, allow_infinity=False)
octets = st.none() | st.binary(max_size=4)
options = st.builds(TokenOption, st.text(), likelihoods, octets)
st.register_type_strategy(
    TokenLogprob,
    st.builds(TokenLogprob, st.text(), likelihoods, octets, st.lists(options, max_size=2)),
)
# So is the evidence of a call, and of a task.
evidence = st.just(msgspec.UNSET) | arguments
st.register_type_strategy(
    Outcome,
    st.builds(
        Outcome,
        recorded_evidence=evidence,
        **{
            name: st.from_type(hint)
            for name, hint in get_type_hints(Outcome).items()
            if name in Outcome.__struct_fields__ and name != "recorded_evidence"
        },
    ),
)
# The signature of a struct shows a default factory as if it were the default.
for message in (UserMessage, AssistantMessage, ToolMessage):
    hints = {
        name: evidence if name == "evidence" else st.from_type(hint)
        for name, hint in get_type_hints(message).items()
    }
    st.register_type_strategy(message, st.builds(message, **hints))
settings = st.just(msgspec.UNSET) | arguments
for kind in (ModelAnswered, ModelFailed):
    hints = {
        name: settings if name == "settings" else st.from_type(hint)
        for name, hint in get_type_hints(kind).items()
        if not name.startswith("__")
    }
    st.register_type_strategy(kind, st.builds(kind, **hints))


@pytest.mark.parametrize("kind", get_args(Event))
@given(data=st.data())
def test_a_fact_survives_being_written(kind: type[Event], data: st.DataObject) -> None:
    """The journal is the only truth, so no field may be lost or changed."""
    fact = data.draw(st.from_type(kind))
    written = encode(fact)

    assert (written.kind, written.version) == (kind.__name__, 1)
    assert decode(written) == fact


def test_a_written_fact_is_readable_json() -> None:
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
    [pytest.param("caf\udce9", id="half a character"), pytest.param(object(), id="no data at all")],
)
def test_a_fact_that_json_cannot_carry_is_refused_by_name(argument: object) -> None:
    """It is found before it is believed, and not when the disk is written."""
    answer = AssistantMessage(calls=(ToolCall("look", {"for": argument}),))

    with pytest.raises(UnwritableFactError, match="ModelAnswered holds what JSON"):
        encode(ModelAnswered(TaskId("a"), answer))


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        pytest.param(
            b'{"session":"s","agent":"editor"}',
            SessionOpened(SessionId("s"), "editor"),
            id="a session without a budget",
        ),
        pytest.param(
            b'{"session":"s","text":"go"}',
            MessageReceived(SessionId("s"), "go"),
            id="a message without a name",
        ),
        pytest.param(
            b'{"task":"a","outcome":{"ending":"failed","output":"","error":"no","kind":""}}',
            TaskSettled(TaskId("a"), Outcome(Ending.FAILED, error="no")),
            id="an outcome that no schema was asked for",
        ),
        pytest.param(
            b'{"task":"a","message":{"call":"c","text":"yes","failed":false}}',
            ToolAnswered(TaskId("a"), ToolMessage(CallId("c"), "yes")),
            id="an answer that tells no mail",
        ),
        pytest.param(
            b'{"request":{"id":"a","parent":"s","origin":{"session":"s","turn":1,'
            b'"capability":"push"},"call":"c#0","agent":"researcher","goal":"find it",'
            b'"context":"","label":"","background":null},"mode":"joined",'
            b'"reason":"asked_to_wait"}',
            TaskRequested(
                TaskRequest(
                    id=TaskId("a"),
                    parent=TaskId("s"),
                    origin=Origin(
                        session=SessionId("s"), turn=1, capability=DeliveryCapability.PUSH
                    ),
                    call="c#0",
                    agent="researcher",
                    goal="find it",
                ),
                Mode.JOINED,
                Reason.ASKED_TO_WAIT,
            ),
            id="a task that needs nothing and has no budget",
        ),
    ],
)
def test_a_field_that_a_fact_omits_has_its_default(body: bytes, fact: Event) -> None:
    assert decode(Encoded(type(fact).__name__, 1, body)) == fact


def test_a_message_without_a_name_is_named_by_its_place() -> None:
    """A reader that folds the journal again finds the same name."""
    session = SessionId("s")
    names = set()
    for _ in range(2):
        ledger = Ledger()
        ledger.fold(Entry(1, 1.0, session, SessionOpened(session, "editor")))
        ledger.fold(Entry(2, 2.0, session, MessageReceived(session, "go")))
        letter = ledger.sessions[session].mail[2]
        assert isinstance(letter, UserMessage)
        names.add(letter.id)

    assert names == {"m_2"}


@pytest.mark.parametrize("version", [-1, 0, 2])
def test_an_unknown_version_is_not_guessed_at(version: int) -> None:
    """The same words may mean something else there."""
    sentence = f"'JournalOpened' in version {version}: it was written"
    with pytest.raises(UnreadableFactError, match=sentence):
        decode(replace(encode(FACT), version=version))


def test_an_unknown_kind_is_not_skipped() -> None:
    """All later state would lack that fact."""
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
    with pytest.raises(UnreadableFactError, match="a damaged 'JournalOpened': "):
        decode(Encoded("JournalOpened", 1, body))


@given(body=st.binary())
def test_random_bytes_are_an_unreadable_fact(body: bytes) -> None:
    with pytest.raises(UnreadableFactError):
        decode(Encoded("JournalOpened", 1, body))
