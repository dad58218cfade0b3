"""The numbers of events: the same for all, however the text came, and wherever one comes back."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.products.server.live.agent_stream import FullText, PartialText
from orchestrator.products.server.openai.responses.bodies import (
    CallItem,
    MessageItem,
    OutputItem,
    OutputText,
    ResponseBody,
)
from orchestrator.products.server.openai.responses.stream import FROM_THE_BEGINNING, ResponseEvents
from orchestrator.products.server.session_status import AgentMessage
from tests.growth import grows_at_most

TEXTS = st.lists(st.text(min_size=1, max_size=12), max_size=3)
ARGUMENTS = st.lists(st.just('{"a": 1}'), max_size=2)


def body(texts: Sequence[str], calls: Sequence[str] = ()) -> ResponseBody:
    output: list[OutputItem] = []
    for number, text in enumerate(texts):
        whole = text if number == len(texts) - 1 else f"{text}\n\n"
        output.append(
            MessageItem(id=f"msg_x_{number}", content=[OutputText(whole)], status="completed")
        )
    for number, arguments in enumerate(calls, len(texts)):
        output.append(
            CallItem(
                id=f"fc_x_{number}", call_id="c", name="f", arguments=arguments, status="completed"
            )
        )
    return ResponseBody(
        id="resp_x",
        created_at=0,
        status="completed",
        model="agent",
        output=output,
        background=True,
        store=True,
        run="r_x",
    )


def told(
    response: ResponseBody,
    texts: Sequence[str],
    *,
    after: int = FROM_THE_BEGINNING,
    piece: int | None = None,
) -> list[dict[str, Any]]:
    """Return what a reader is told, in pieces of some length, or of what is kept."""
    telling = ResponseEvents("x", after)
    telling.begin(response)
    for number, text in enumerate(texts):
        if piece is not None:
            for offset in range(0, len(text), piece):
                telling.add(PartialText(number, offset, text[offset : offset + piece]))
        telling.add(FullText(number, AgentMessage("m", text)))
    telling.end(response, response.output)
    return [json.loads(data) for _, data in telling.take()]


def assembled(events: Sequence[dict[str, Any]]) -> dict[int, str]:
    """Return the texts and arguments that a client puts together, by item."""
    texts: dict[int, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            at = event["output_index"]
            texts[at] = texts.get(at, "") + event["delta"]
    return texts


def others(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if not event["type"].endswith(".delta")]


@given(TEXTS, ARGUMENTS, st.integers(1, 5), st.data())
def test_a_client_that_returns_anywhere_gets_the_rest_exactly_once(
    texts: list[str], calls: list[str], piece: int, data: st.DataObject
) -> None:
    response = body(texts, calls)
    live = told(response, texts, piece=piece)
    numbers = [event["sequence_number"] for event in live]
    place = data.draw(st.integers(0, len(live) - 1))
    after, had = numbers[place], live[: place + 1]
    rest = told(response, texts, after=after, piece=data.draw(st.integers(1, 5)))

    assert numbers == sorted(set(numbers))
    assert others(told(response, texts)) == others(live)
    whole = {
        number: "".join(it.text for it in item.content if isinstance(it, OutputText))
        if isinstance(item, MessageItem)
        else getattr(item, "arguments", "")
        for number, item in enumerate(response.output)
    }
    assert assembled(live) == whole
    if place < len(live) - 1:
        assert assembled([*had, *rest]) == whole
        assert others([*had, *rest]) == others(live)
        assert rest[0]["sequence_number"] > after


@given(TEXTS, st.integers(FROM_THE_BEGINNING, 200))
def test_every_stream_has_exactly_one_end(texts: list[str], after: int) -> None:
    ends = [
        event["type"] == "response.completed" for event in told(body(texts), texts, after=after)
    ]

    assert ends.count(True) == 1
    assert ends[-1]


@given(st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9))
def test_sequence_numbers_continue_when_the_text_changes(said: str, kept: str) -> None:
    telling = ResponseEvents("x")
    response = body([kept])
    telling.begin(response)
    telling.add(PartialText(0, 0, said))
    telling.add(FullText(0, AgentMessage("m", kept)))
    telling.end(response, response.output)
    events = [json.loads(data) for _, data in telling.take()]
    numbers = [event["sequence_number"] for event in events]

    assert numbers == sorted(set(numbers))
    (done,) = [it for it in events if it["type"] == "response.output_text.done"]
    assert done["text"] == kept


def test_a_broken_off_item_is_incomplete() -> None:
    telling = ResponseEvents("x")
    response = body([])
    response.status = "cancelled"
    telling.begin(response)
    telling.add(PartialText(0, 0, "so"))
    telling.end(response, response.output)
    events = [json.loads(data) for _, data in telling.take()]

    (item,) = [it["item"] for it in events if it["type"] == "response.output_item.done"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", "so")
    assert events[-1]["type"] == "response.failed"


@pytest.mark.parametrize(
    ("texts", "numbers"), [([], [0, 1, 2]), (["abc"], [0, 1, 2, 3, 6, 7, 8, 9, 10])]
)
def test_the_sequence_numbers_equal_the_recorded_ones(texts: list[str], numbers: list[int]) -> None:
    """Clients may have written them down, too: they must never change."""
    events = told(body(texts), texts)

    assert [event["sequence_number"] for event in events] == numbers


def test_a_long_answer_takes_as_long_as_it_has_pieces() -> None:
    """And not the square of that: here are ten million characters."""
    piece = "x" * 1000

    def tell(pieces: int) -> None:
        telling = ResponseEvents("x")
        for number in range(pieces):
            telling.add(PartialText(0, 1000 * number, piece))
            telling.take()

    assert grows_at_most(30, tell, small=1_000, large=10_000)
