"""Every request that a provider gets is paid for before it is sent, and booked when it ends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import Machine, MemoryJournal, Run, budget, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    Compaction,
    Failure,
    Model,
    ModelError,
    ModelRequest,
    Price,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    allow,
)
from orchestrator.agents.models.wrappers.fallback import with_fallback
from orchestrator.agents.models.wrappers.prices import PriceTable, with_prices
from orchestrator.agents.models.wrappers.rate_limit import Limiter, with_rate_limit
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.agents.tools.terminal import terminal
from orchestrator.delegation import Cause, Ending
from orchestrator.delegation.events import (
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    ModelFailure,
    SessionOpened,
)
from orchestrator.delegation.notices import usd
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.testing import (
    CountingModel,
    FailingModel,
    GatedModel,
    SpyModel,
    StreamingModel,
    assert_laws,
)
from tests.kit import FunctionModel, facts, hand_on, run
from tests.orchestrator.budget_trees import DEAF, play


@pytest.mark.parametrize("first_seed", [1, 31, 61, 91])
def test_no_tree_passes_a_budget_by_the_count_of_the_provider(
    first_seed: int, tmp_path: Path
) -> None:
    """`python -m tests.orchestrator.budget_trees` plays thousands."""
    for seed in range(first_seed, first_seed + 30):
        _, problems = play(seed, tmp_path)

        assert problems == [], seed


@pytest.mark.parametrize("first_seed", [51, 301])
def test_no_tree_passes_a_budget_where_slow_calls_are_repeated(
    first_seed: int, tmp_path: Path
) -> None:
    """`python -m tests.orchestrator.budget_trees --hedge` plays thousands."""
    for seed in range(first_seed, first_seed + 40):
        _, problems = play(seed, tmp_path, hedges=True)

        assert problems == [], seed


@pytest.mark.realtime
async def test_the_usage_of_a_failed_call_is_booked_during_its_teardown(tmp_path: Path) -> None:
    """A command that ignores SIGTERM holds the end of its task up for seconds."""
    used = Usage(calls=1, input_tokens=10)

    def stubborn(transcript: Transcript) -> Any:
        if any(isinstance(it, ToolMessage) for it in transcript):
            return ModelError("no", usage=used)
        return ToolCall("terminal", {"command": DEAF, "background": True})

    def busy(transcript: Transcript) -> Any:
        return ToolCall("terminal", {"command": f"sleep 0.2; echo {len(transcript)}"})

    model = CountingModel(ScriptedModel.always(stubborn, 0.1))
    other = CountingModel(ScriptedModel.always(busy, 0.1))
    async with open_orchestrator(":memory:", machine=Machine(workspace=tmp_path)) as orchestrator:
        with budget(calls=4):
            async with trio.open_nursery() as nursery:
                for name, it in (("a", model), ("b", other)):
                    agent = Agent(name, model=it, tools=[terminal], approve=[allow("*")])
                    nursery.start_soon(orchestrator.run, agent, "go")

    assert model.calls == 2
    assert model.calls + other.calls == 4


def wrapped_in_retries(flaky: Model) -> Model:
    return with_retries(flaky)


def wrapped_in_a_fallback(flaky: Model) -> Model:
    return with_fallback(flaky, flaky, flaky, flaky)


def wrapped_in_both(flaky: Model) -> Model:
    return with_retries(with_fallback(with_retries(flaky, attempts=2), flaky), attempts=2)


@pytest.mark.parametrize("wrap", [wrapped_in_retries, wrapped_in_a_fallback, wrapped_in_both])
async def test_a_provider_that_fails_gets_no_more_requests_than_the_budget_has_calls(
    wrap: Callable[[Model], Model],
) -> None:
    flaky = CountingModel(FailingModel([503, 503, None] * 20))
    top = Agent(
        "top",
        model=ScriptedModel([hand_on(*"abcdefgh"), "end"]),
        delegates=[Agent("worker", model=wrap(flaky))],
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with budget(calls=6):
            asked = await orchestrator.run(top, "go")

    assert flaky.calls == 6 - 1
    assert asked.usage.calls == 6
    assert len(facts(journal.entries, ModelCalled)) == 6
    assert_laws(journal.entries)


async def test_an_unaffordable_retry_ends_the_task_with_the_reason() -> None:
    failing = CountingModel(FailingModel([503] * 9))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=2, name="lunch"):
            agent = Agent("top", model=with_retries(failing))
            asked = await orchestrator.run(agent, "go")

    assert failing.calls == 2
    assert (asked.outcome.ending, asked.outcome.cause) == (Ending.OVER_BUDGET, Cause.BUDGET)
    assert "'lunch' (calls=2) of /top is used up: 2 model calls made" in (asked.outcome.error)
    assert "HTTP 503" in asked.outcome.error


async def test_the_usage_of_a_failed_attempt_is_booked_before_the_next_one() -> None:
    used = Usage(calls=1, input_tokens=400, output_tokens=500)
    failed = ModelError("no", kind=Failure.OVERLOADED, usage=used)
    spy = SpyModel(ScriptedModel([failed, "done"], price=Price(output=10)))
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with budget(tokens=2_000):
            asked = await orchestrator.run(Agent("top", model=with_retries(spy)), "go")

    assert asked.output == "done"
    # Of 2,000 at first, and of the 1,100 that are left.
    assert [request.max_output for request in spy.requests] == [1_024, 1_024]
    (fact,) = facts(journal.entries, ModelFailed)
    assert fact.reason is ModelFailure.ATTEMPT
    assert fact.usage.micro_usd == 5_000
    assert asked.usage.tokens == 900 + 2


async def test_a_summary_is_a_call_of_its_own() -> None:
    spy = SpyModel(["x" * 9_000, "y" * 9_000, "summary", "done"])
    agent = Agent("top", model=spy, compaction=Compaction(window=6_000, keep_last=1))
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with budget(calls=3):
            async with orchestrator.open_session(agent) as session:
                for text in ("one", "two"):
                    await session.ask(text)
                last = await session.ask("three")

    assert len(spy.requests) == 3
    assert last.outcome.ending is Ending.OVER_BUDGET
    reasons = [it.reason for it in facts(journal.entries, ModelFailed)]
    # The call that was reserved for the answer was not made: the summary came first.
    assert reasons == [ModelFailure.BROKEN_OFF, ModelFailure.SUMMARY]
    assert session.tree.total.calls == 3


class Priced:
    """A model of one's own with a price, which does not say what a call cost."""

    name = "mine"
    price: Price | None = Price(input=1_000, output=1_000)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        written = min(100, request.max_output or 100)
        usage = Usage(calls=1, input_tokens=1_000, output_tokens=written)
        return AssistantMessage("x", usage=usage, model=self.name)

    def count_tokens(self, _: ModelRequest) -> int:
        return 1_000


async def test_a_summary_is_paid_for_by_the_price_of_its_writer_also_when_retried() -> None:
    """Its writer costs a thousand times as much as the model of the agent, and fails at first."""
    cheap = ScriptedModel.always("x" * 9_000)
    writer = CountingModel(Priced())
    compaction = Compaction(
        window=6_000, summarizer=with_retries(FailingModel([503], writer)), keep_last=1
    )
    agent = Agent("top", model=cheap, compaction=compaction)
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with budget(usd=1.5):
            async with orchestrator.open_session(agent) as session:
                asked = [await session.ask(text) for text in "12345"]

    (summary,) = (
        it for it in facts(journal.entries, ModelFailed) if it.reason is ModelFailure.SUMMARY
    )
    assert summary.usage.micro_usd == 1_100_000
    assert session.tree.total.micro_usd == 1_100_000
    assert writer.calls == 1
    assert asked[-1].outcome.kind == "usd"


class Silent(Priced):
    """Says nothing about what it uses."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        return AssistantMessage("x" * 400)


async def test_a_model_that_reports_no_usage_is_charged_with_all_it_may_have_used() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with budget(tokens=30_000):
            async with orchestrator.open_session(Agent("top", model=Silent())) as session:
                asked = [await session.ask("go on") for _ in range(8)]

    called = facts(journal.entries, ModelCalled)
    answered = facts(journal.entries, ModelAnswered)
    assert [it.message.usage.estimated for it in answered] == [1] * len(answered)
    assert [it.message.usage.output_tokens for it in answered] == [100] * len(answered)
    # What is left pays for a shorter answer each time, and then for none.
    assert [it.charged and it.charged.tokens for it in answered] == [
        it.reserved.tokens for it in called
    ]
    assert sum(it.reserved.tokens for it in called) <= 30_000
    assert asked[-1].outcome.ending is Ending.OVER_BUDGET


class Unpriced(Priced):
    name = "unpriced"
    price = None


class Free(Priced):
    name = "free"
    price = Price()


async def test_the_price_of_a_model_is_applied_to_its_usage() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=3):
            runs = [await orchestrator.run(Agent("a", model=Priced()), "go") for _ in range(3)]

    assert [run.usage.micro_usd for run in runs] == [1_100_000, 1_100_000, 0]
    assert runs[-1].outcome.kind == "usd"


async def test_a_model_without_a_price_has_an_unknown_cost() -> None:
    asked = await run(Agent("a", model=Unpriced()))

    assert usd(asked.usage) == "price unknown"


@pytest.mark.parametrize(
    ("model", "costs"),
    [
        (with_fallback(Unpriced(), Priced()), "price unknown"),
        (with_fallback(Free(), Unpriced()), "$0"),
        (with_fallback(FailingModel([401], Free()), Priced()), "$1.1000"),
        (with_prices(Unpriced(), PriceTable.shipped()), "price unknown"),
        (
            with_prices(
                with_retries(FailingModel([503], Unpriced())),
                PriceTable.shipped().with_prices({"unpriced": Price(output=10)}),
            ),
            "$0.0010",
        ),
    ],
)
async def test_a_wrapper_bills_by_the_price_of_the_model_that_answered(
    model: Model, costs: str
) -> None:
    asked = await run(Agent("a", model=model))

    assert asked.outcome.succeeded
    assert usd(asked.usage) == costs


@pytest.mark.parametrize("given_back", ["calls", "input_tokens", "micro_usd"])
async def test_a_model_with_negative_usage_fails_its_task(given_back: str) -> None:
    model = StreamingModel.always("x", usage=Usage(**{given_back: -10}))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=2):
            runs = [await orchestrator.run(Agent("a", model=model), "go") for _ in range(3)]

    assert [run.outcome.ending.value for run in runs] == ["failed", "failed", "over_budget"]
    assert model.calls == 2


class Breaking:
    """A model that breaks off in the middle of its answer."""

    name = "breaking"
    price = Price(output=10)

    def __init__(self, failure: BaseException | None) -> None:
        self.calls = 0
        self._failure = failure

    def count_tokens(self, _: ModelRequest) -> int:
        return 100

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.calls += 1
        if self._failure is None:
            await trio.sleep_forever()
            raise AssertionError
        await trio.lowlevel.checkpoint()
        raise self._failure


@pytest.mark.memory_only
@pytest.mark.parametrize(
    ("failure", "is_charged"),
    [
        pytest.param(None, True, id="cancelled"),
        pytest.param(ValueError("a bug"), True, id="a bug"),
        pytest.param(ModelError("cut", kind=Failure.CONNECTION), True, id="cut"),
        pytest.param(
            ModelError("cut", kind=Failure.TIMEOUT, usage=Usage(1, 100, 7)),
            True,
            id="cut after it told some",
        ),
        pytest.param(ModelError("no", kind=Failure.RATE_LIMIT), False, id="refused"),
        pytest.param(
            ModelError("no", kind=Failure.CONNECTION, usage=Usage(calls=1)),
            False,
            id="nothing was used",
        ),
    ],
)
async def test_an_unknown_usage_is_charged_in_full_and_shown_as_far_as_known(
    failure: Exception | None, is_charged: bool
) -> None:
    model = Breaking(failure)
    runs: list[Run[str]] = []
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tokens=20_000):
            for _ in range(2):
                with trio.move_on_after(1):
                    runs.append(await orchestrator.run(Agent("a", model=model), "go"))
            tree = orchestrator.tree(orchestrator.runs[0])
            capped = SpyModel("done")
            await orchestrator.run(Agent("a", model=capped), "go")

    assert model.calls == 2
    assert tree.total.calls == 1
    assert tree.total.output_tokens < 100
    (request,) = capped.requests
    # 16,384 and 2,048 tokens are gone, or nothing is.
    assert request.max_output == (1_024 if is_charged else 16_384)


async def test_a_call_that_waits_for_a_limiter_was_not_made() -> None:
    gate = GatedModel()
    model = with_rate_limit(gate, Limiter(in_flight=1))
    agent = Agent("a", model=model)
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=2, tokens=100_000):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.run, agent, "first")
                await gate.wait_called()
                with trio.move_on_after(1):
                    await orchestrator.run(agent, "second")
                gate.release()
            third = await orchestrator.run(agent, "third")

    assert third.outcome.succeeded
    assert gate.calls == 2


async def test_a_call_interrupted_by_a_crash_is_paid_for() -> None:
    """Whether the provider got it is not known, so it counts."""
    model = CountingModel(ScriptedModel.always("done", 1))
    agent = Agent("top", model=model, budget=Budget(calls=1))
    whole = MemoryJournal()
    async with open_orchestrator(whole) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            assert (await session.ask("go")).outcome.succeeded
    (called,) = (it.seq for it in whole.entries if isinstance(it.event, ModelCalled))
    journal = MemoryJournal(whole.entries[:called])
    async with open_orchestrator(journal) as orchestrator:
        (opened,) = facts(journal.entries, SessionOpened)
        again = orchestrator.open_session(agent, session=opened.session)
        async with again as session:
            await session.wait_idle()
            reply = session.replies.receive_nowait()

    assert reply.outcome.ending is Ending.OVER_BUDGET
    assert model.calls == 1
    assert session.tree.total.calls == 0
    assert_laws(journal.entries)


async def test_a_call_is_durable_before_it_is_made() -> None:
    """The journal has it when the provider gets it."""
    journal = MemoryJournal()

    async def look(_: ModelRequest) -> str:
        await trio.lowlevel.checkpoint()
        assert isinstance(journal.entries[-1].event, ModelCalled)
        return "seen"

    async with open_orchestrator(journal) as orchestrator:
        with budget(calls=1):
            asked = await orchestrator.run(Agent("a", model=FunctionModel(look)), "go")

    assert asked.output == "seen"


@pytest.mark.parametrize("calls", [2, 3, 9])
def test_a_run_with_retries_is_replayed_under_its_budget(calls: int) -> None:
    flaky = FailingModel([503, 503, None])
    agent = Agent("top", model=with_retries(flaky), budget=Budget(calls=calls))
    journal = MemoryJournal()

    async def main() -> None:
        async with open_orchestrator(journal) as orchestrator:
            asked = await orchestrator.run(agent, "go")
        assert asked.outcome.succeeded is (calls > 2)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    assert replay_sync(journal.entries, agent).difference is None


def test_a_run_that_paid_for_a_crash_is_replayed_under_its_budget() -> None:
    look = ToolCall("terminal", {"command": "true"})

    def say(transcript: Transcript) -> Any:
        return "done" if isinstance(transcript[-1], ToolMessage) else look

    agent = Agent(
        "top",
        model=ScriptedModel.always(say),
        tools=[terminal],
        approve=[allow("*")],
        budget=Budget(calls=2, tokens=100_000),
    )

    async def live(journal: MemoryJournal) -> Ending:
        async with open_orchestrator(journal) as orchestrator:
            known = [it.session for it in facts(journal.entries, SessionOpened)]
            opened = orchestrator.open_session(agent, session=next(iter(known), None))
            async with opened as session:
                if not known:
                    return (await session.ask("go")).outcome.ending
                await session.wait_idle()
                return session.replies.receive_nowait().outcome.ending

    def run_to_its_end(journal: MemoryJournal) -> Ending:
        return trio.run(live, journal)

    whole = MemoryJournal()
    assert run_to_its_end(whole) is Ending.SUCCEEDED
    first, _ = (it.seq for it in whole.entries if isinstance(it.event, ModelCalled))
    journal = MemoryJournal(whole.entries[:first])
    assert run_to_its_end(journal) is Ending.OVER_BUDGET

    assert replay_sync(journal.entries, agent).difference is None
