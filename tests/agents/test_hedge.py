"""A slow call is repeated, the faster one is the answer, and budgets pay for both."""

import math
from collections.abc import Sequence

import pytest
import trio

from orchestrator import MemoryJournal, Models, Run, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    DefinitionError,
    Failure,
    ModelError,
    ModelEvent,
    ModelRequest,
    Price,
    TextDelta,
    Usage,
)
from orchestrator.agents.models.model import ignore_event
from orchestrator.agents.models.wrappers.hedge import LEAST_SAMPLES
from orchestrator.delegation.events import ModelCalled, ModelFailed
from orchestrator.models import Limiter, with_hedge, with_rate_limit, with_retries
from orchestrator.testing import assert_laws
from tests.kit import facts

USED = Usage(calls=1, input_tokens=10, output_tokens=5)


class TimedModel:
    """Answers after the seconds of a script; an error in the script is raised after a second."""

    name = "timed"
    price = Price(input=1, output=1)

    def __init__(self, *script: float | Exception, streams: bool = False) -> None:
        self._script = iter(script)
        self._streams = streams
        self.asked = 0
        self.cancelled = 0

    def count_tokens(self, request: ModelRequest) -> int:
        del request
        return 10

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.asked += 1
        step, number = next(self._script), self.asked
        try:
            if isinstance(step, Exception):
                await trio.sleep(1)
                raise step
            await trio.sleep(step)
            if self._streams:
                request.tell(TextDelta(f"answer {number}"))
                await trio.sleep(100)
        except trio.Cancelled:
            self.cancelled += 1
            raise
        return AssistantMessage(f"answer {number}", usage=USED)


def asked(told: list[ModelEvent] | None = None) -> ModelRequest:
    tell = ignore_event if told is None else told.append
    return ModelRequest(instructions="Answer.", transcript=(), tools=(), tell=tell)


async def seconds_of(model: TimedModel, calls: int, *, share: float = 0.95) -> Sequence[float]:
    hedged, seconds = with_hedge(model, share), list[float]()
    for _ in range(calls):
        begun = trio.current_time()
        await hedged.answer(asked())
        seconds.append(trio.current_time() - begun)
    return seconds


async def test_a_call_slower_than_most_is_repeated_and_the_faster_one_answers() -> None:
    model = TimedModel(*[2.0] * LEAST_SAMPLES, 60.0, 3.0)

    seconds = await seconds_of(model, LEAST_SAMPLES + 1)

    assert seconds[-1] == 2 + 3
    assert model.asked == LEAST_SAMPLES + 2
    assert model.cancelled == 1


async def test_the_first_call_may_still_win() -> None:
    model = TimedModel(*[2.0] * LEAST_SAMPLES, 4.0, 60.0)

    assert (await seconds_of(model, LEAST_SAMPLES + 1))[-1] == 4
    assert model.cancelled == 1


async def test_few_calls_do_not_tell_which_one_is_slow() -> None:
    model = TimedModel(*[2.0] * (LEAST_SAMPLES - 1), 60.0)

    assert (await seconds_of(model, LEAST_SAMPLES))[-1] == 60
    assert model.asked == LEAST_SAMPLES


async def test_a_call_that_has_begun_to_answer_is_not_slow() -> None:
    model = TimedModel(1.0, streams=True)
    told = list[ModelEvent]()

    answer = await with_hedge(model, first_seconds=2).answer(asked(told))

    assert answer.text == "answer 1"
    assert model.asked == 1
    assert told == [TextDelta("answer 1")]


async def test_the_text_of_only_one_call_is_told() -> None:
    model = TimedModel(9.0, 1.0, streams=True)
    told = list[ModelEvent]()

    answer = await with_hedge(model, first_seconds=2).answer(asked(told))

    assert answer.text == "answer 2"
    assert told == [TextDelta("answer 2")]


async def test_a_call_that_waits_for_a_limiter_is_not_slow() -> None:
    model = TimedModel(5.0, 1.0)
    hedged = with_hedge(with_rate_limit(model, Limiter(in_flight=1)), first_seconds=6)

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(hedged.answer, asked())

    assert model.asked == 2


async def test_a_second_call_that_waits_for_a_limiter_is_not_charged() -> None:
    model = TimedModel(5.0)
    hedged = with_hedge(with_rate_limit(model, Limiter(in_flight=1)), first_seconds=1)

    answer = await hedged.answer(asked())

    assert answer.usage == USED


@pytest.mark.parametrize("script", [(ModelError("no"), 3.0), (3.0, ModelError("no"))])
async def test_the_failure_of_one_call_leaves_the_other(
    script: Sequence[float | Exception],
) -> None:
    hedged = with_hedge(TimedModel(*script), first_seconds=0.5)

    answer = await hedged.answer(asked())

    assert answer.usage.calls == 2


async def test_two_failures_raise_the_later_one() -> None:
    hedged = with_hedge(TimedModel(ModelError("first"), ModelError("second")), first_seconds=0.5)

    with pytest.raises(ModelError, match="second"):
        await hedged.answer(asked())


async def test_a_call_that_fails_before_it_is_slow_is_not_repeated() -> None:
    model = TimedModel(ModelError("no"), 1.0)

    with pytest.raises(ModelError, match="no"):
        await with_hedge(model, first_seconds=2).answer(asked())

    assert model.asked == 1


async def test_retries_inside_a_hedge_do_not_happen() -> None:
    model = TimedModel(ModelError("no", kind=Failure.OVERLOADED), 1.0)

    with pytest.raises(ModelError, match="no"):
        await with_hedge(with_retries(model)).answer(asked())

    assert model.asked == 1


@pytest.mark.parametrize("share", [0, 1, -1, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(DefinitionError, match="between 0 and 1"):
        with_hedge(TimedModel(), share)


async def run_under(
    budget: Budget | None, *script: float | Exception
) -> tuple[Run[str], TimedModel]:
    model = TimedModel(*script)
    journal = MemoryJournal()
    agent = Agent("worker", model=with_hedge(model, first_seconds=2), budget=budget)
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(agent, "go")
    assert_laws(journal.entries)
    return run, model


async def test_a_budget_pays_for_both_calls() -> None:
    run, model = await run_under(Budget(calls=2, tokens=100_000), 9.0, 1.0)

    assert run.outcome.succeeded
    assert model.asked == 2
    assert run.usage.calls == 2


async def test_a_budget_that_cannot_pay_for_two_calls_lets_the_first_go_on() -> None:
    run, model = await run_under(Budget(calls=1), 9.0, 1.0)

    assert run.outcome.output == "answer 1"
    assert model.asked == 1


async def test_the_facts_of_two_calls_reserve_both_and_charge_the_cancelled_one_whole() -> None:
    model = TimedModel(9.0, 1.0)
    journal = MemoryJournal()
    agent = Agent("worker", model=with_hedge(model, first_seconds=2), budget=Budget(tokens=100_000))
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(agent, "go")

    first, both = facts(journal.entries, ModelCalled)
    assert both.reserved == first.reserved + first.reserved
    (lost,) = facts(journal.entries, ModelFailed)
    # A process that dies now still pays for the call under way.
    assert lost.reserved == first.reserved
    assert lost.charged is not None
    assert lost.charged.tokens == first.reserved.tokens
    assert lost.error == "another call for the same answer was faster"


async def test_a_cancelled_task_pays_for_both_of_its_calls() -> None:
    model = TimedModel(9.0, 9.0)
    journal = MemoryJournal()
    agent = Agent("worker", model=with_hedge(model, first_seconds=2), budget=Budget(calls=5))
    async with open_orchestrator(journal) as orchestrator:
        with trio.move_on_after(3):
            await orchestrator.run(agent, "go")

    assert model.cancelled == 2
    assert sum(it.usage.calls for it in facts(journal.entries, ModelFailed)) == 2
    assert_laws(journal.entries)


async def test_a_named_model_is_hedged_by_the_settings() -> None:
    with pytest.raises(DefinitionError, match="between 0 and 1"):
        async with open_orchestrator(MemoryJournal(), models=Models(hedge=2.0)) as orchestrator:
            await orchestrator.run(Agent("worker", model="ollama:any"), "go")
