"""A call costs what the table says, to the micro-dollar, or is marked as unpriced."""

import datetime as dt
import sys
from collections.abc import Sequence
from fractions import Fraction
from importlib.metadata import version
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    Failure,
    ModelError,
    ModelRequest,
    ModelSettings,
    Price,
    ScriptedModel,
    Usage,
)
from orchestrator.agents.models.model import known_price
from orchestrator.agents.models.usage_bound import quote
from orchestrator.agents.models.wrappers import genai_prices_data
from orchestrator.agents.models.wrappers.fallback import with_fallback
from orchestrator.agents.models.wrappers.prices import PriceTable, with_prices

REQUEST = ModelRequest(instructions="", transcript=(), tools=())
TABLE = PriceTable(
    as_of=dt.date(2026, 1, 1),
    source="a test",
    models={"openai:a": Price(input=3, output=10, cached=0.5)},
)


class Provider:
    """Answers with the usage it is given, without a price."""

    def __init__(self, name: str, usage: Usage, *, signs: bool = True) -> None:
        self.name = name
        self._usage = usage
        self._signs = signs

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        assert request is REQUEST
        name = self.name if self._signs else ""
        return AssistantMessage("42", usage=self._usage, model=name)


USED = Usage(calls=1, input_tokens=100, output_tokens=10, unpriced=1, cached_tokens=40)


async def test_a_known_model_is_priced_by_the_table() -> None:
    model = with_prices(Provider("openai:a", USED), TABLE)

    answer = await model.answer(REQUEST)

    assert model.name == "openai:a"
    assert answer.usage == Usage(
        calls=1,
        input_tokens=100,
        output_tokens=10,
        micro_usd=60 * 3 + 40 // 2 + 10 * 10,
        unpriced=0,
        cached_tokens=40,
        saved_micro_usd=40 * 3 - 40 // 2,
    )


async def test_an_answer_without_a_name_is_priced_by_the_models() -> None:
    model = with_prices(Provider("openai:a", USED, signs=False), TABLE)

    assert (await model.answer(REQUEST)).usage.micro_usd == 300


async def test_an_unknown_model_stays_marked() -> None:
    answer = await with_prices(Provider("openai:b", USED), TABLE).answer(REQUEST)

    assert answer.usage == USED


async def test_a_model_that_is_known_to_be_free_stays_free() -> None:
    answer = await with_prices(ScriptedModel(["42"]), TABLE).answer(REQUEST)

    assert (answer.usage.micro_usd, answer.usage.unpriced) == (0, 0)


async def test_the_answering_model_determines_the_price() -> None:
    broken = ScriptedModel.always(ModelError("down", kind=Failure.OVERLOADED))

    class Sender:
        name = "sender"

        async def answer(self, _: ModelRequest) -> AssistantMessage:
            return await Provider("openai:a", USED).answer(REQUEST)

    answer = await with_prices(with_fallback(broken, Sender()), TABLE).answer(REQUEST)

    assert (answer.model, answer.usage.micro_usd) == ("openai:a", 300)


async def test_totals_are_sums_of_records() -> None:
    known = with_prices(Provider("openai:a", USED), TABLE)
    unknown = with_prices(Provider("openai:b", USED), TABLE)

    answers = [await model.answer(REQUEST) for model in (known, known, unknown)]
    total = sum((answer.usage for answer in answers), start=Usage())

    assert (total.calls, total.micro_usd, total.unpriced) == (3, 600, 1)


def test_the_table_of_prices_can_be_overridden() -> None:
    mine = Price(input=1, output=1)

    table = TABLE.with_prices({"openai:a": mine, "openai:mine": mine})

    assert table.price_of("openai:a") == table.price_of("openai:mine") == mine
    assert TABLE.price_of("openai:a") != mine
    assert TABLE.price_of("openai:mine") is None
    assert table.as_of == TABLE.as_of


def test_the_shipped_prices_name_their_source() -> None:
    assert PriceTable.shipped().source == f"genai-prices {version('genai-prices')}"


@pytest.mark.parametrize(
    "name",
    [
        *("openai:gpt-5", "openai-responses:gpt-5", "azure:gpt-5", "anthropic:claude-opus-4-5"),
        *("gemini:gemini-2.5-flash", "groq:llama-3.3-70b-versatile", "xai:grok-4"),
        *("mistral:mistral-large-latest", "deepseek:deepseek-chat"),
        *("vertex:claude-sonnet-4-5@20250929", "together:MiniMaxAI/MiniMax-M3"),
        "bedrock:eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
        *("openrouter:anthropic/claude-sonnet-4.5", "vertex-openai:google/gemini-2.5-pro"),
    ],
)
def test_the_models_of_all_services_have_prices(name: str) -> None:
    price = PriceTable.shipped().price_of(name)

    assert price is not None
    assert 0 < price.input <= price.output < 200


@pytest.mark.parametrize(
    "name", ["openai:none-such", "gpt-5", "ollama:llama3.2", "lab:gpt-5", "openai:", "", ":"]
)
def test_a_price_is_not_guessed(name: str) -> None:
    assert PriceTable.shipped().price_of(name) is None


def test_a_price_of_the_program_wins_over_the_table() -> None:
    mine = Price(input=1, output=1)
    table = PriceTable.shipped().with_prices({"openai:gpt-5": mine})

    assert table.price_of("openai:gpt-5") == table.price_of("openai-responses:gpt-5") == mine
    assert table.price_of("openai:gpt-5-mini") != mine
    assert table.price_of("openai:gpt-5-mini") is not None


def test_a_long_prompt_has_a_price_of_its_own() -> None:
    price = PriceTable.shipped().price_of("anthropic:claude-sonnet-4-5")

    assert price is not None
    short = price.cost_of(input_tokens=200_000, output_tokens=0)
    assert price.cost_of(input_tokens=200_001, output_tokens=0) > 1.9 * short
    assert price.highest_cost(input_tokens=300_000, output_tokens=0) == 300_000 * 6


WRITES = Price(
    input=3,
    output=15,
    cached=0.3,
    cache_write=3.75,
    cache_write_1h=6,
    long_prompts=((1_000, Price(input=6, output=20, cache_write=7, cache_write_1h=12)),),
)


def test_tokens_written_to_a_cache_have_their_own_price() -> None:
    used = Usage(1, 300, 10, unpriced=1, cached_tokens=100, cache_written_tokens=100)

    cost = WRITES.applied_to(used).micro_usd
    hour = WRITES.with_cache_of_an_hour().applied_to(used).micro_usd

    assert cost == 300 + 30 + 375 + 150
    assert hour == 300 + 30 + 600 + 150
    assert WRITES.for_prompt(1_001).cache_write == 7
    assert WRITES.with_cache_of_an_hour().for_prompt(1_001).cache_write == 12
    assert WRITES.highest_cost(input_tokens=100, output_tokens=0) == 300
    most = WRITES.highest_cost(input_tokens=100, output_tokens=0, writes_cache=True)
    assert most == 375


def test_the_price_of_several_models_is_the_most_expensive_one() -> None:
    cheap = ScriptedModel(["so"], price=Price(input=1, output=30))
    both = with_fallback(cheap, ScriptedModel(["so"], price=WRITES))

    assert known_price(both) == Price(
        input=6, output=30, cached=6, cache_write=7, cache_write_1h=12
    )


@pytest.mark.parametrize(("caching", "cost"), [(None, 375), ("5m", 375), ("1h", 600)])
async def test_a_cache_of_an_hour_costs_more(caching: Any, cost: int) -> None:
    used = Usage(1, 100, 0, unpriced=1, cache_written_tokens=100)
    table = PriceTable(source="a test", models={"openai:a": WRITES})
    settings = ModelSettings(prompt_caching=caching)
    request = replace(REQUEST, settings=settings)

    class Model(Provider):
        async def answer(self, request: ModelRequest) -> AssistantMessage:
            del request
            return await super().answer(REQUEST)

    answer = await with_prices(Model("openai:a", used), table).answer(request)

    assert answer.usage.micro_usd == cost
    quoted = quote(with_prices(Model("openai:a", used), table), request, answer_tokens=0)
    assert quoted.micro_usd == quoted.input_tokens * {None: 3, "5m": 3.75, "1h": 6}[caching]


@pytest.mark.parametrize(("own", "cost"), [({}, 7), ({"openai:a": Price(input=1)}, 100)])
async def test_the_cost_from_a_provider_wins_over_every_table_but_our_own(
    own: dict[str, Price], cost: int
) -> None:
    table = PriceTable(source="a test", models=own, look_up=lambda _: Price(input=9))
    used = Usage(1, 100, 0, micro_usd=7)

    answer = await with_prices(Provider("openai:a", used), table).answer(REQUEST)

    assert answer.usage.micro_usd == cost


def test_without_the_package_no_price_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    genai_prices_data._snapshot.cache_clear()
    try:
        assert PriceTable.shipped().price_of("openai:gpt-5") is None
    finally:
        genai_prices_data._snapshot.cache_clear()


def test_cached_tokens_cost_the_input_price_by_default() -> None:
    price = Price(input=2, output=10)

    assert price.cost_of(input_tokens=100, output_tokens=0, cached_tokens=90) == 200


def test_cached_tokens_are_at_most_all_input_tokens() -> None:
    price = Price(input=2, output=10, cached=1)

    assert price.cost_of(input_tokens=10, output_tokens=0, cached_tokens=1_000) == 10


@pytest.mark.parametrize(
    ("price", "tokens", "cost"),
    [(0.15, 10, 2), (0.15, 30, 4), (0.05, 10, 0), (0.35, 70, 24), (1.1, 5, 6)],
)
def test_a_half_is_rounded_to_even(price: float, tokens: int, cost: int) -> None:
    assert Price(input=price).cost_of(input_tokens=tokens, output_tokens=0) == cost


# As they are published: dollars with at most three decimals.
dollars = st.integers(0, 200_000).map(lambda thousandths: thousandths / 1000)
prices = st.builds(Price, input=dollars, output=dollars, cached=st.none() | dollars)
calls = st.tuples(st.integers(0, 2_000_000), st.integers(0, 200_000), st.integers(0, 2_000_000))


def exactly(price: Price, read: int, written: int, cached: int) -> Fraction:
    rest = read - cached
    of_cached = price.input if price.cached is None else price.cached
    rates = [Fraction(str(rate)) for rate in (price.input, price.output, of_cached)]
    return rest * rates[0] + written * rates[1] + cached * rates[2]


@settings(deadline=None)
@given(price=prices, used=st.lists(calls, max_size=30))
def test_a_sum_of_costs_is_off_by_the_rounding_of_each_call_at_most(
    price: Price, used: Sequence[tuple[int, int, int]]
) -> None:
    total = 0
    exact = Fraction(0)
    for read, written, cached in used:
        cost = price.cost_of(
            input_tokens=read, output_tokens=written, cached_tokens=min(read, cached)
        )
        exact_cost = exactly(price, read, written, min(read, cached))
        assert cost == round(exact_cost)
        total += cost
        exact += exact_cost

    assert abs(total - exact) <= Fraction(len(used), 2)


@pytest.mark.parametrize(("name", "cost"), [("openai:a", 300), ("openai:b", 0)])
async def test_the_usage_of_a_failed_call_is_priced(name: str, cost: int) -> None:
    class Failing:
        async def answer(self, _: ModelRequest) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            raise ModelError("cut off", usage=USED)

        @property
        def name(self) -> str:
            return name

    with pytest.raises(ModelError) as caught:
        await with_prices(Failing(), TABLE).answer(REQUEST)

    used = caught.value.usage
    saved = 40 * 3 - 40 // 2 if cost else UNSET
    assert used == replace(USED, micro_usd=cost, unpriced=int(not cost), saved_micro_usd=saved)


async def test_a_failed_call_without_usage_costs_no_money() -> None:
    with pytest.raises(ModelError) as caught:
        await with_prices(ScriptedModel([ModelError("down")]), TABLE).answer(REQUEST)

    assert caught.value.usage is None


def test_the_saving_of_a_cache_is_the_price_without_it_less_the_cost() -> None:
    price = Price(input=4, output=10, cached=1, cache_write=5)
    read = price.applied_to(Usage(1, 100, 1, unpriced=1, cached_tokens=80))
    wrote = price.applied_to(Usage(1, 100, 1, unpriced=1, cache_written_tokens=80))
    neither = price.applied_to(Usage(1, 100, 1, unpriced=1))

    assert (read.saved_micro_usd, wrote.saved_micro_usd) == (240, -80)
    assert (read + wrote).saved_micro_usd == 160
    assert neither.saved_micro_usd is (neither + neither).saved_micro_usd is UNSET
    assert b"saved" not in msgspec.json.encode(neither)
    assert read.is_whole
