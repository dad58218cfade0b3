"""Budgets of tokens and money: never passed; answers are capped to what is left."""

import math
import random
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, budget, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    ModelError,
    ModelRequest,
    Price,
    ScriptedModel,
    ToolMessage,
    Transcript,
    Usage,
)
from orchestrator.delegation import Cause, Ending, Outcome
from orchestrator.testing import CountingModel
from tests.kit import hand_on
from tests.orchestrator.budgets_kit import Meter, lead


class Sized:
    """A model that reads and writes so many tokens, in so many seconds."""

    name = "sized"

    def __init__(self, *, reads: int = 10, writes: int = 10, seconds: float) -> None:
        self.reads = reads
        self.writes = writes
        self.seconds = seconds

    def count_tokens(self, _: ModelRequest) -> int:
        return self.reads

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.sleep(self.seconds)
        written = min(self.writes, request.max_output or self.writes)
        usage = Usage(calls=1, input_tokens=self.reads, output_tokens=written)
        return AssistantMessage("done", usage=usage)


@pytest.mark.parametrize("seed", range(40))
async def test_no_tree_ever_passes_a_budget_of_tokens_or_money(seed: int) -> None:
    chance = random.Random(seed)
    meter = Meter()

    def agent(depth: int) -> Agent:
        price = Price(input=chance.choice([0, 3]), output=chance.choice([1, 15]))
        texts = ["x" * chance.randrange(20_000) for _ in range(2)]
        steps: list[Any] = [
            hand_on(*texts[: chance.randrange(3)] or "y", background=False)
            for _ in range(chance.randrange(3) if depth else 0)
        ]
        steps += [chance.choice([*texts, "short", ModelError("HTTP 500")])]

        def say(transcript: Transcript) -> Any:
            return steps[sum(isinstance(said, ToolMessage) for said in transcript)]

        model = ScriptedModel.always(say, chance.random() * 10, price=price)
        return Agent(
            f"level{depth}", model=meter.on(model), delegates=[agent(depth - 1)] if depth else []
        )

    usd = chance.choice([None, 0.01, 0.05, 0.3, 1])
    tokens = chance.choice([None, 500, 5_000, 30_000, 100_000]) if usd else 20_000
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with budget(usd=usd, tokens=tokens):
            runs: list[Any] = []

            async def run(top: Agent) -> None:
                runs.append(await orchestrator.run(top, "go"))

            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(run, agent(2))

    assert len(runs) == 3
    assert meter.used.tokens <= (math.inf if tokens is None else tokens)
    assert meter.used.micro_usd <= (math.inf if usd is None else usd * 1_000_000)
    assert sum((run.usage for run in runs), Usage()).micro_usd == meter.used.micro_usd
    assert sum(run.usage.tokens for run in runs) == meter.used.tokens


async def test_a_budget_with_room_for_all_lets_all_work_at_once() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tokens=1_000_000):
            run = await orchestrator.run(lead(meter, 8, meter.worker(seconds=10)), "go")

    assert run.tree.counts() == {"succeeded": 9}
    assert meter.most_at_once == 8
    assert trio.current_time() == pytest.approx(10)


async def test_calls_wait_for_tokens_that_others_give_back() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tokens=20_000):
            run = await orchestrator.run(lead(meter, 8, meter.worker(seconds=10)), "go")

    assert run.tree.counts() == {"succeeded": 9}
    assert meter.most_at_once == 1
    assert trio.current_time() == pytest.approx(80)


async def test_a_waiting_call_learns_that_the_budget_is_used_up() -> None:
    """The last reservation comes back, and was used: no call waits for more."""
    everything = Agent("worker", model=Sized(reads=10, writes=19_000, seconds=10))
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tokens=16_600):
            run = await orchestrator.run(lead(meter, 8, everything), "go")

    assert run.tree.counts() == {"succeeded": 1, "over_budget": 8}
    assert run.outcome.kind == "tokens"
    assert (run.outcome.cause, run.outcome.kind) == (Cause.BUDGET, "tokens")
    assert trio.current_time() == pytest.approx(10)


async def test_a_call_that_waits_for_a_budget_can_be_cancelled() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            with budget(tokens=20_000):
                top = lead(meter, 4, meter.worker(seconds=10))
                nursery.start_soon(orchestrator.run, top, "go")
            await trio.sleep(5)
            tree = orchestrator.tree(orchestrator.runs[-1])
            for task in tree.children(tree.root)[:2]:
                await orchestrator.cancel(task)
            assert trio.current_time() == pytest.approx(5)

    assert tree.counts() == {"succeeded": 3, "cancelled": 2}


@pytest.mark.parametrize("first_ends_by", ["its budget", "a cancel"])
async def test_a_call_that_moves_to_another_queue_wakes_the_next_one(first_ends_by: str) -> None:
    """The first of two who wait for the inner budget finds the outer one full, and ends there."""
    outcomes: dict[str, Outcome] = {}

    async with open_orchestrator(":memory:") as orchestrator:

        async def run(name: str, model: Sized) -> None:
            outcomes[name] = (await orchestrator.run(Agent(name, model=model), "go")).outcome

        async with trio.open_nursery() as nursery:
            with budget(tokens=53_000, name="outer"):
                with budget(tokens=40_000, name="inner"):
                    nursery.start_soon(run, "holder", Sized(seconds=10))
                    await trio.sleep(1)
                    nursery.start_soon(run, "first", Sized(reads=20_000, seconds=1))
                    await trio.sleep(1)
                    first = orchestrator.runs[-1]
                    nursery.start_soon(run, "second", Sized(reads=8_000, seconds=1))
                    await trio.sleep(1)
                rest = Sized(reads=20_000, writes=20_000, seconds=20)
                nursery.start_soon(run, "other", rest)
            await trio.sleep(10)
            if first_ends_by == "a cancel":
                await orchestrator.cancel(first)

    assert {name: outcome.ending.value for name, outcome in outcomes.items()} == {
        "holder": "succeeded",
        "other": "succeeded",
        "first": "over_budget" if first_ends_by == "its budget" else "cancelled",
        "second": "succeeded",
    }


async def test_a_small_call_does_not_wait_behind_a_large_one() -> None:
    ended: dict[str, float] = {}

    async with open_orchestrator(":memory:") as orchestrator:

        async def run(name: str, model: Sized) -> None:
            await orchestrator.run(Agent(name, model=model), "go")
            ended[name] = trio.current_time()

        async with trio.open_nursery() as nursery:
            with budget(tokens=45_000):
                nursery.start_soon(run, "short", Sized(seconds=10))
                nursery.start_soon(run, "long", Sized(seconds=100))
                await trio.sleep(1)
                nursery.start_soon(run, "much", Sized(reads=14_000, seconds=1))
                await trio.sleep(1)
                nursery.start_soon(run, "little", Sized(seconds=1))

    assert ended == {
        "short": pytest.approx(10),
        "little": pytest.approx(11),
        "long": pytest.approx(100),
        "much": pytest.approx(101),
    }


async def test_the_input_of_a_broken_off_call_stays_booked() -> None:
    """The provider has read it, and bills it, also if the caller hung up."""
    model = CountingModel(Sized(reads=5_000, seconds=100))
    agent = Agent("top", model=model)
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tokens=22_000):
            for _ in range(10):
                with trio.move_on_after(10):
                    await orchestrator.run(agent, "go")

    assert model.calls * 5_000 <= 22_000


async def test_a_model_without_a_price_is_refused_under_a_money_budget() -> None:
    model = Sized(seconds=0)
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=5):
            run = await orchestrator.run(Agent("top", model=model), "go")

    assert (run.outcome.ending, run.outcome.kind) == (Ending.OVER_BUDGET, "usd")
    assert run.outcome.cause is Cause.BUDGET
    assert "give it with open_orchestrator(models=Models(prices=...))" in run.outcome.error
    assert run.usage.calls == 0


async def test_money_that_ran_out_is_named_with_its_path() -> None:
    price = Price(output=10)
    model = ScriptedModel(["x" * 4_000, "again"], price=price)
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=0.0105):
            first = await orchestrator.run(Agent("first", model=model), "go")
            second = await orchestrator.run(Agent("second", model=model), "go")

    assert first.outcome.succeeded
    assert (second.outcome.ending, second.outcome.kind) == (Ending.OVER_BUDGET, "usd")
    # It was set for the first of them.
    assert "the budget (usd=0.0105) of /first is used up" in second.outcome.error
    assert "$0.0100, and the next call may cost $0.0026" in second.outcome.error


async def test_the_longest_affordable_answer_is_the_output_limit() -> None:
    meter = Meter()
    model = ScriptedModel(["x" * 8_000, "y"], price=Price(output=10))
    agent = Agent("top", model=meter.on(model))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=0.05):
            await orchestrator.run(agent, "go")
            await orchestrator.run(agent, "go")

    # $0.05 are 5,000 tokens, and then 3,000.
    assert meter.caps == [4_096, 2_048]


async def test_an_answer_that_needs_more_than_the_cap_is_kept_so_far_and_paid_for() -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel(["so " * 40_000])))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tokens=1_000):
            run = await orchestrator.run(agent, "go")

    assert run.outcome.ending is Ending.OVER_BUDGET
    assert run.outcome.kind == "tokens"
    assert "the budget (tokens=1000) of /top" in run.outcome.error
    assert run.usage.tokens == meter.used.tokens == 512 + 1
    assert run.usage.calls == 1
    assert run.outcome.output == ("so " * 40_000)[: 512 * 4]


@pytest.mark.parametrize(
    ("outer", "inner", "kind"),
    [
        ({"tokens": 1_000_000}, {"tokens": 1_000}, "tokens"),
        ({"usd": 1_000}, {"tokens": 1_000}, "tokens"),
        ({"tokens": 1_000_000}, {"usd": 0.01}, "usd"),
        ({"usd": 1_000, "tokens": 1_000}, {"tokens": 1_000_000}, "tokens"),
    ],
)
async def test_an_answer_is_cut_off_in_the_name_of_the_budget_that_is_too_small(
    outer: dict[str, Any], inner: dict[str, Any], kind: str
) -> None:
    model = ScriptedModel(["x" * 100_000], price=Price(output=10))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(**outer, name="outer"), budget(**inner, name="inner"):
            run = await orchestrator.run(Agent("top", model=model), "go")

    assert run.outcome.kind == kind
    assert ("'inner'" if kind in inner and inner[kind] < 10_000 else "'outer'") in (
        run.outcome.error
    )


@pytest.mark.parametrize("allowed", [{"calls": 5}, {"seconds": 5}, {"tasks": 5}, {}])
async def test_an_answer_is_not_capped_without_a_token_budget(allowed: dict[str, Any]) -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel(["ok"])))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(**allowed):
            await orchestrator.run(agent, "go")

    assert meter.caps == [None]
