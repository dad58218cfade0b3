"""The upper bound of what a model call may use, known before it is made."""

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from msgspec.structs import asdict, replace

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    Message,
    Model,
    ModelError,
    ModelRequest,
    Part,
    Price,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    tool,
)
from orchestrator.agents.models.providers.anthropic import AnthropicModel
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.agents.models.providers.openai_responses import ResponsesModel
from orchestrator.agents.models.token_estimate import TOKENS_PER_IMAGE
from orchestrator.agents.models.usage_bound import TOKENS_PER_MESSAGE, quote
from orchestrator.agents.models.wrappers.cassette import RecordingModel, ReplayModel
from orchestrator.agents.models.wrappers.compaction import with_compaction
from orchestrator.agents.models.wrappers.fallback import with_fallback
from orchestrator.agents.models.wrappers.prices import PriceTable, with_prices
from orchestrator.agents.models.wrappers.rate_limit import Limiter, with_rate_limit
from orchestrator.agents.models.wrappers.retry import with_retries

PRICE = Price(input=3, output=15, cached=0.3)
TABLE = PriceTable(
    as_of=dt.date(2026, 1, 1),
    source="a test",
    models={"parrot": PRICE, "openai:a": Price(input=1, output=8)},
)
LOOK = ToolCall("look", {"at": "the sea"}, id=CallId("1"))
EMPTY = ModelRequest(instructions="", transcript=(), tools=())


@tool
def look(at: str) -> str:
    """Look at something."""
    return at


class Parrot:
    """Repeats its input; it has neither a price nor a count of tokens."""

    name = "parrot"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        text = request.transcript[-1].text
        return AssistantMessage(text, usage=Usage(calls=1, unpriced=1))


class Reader(Parrot):
    """Knows what it reads, and what it costs."""

    def __init__(self, price: Price | None = PRICE, *, reads: int = 1_234) -> None:
        self.price = price
        self._reads = reads

    def count_tokens(self, _: ModelRequest) -> int:
        return self._reads


WRAPPED: list[Callable[[Model], Model]] = [
    with_retries,
    lambda model: with_rate_limit(model, Limiter()),
    lambda model: with_compaction(model, window=100_000),
    with_fallback,
    lambda model: with_prices(model, attrs.evolve(TABLE, models={})),
]


def asked(*transcript: Any, **more: Any) -> ModelRequest:
    return replace(EMPTY, transcript=transcript, **more)


def test_a_quote_is_one_call_at_the_full_price() -> None:
    assert quote(Reader(), EMPTY, answer_tokens=100) == Usage(
        calls=1, input_tokens=1_234, output_tokens=100, micro_usd=1_234 * 3 + 100 * 15
    )


@pytest.mark.parametrize("model", [Parrot(), Reader(None)])
def test_an_unknown_price_is_not_guessed(model: Model) -> None:
    quoted = quote(model, EMPTY, answer_tokens=100)

    assert (quoted.micro_usd, quoted.unpriced) == (0, 1)


def test_a_free_model_is_quoted_as_free() -> None:
    quoted = quote(ScriptedModel([]), EMPTY, answer_tokens=100)

    assert (quoted.micro_usd, quoted.unpriced) == (0, 0)


def test_a_model_without_a_count_reads_a_token_per_three_bytes() -> None:
    frame = TOKENS_PER_MESSAGE
    said = AssistantMessage("x" * 300, (ToolCall("look", {"at": "x" * 300}),))
    requests = [
        EMPTY,
        replace(EMPTY, instructions="x" * 300),
        asked(UserMessage("x" * 300)),
        asked(UserMessage("海" * 100)),
        asked(ToolMessage(CallId("1"), "x" * 300), UserMessage("")),
        asked(said),
        replace(EMPTY, tools=(look,)),
        replace(EMPTY, output={"x": "y" * 300}),
    ]

    read = [quote(Parrot(), one, answer_tokens=0).input_tokens for one in requests]

    assert read[:5] == [0, 100, 100 + frame, 100 + frame, 100 + 2 * frame]
    assert read[5] > 200 + frame
    assert read[6] > len("look" + "Look at something.") // 3 + frame
    assert read[7] > 100


def test_half_a_character_is_counted_too() -> None:
    quoted = quote(Parrot(), asked(UserMessage("\ud83c")), answer_tokens=0)

    assert quoted.input_tokens == 1 + TOKENS_PER_MESSAGE


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (Part("image/png", data=b"x"), TOKENS_PER_IMAGE),
        (Part("text/csv", data=b"x" * 30_000), 10_000),
        (Part("application/pdf", data=b"x" * 1_000_000), 50_000),
        (Part("application/pdf", url="https://example.org/a.pdf"), TOKENS_PER_IMAGE),
    ],
)
def test_the_parts_of_a_message_count_in_the_quote(part: Part, tokens: int) -> None:
    without = quote(Parrot(), asked(UserMessage("")), answer_tokens=0)
    quoted = quote(Parrot(), asked(UserMessage("", (part,))), answer_tokens=0)

    assert quoted.input_tokens - without.input_tokens >= tokens


TRANSCRIPTS: dict[str, Sequence[Message]] = {
    "empty": (),
    "short": (UserMessage("a"),),
    "of many words": [UserMessage("b"), AssistantMessage("c"), UserMessage("d")] * 30,
    "with calls": (
        UserMessage("go"),
        AssistantMessage("one moment", (LOOK, replace(LOOK, id=CallId("2")))),
        ToolMessage(CallId("1"), "it is blue"),
        ToolMessage(CallId("2"), "it is deep", failed=True),
    ),
    "of other scripts": (
        UserMessage("🌊 Что такое море? 海とは何ですか"),
        AssistantMessage("", (ToolCall("look", {"at": "𝄞海\u0000\n"}, id=LOOK.id),)),
        ToolMessage(LOOK.id, "ä" * 99),
    ),
    "with a file": (UserMessage("", (Part("image/png", data=b"x"),)),),
}


@pytest.mark.parametrize("transcript", TRANSCRIPTS.values(), ids=TRANSCRIPTS)
@pytest.mark.parametrize(
    "step", ["", "42", "море " * 70, LOOK, [LOOK, LOOK]], ids=lambda s: str(s)[:9]
)
@pytest.mark.parametrize("wrap", [lambda model: model, *WRAPPED])
async def test_no_answer_costs_more_than_its_quote(
    transcript: Sequence[Message], step: Any, wrap: Callable[[Model], Model]
) -> None:
    """Whether it is whole, or cut off where the quote ends."""
    model = wrap(ScriptedModel.always(step, price=PRICE))
    for most in (0, 1, 10, 10_000):
        request = replace(
            asked(*transcript, tools=(look,)), instructions="Be brief.", max_output=most
        )

        quoted = quote(model, request, answer_tokens=most)
        try:
            used = (await model.answer(request)).usage
        except ModelError as exc:
            used = exc.usage or Usage()

        for amount, value in asdict(used).items():
            if amount != "saved_micro_usd":
                assert value <= getattr(quoted, amount), amount
        assert used.input_tokens == quoted.input_tokens


@pytest.mark.parametrize(
    "wrap", [*WRAPPED, lambda model: RecordingModel(model, Path("never.jsonl"))]
)
def test_a_wrapped_model_quotes_like_its_inner_model(wrap: Callable[[Model], Model]) -> None:
    request = asked(UserMessage("x" * 3_000))
    for model in (Reader(), Reader(None), Parrot(), ScriptedModel([], price=PRICE)):
        quoted = quote(model, request, answer_tokens=100)

        assert quote(wrap(model), request, answer_tokens=100) == quoted


def test_a_table_knows_the_price_of_a_model_that_does_not() -> None:
    quoted = quote(with_prices(Parrot(), TABLE), EMPTY, answer_tokens=100)

    assert (quoted.micro_usd, quoted.unpriced) == (1_500, 0)


def test_a_price_table_wins_over_the_price_of_a_model() -> None:
    """As for its answers."""
    quoted = quote(with_prices(Reader(Price()), TABLE), EMPTY, answer_tokens=100)

    assert quoted.micro_usd == 1_234 * 3 + 100 * 15


def test_a_model_missing_in_the_table_keeps_its_own_price() -> None:
    table = attrs.evolve(TABLE, models={})

    assert quote(with_prices(Reader(), table), EMPTY, answer_tokens=1).unpriced == 0
    assert quote(with_prices(Parrot(), table), EMPTY, answer_tokens=1).unpriced == 1


def test_the_quote_of_several_models_takes_the_dearest_of_each_part() -> None:
    model = with_fallback(
        Reader(Price(input=3, output=1), reads=5), Reader(Price(input=1, output=8))
    )

    assert quote(model, EMPTY, answer_tokens=100) == Usage(
        calls=1, input_tokens=1_234, output_tokens=100, micro_usd=1_234 * 3 + 100 * 8
    )


def test_a_fallback_with_an_unpriced_model_is_unpriced() -> None:
    model = with_fallback(Reader(), Parrot())

    assert quote(model, EMPTY, answer_tokens=100).unpriced == 1


def test_a_model_without_a_count_may_dominate_the_quote() -> None:
    long = asked(UserMessage("x" * 30_000))

    quoted = quote(with_fallback(Reader(), Parrot()), long, answer_tokens=0)

    assert quoted == quote(Parrot(), long, answer_tokens=0)


@pytest.mark.parametrize("model", [Parrot(), ScriptedModel([])])
def test_a_compacting_model_quotes_at_most_its_window(model: Model) -> None:
    long = asked(UserMessage("x" * 300_000))

    quoted = quote(with_compaction(model, window=2_000), long, answer_tokens=0)

    assert quoted.input_tokens == 2_000


def test_a_replayed_model_is_unpriced(tmp_path: Path) -> None:
    quoted = quote(ReplayModel(tmp_path / "one"), EMPTY, answer_tokens=0)

    assert quoted == Usage(calls=1, unpriced=1)


@pytest.mark.parametrize("make", [OpenAIModel, ResponsesModel, AnthropicModel])
def test_a_provider_s_model_has_the_price_of_the_table(make: Callable[..., Model]) -> None:
    bare = make("a", key="", base_url="http://localhost:1")
    table = TABLE.with_prices({"anthropic:a": Price(input=1, output=8)})

    assert quote(bare, EMPTY, answer_tokens=100).unpriced == 1
    assert quote(with_prices(with_retries(bare), table), EMPTY, answer_tokens=100).micro_usd == 800
