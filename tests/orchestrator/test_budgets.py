"""Budgets: however many work at once, together they never pass what they were given."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from agents import (
    Agent,
    AssistantMessage,
    Budget,
    DefinitionError,
    Failure,
    Limits,
    Model,
    ModelError,
    ModelRequest,
    Price,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
    tool,
)
from agents.models.wrappers.retry import retrying
from delegation import Ending, Outcome, Rules
from delegation.events import ModelAnswered, ModelFailed, SessionOpened
from orchestrator import MemoryJournal, Orchestrator, Run, budget, open_orchestrator
from tests.kit import facts, hand_on, worker

COUNTS = ("tokens", "calls", "usd", "seconds", "tasks", "depth")


class Meter:
    """Counts what models are really asked, whatever the journal says of it."""

    def __init__(self) -> None:
        self.calls = 0
        self.used = Usage()
        self.at_once = 0
        self.most_at_once = 0
        self.caps: list[int | None] = []

    def on(self, model: ScriptedModel) -> Model:
        return _Metered(model, self)

    def worker(self, says: Any = "done", seconds: float = 1, **options: Any) -> Agent:
        model = ScriptedModel.always(says, seconds)
        return Agent("worker", model=self.on(model), **options)


class _Metered:
    def __init__(self, model: ScriptedModel, meter: Meter) -> None:
        self.name = model.name
        self.price = model.price
        self.count_tokens = model.count_tokens
        self._model = model
        self._meter = meter

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        meter = self._meter
        meter.calls += 1
        meter.caps.append(request.max_output)
        meter.at_once += 1
        meter.most_at_once = max(meter.most_at_once, meter.at_once)
        try:
            answer = await self._model.answer(request)
        except ModelError as exc:
            meter.used += exc.usage or Usage()
            raise
        finally:
            meter.at_once -= 1
        meter.used += answer.usage
        return answer


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


def lead(meter: Meter, count: int, delegate: Agent, **options: Any) -> Agent:
    """Return an agent that hands on so many tasks, and then ends."""
    steps: list[Any] = [hand_on(*map(str, range(count))), "end"]
    return Agent(
        "top", model=meter.on(ScriptedModel(steps)), delegates=[delegate], **options
    )


def endings(orchestrator: Orchestrator) -> dict[str, str]:
    """Return how each task of the newest run ended, by path."""
    tree = orchestrator.tree(orchestrator.runs[-1])
    return {tree[task]["path"]: tree[task]["status"] for task in tree.graph}


# Model calls.


@pytest.mark.parametrize("children", [8, 1_000])
async def test_a_tree_limited_to_five_calls_makes_five_however_wide_it_is(
    children: int,
) -> None:
    meter = Meter()
    rules = Rules(children_per_call=1_000)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        with budget(calls=5):
            run = await orchestrator.run(lead(meter, children, meter.worker()), "go")

    assert meter.calls == run.usage.calls == 5
    assert run.outcome.ending is Ending.OVER_BUDGET
    assert run.tree.counts() == {"succeeded": 4, "over_budget": children - 4 + 1}


async def test_a_tree_limited_to_five_calls_makes_five_however_deep_it_is() -> None:
    meter = Meter()
    model = meter.on(ScriptedModel.always(hand_on("deeper")))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=5):
            run = await orchestrator.run(Agent("top", model=model, copies=True), "go")

    assert meter.calls == run.usage.calls == 5
    assert run.tree.counts() == {"over_budget": 5 + 1}
    assert run.outcome.kind == "calls"


class Broken:
    """A model that fails in a way of its own."""

    name = "broken"

    def __init__(self, fail: Callable[[], Any]) -> None:
        self.calls = 0
        self._fail = fail

    async def answer(self, _: ModelRequest) -> AssistantMessage:
        self.calls += 1
        await trio.sleep(1)
        answer: AssistantMessage = self._fail()
        return answer


def raising(exc: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise exc

    return fail


@pytest.mark.parametrize(
    "fail",
    [
        pytest.param(raising(ModelError("HTTP 500")), id="a provider that fails"),
        pytest.param(raising(ValueError("a bug")), id="a bug"),
        pytest.param(lambda: "no message", id="no message"),
        pytest.param(
            lambda: AssistantMessage("", (ToolCall("t", {"n": object()}),)),
            id="what cannot be written down",
        ),
    ],
)
async def test_a_call_that_failed_was_made(fail: Callable[[], Any]) -> None:
    meter = Meter()
    broken = Broken(fail)
    child = Agent("worker", model=broken)
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=5):
            run = await orchestrator.run(lead(meter, 8, child), "go")

    assert meter.calls + broken.calls == 5
    assert run.tree.counts() == {"failed": 4, "over_budget": 5}


class InANursery:
    """A model that waits in a nursery of its own, as one that streams does."""

    name = "nursery"

    def __init__(self, waiting: int) -> None:
        self.calls = 0
        self._waiting = waiting

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.calls += 1
        if not self._waiting:
            await trio.sleep(100)
        async with trio.open_nursery() as nursery:
            for _ in range(self._waiting):
                nursery.start_soon(trio.sleep, 100)
        return AssistantMessage("done", usage=Usage(calls=1))


@pytest.mark.parametrize("waiting", [0, 1, 2])
async def test_a_call_that_was_cancelled_in_flight_was_made(waiting: int) -> None:
    meter = Meter()
    slow = InANursery(waiting)
    child = Agent("worker", model=slow)
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            with budget(calls=5):
                nursery.start_soon(orchestrator.run, lead(meter, 8, child), "go")
            await trio.sleep(10)
            tree = orchestrator.tree(orchestrator.runs[-1])
            # Those in flight are not known by name: as many are cancelled as it takes.
            for task in tree.children(tree.root)[:6]:
                await orchestrator.cancel(task)

    assert meter.calls + slow.calls == 5
    assert tree.total.calls == 5
    assert tree.counts()["cancelled"] >= 2


async def test_every_attempt_of_a_model_that_is_asked_again_is_a_call() -> None:
    """Also one that failed without a word of what it has used."""
    attempts: list[float] = []

    class Flaky:
        name = "flaky"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            attempts.append(trio.current_time())
            await trio.sleep(1)
            if len(attempts) % 3:
                raise ModelError("HTTP 503", kind=Failure.OVERLOADED)
            return AssistantMessage("done", usage=Usage(calls=1))

    agent = Agent("top", model=retrying(Flaky()))
    runs: list[Run[str]] = []
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=5):
            for _ in range(5):
                runs.append(await orchestrator.run(agent, "go"))  # noqa: PERF401

    # The last one that was let through may be asked again before anybody knows.
    assert len(attempts) < 5 + 3
    assert sum(run.usage.calls for run in runs) == len(attempts)


async def test_what_ran_out_and_where_is_said() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=1, name="lunch"):
            run = await orchestrator.run(lead(meter, 1, meter.worker()), "go")
    (child,) = run.tree.children(run.tree.root)

    assert run.outcome.kind == "calls"
    assert run.outcome.error == (
        "the budget 'lunch' (calls=1) of /top is used up: 1 model call made"
    )
    assert run.tree[child]["error"] == run.outcome.error


# Tokens and money.


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
            f"level{depth}",
            model=meter.on(model),
            delegates=[agent(depth - 1)] if depth else [],
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
    assert meter.used.cost <= (math.inf if usd is None else usd * 1_000_000)
    assert sum((run.usage for run in runs), Usage()).cost == meter.used.cost
    assert sum(run.usage.tokens for run in runs) == meter.used.tokens


async def test_with_enough_for_all_of_them_all_work_at_once() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tokens=1_000_000):
            run = await orchestrator.run(lead(meter, 8, meter.worker(seconds=10)), "go")

    assert run.tree.counts() == {"succeeded": 9}
    assert meter.most_at_once == 8
    assert trio.current_time() == pytest.approx(10)


async def test_with_enough_for_one_they_wait_for_what_the_others_give_back() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tokens=20_000):
            run = await orchestrator.run(lead(meter, 8, meter.worker(seconds=10)), "go")

    assert run.tree.counts() == {"succeeded": 9}
    assert meter.most_at_once == 1
    assert trio.current_time() == pytest.approx(80)


async def test_who_waits_learns_that_nothing_is_left() -> None:
    """The last reservation comes back, and was used: nobody waits for more."""
    everything = Agent("worker", model=Sized(reads=10, writes=19_000, seconds=10))
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tokens=16_600):
            run = await orchestrator.run(lead(meter, 8, everything), "go")

    assert run.tree.counts() == {"succeeded": 1, "over_budget": 8}
    assert run.outcome.kind == "tokens"
    assert "the budget (tokens=16600) of /top is used up" in run.outcome.error
    assert trio.current_time() == pytest.approx(10)


async def test_whoever_waits_for_a_budget_can_be_cancelled_and_the_others_go_on() -> (
    None
):
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
async def test_who_moves_on_to_wait_for_another_budget_leaves_nobody_behind(
    first_ends_by: str,
) -> None:
    """The first of two who wait for the inner budget finds the outer one full, and ends there."""
    outcomes: dict[str, Outcome] = {}

    async with open_orchestrator(":memory:") as orchestrator:

        async def run(name: str, model: Sized) -> None:
            outcomes[name] = (
                await orchestrator.run(Agent(name, model=model), "go")
            ).outcome

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


async def test_who_needs_little_does_not_wait_for_what_only_another_needs() -> None:
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


async def test_what_a_call_that_was_broken_off_has_read_is_not_given_back() -> None:
    """The provider has read it, and bills it, whoever hung up."""
    read: list[int] = []

    class Billing(Sized):
        async def answer(self, request: ModelRequest) -> AssistantMessage:
            read.append(self.reads)
            return await super().answer(request)

    agent = Agent("top", model=Billing(reads=5_000, seconds=100))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tokens=22_000):
            for _ in range(10):
                with trio.move_on_after(10):
                    await orchestrator.run(agent, "go")

    assert sum(read) <= 22_000


async def test_a_model_whose_price_nobody_knows_is_not_asked_under_a_budget_of_money() -> (
    None
):
    model = Sized(seconds=0)
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=5):
            run = await orchestrator.run(Agent("top", model=model), "go")

    assert (run.outcome.ending, run.outcome.kind) == (Ending.OVER_BUDGET, "usd")
    assert "nobody knows what the next call costs" in run.outcome.error
    assert "say it with open_orchestrator(prices=...)" in run.outcome.error
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


# The cap.


async def test_the_longest_answer_that_can_be_paid_for_is_what_a_model_is_told() -> (
    None
):
    meter = Meter()
    model = ScriptedModel(["x" * 8_000, "y"], price=Price(output=10))
    agent = Agent("top", model=meter.on(model))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=0.05):
            await orchestrator.run(agent, "go")
            await orchestrator.run(agent, "go")

    # $0.05 are 5,000 tokens, and then 3,000.
    assert meter.caps == [4_096, 2_048]


async def test_an_answer_that_needs_more_than_the_cap_is_kept_so_far_and_paid_for() -> (
    None
):
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel(["x" * 100_000])))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tokens=1_000):
            run = await orchestrator.run(agent, "go")

    assert run.outcome.ending is Ending.OVER_BUDGET
    assert run.outcome.kind == "tokens"
    assert "the budget (tokens=1000) of /top" in run.outcome.error
    assert run.usage.tokens == meter.used.tokens == 512 + 1
    assert run.usage.calls == 1
    assert run.outcome.output == "x" * 512 * 4


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
async def test_where_nobody_counts_tokens_no_answer_is_capped(
    allowed: dict[str, Any],
) -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel(["ok"])))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(**allowed):
            await orchestrator.run(agent, "go")

    assert meter.caps == [None]


# What shares a budget.


async def test_budgets_nest_and_an_inner_one_only_tightens() -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok")))
    outcomes: list[Outcome] = []
    async with open_orchestrator(":memory:") as orchestrator:

        async def ask() -> None:
            outcomes.append((await orchestrator.run(agent, "go")).outcome)

        with budget(calls=3, name="outer"):
            with budget(calls=1, name="small"):
                await ask()
                await ask()
            with budget(calls=100, name="large"):
                await ask()
                await ask()
                await ask()
        await ask()

    assert [outcome.ending.value for outcome in outcomes] == [
        "succeeded",
        "over_budget",
        "succeeded",
        "succeeded",
        "over_budget",
        "succeeded",
    ]
    assert "'small'" in outcomes[1].error
    assert "'outer'" in outcomes[4].error
    assert meter.calls == 4


async def test_runs_at_the_same_time_share_the_budget_around_them() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            with budget(calls=7):
                for _ in range(5):
                    top = lead(meter, 5, meter.worker())
                    nursery.start_soon(orchestrator.run, top, "go")

    assert meter.calls == 7


async def test_one_orchestrator_does_not_pay_for_another() -> None:
    """A budget is in the journal of whoever is asked, and counts there."""
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok")))
    with budget(calls=1):
        async with open_orchestrator(":memory:") as orchestrator:
            await orchestrator.run(agent, "go")
            run = await orchestrator.run(agent, "go")

    assert run.outcome.ending is Ending.OVER_BUDGET


def chatty(meter: Meter, helper: Agent) -> Agent:
    """Return an agent that hands everything on in the background, and reports the news."""

    def say(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, ToolMessage):
            return "on its way"
        if last.text.startswith("A task that you handed on"):
            return "news"
        return hand_on(last.text, background=True)

    model = meter.on(ScriptedModel.always(say))
    return Agent("chatty", model=model, delegates=[helper])


async def test_a_budget_around_a_session_is_for_all_that_it_ever_does() -> None:
    meter = Meter()
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=4):
            opened = orchestrator.open_session(chatty(meter, meter.worker()))
            session = await opened.__aenter__()
        # Neither is said inside of the block: the session was opened there.
        first = await session.ask("go")
        await session.wait_idle()
        news = session.replies.receive_nowait()
        second = await session.ask("go on")
        await opened.__aexit__(None, None, None)

    assert first.outcome.succeeded
    assert news.outcome.succeeded
    assert second.outcome.ending is Ending.OVER_BUDGET
    assert meter.calls == 4


async def test_a_budget_around_one_question_is_for_its_turn_and_what_that_handed_on() -> (
    None
):
    """Also for what runs on in the background when the turn is long over."""

    @tool
    async def look() -> str:
        await trio.sleep(50)
        return "seen"

    meter = Meter()
    helper = meter.worker(says=ToolCall("look"), tools=[look])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(chatty(meter, helper)) as session:
            with budget(calls=4):
                asked = await session.ask("go")
            await session.wait_idle()
            news = session.replies.receive_nowait()
            (task,) = session.tree.children(session.tree.root)

    assert asked.outcome.succeeded
    # Two for the turn, two for the task; its third one was too many.
    assert session.tree[task]["status"] == "over_budget"
    assert session.tree[task]["usage"].calls == 2
    # The turn that reads the news was not asked for in the block.
    assert news.text == "news"
    assert meter.calls == 5


async def test_questions_in_one_block_share_it_and_those_after_it_do_not() -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok")))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            with budget(calls=2):
                inside = [(await session.ask("go")).outcome.ending for _ in range(3)]
            after = (await session.ask("go")).outcome.ending

    assert inside == [Ending.SUCCEEDED, Ending.SUCCEEDED, Ending.OVER_BUDGET]
    assert after is Ending.SUCCEEDED


async def test_questions_that_one_turn_reads_are_all_paid_for() -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok", 10)))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "first")
                await trio.sleep(1)
                nursery.start_soon(session.ask, "second")
                with budget(calls=0, name="none"):
                    reply = await session.ask("third")

    assert reply.outcome.ending is Ending.OVER_BUDGET
    assert "'none'" in reply.outcome.error


async def test_the_budget_of_an_agent_bounds_each_of_its_tasks() -> None:
    @tool
    async def again() -> str:
        await trio.lowlevel.checkpoint()
        return "and again"

    meter = Meter()
    child = meter.worker(
        says=ToolCall("again"), tools=[again], budget=Budget(calls=2, name="each")
    )
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead(meter, 3, child), "go")
    children = run.tree.children(run.tree.root)

    assert run.outcome.succeeded
    assert [run.tree[task]["usage"].calls for task in children] == [2, 2, 2]
    assert [run.tree[task]["error"] for task in children] == [
        f"the budget 'each' (calls=2) of /top/worker[{number}] is used up:"
        " 2 model calls made"
        for number in (1, 2, 3)
    ]


async def test_the_budget_of_an_agent_bounds_its_task_with_all_below_it() -> None:
    meter = Meter()
    middle = Agent(
        "middle",
        model=meter.on(ScriptedModel.always(hand_on("x", "y", "z"))),
        delegates=[meter.worker()],
        budget=Budget(calls=3),
    )
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead(meter, 2, middle), "go")
        ended = endings(orchestrator)
    children = run.tree.children(run.tree.root)

    assert run.outcome.succeeded
    assert [run.tree[task]["total"].calls for task in children] == [3, 3]
    for task in ("/top/middle[1]", "/top/middle[2]"):
        assert ended[task] == "over_budget"
        below = [end for path, end in ended.items() if path.startswith(f"{task}/")]
        assert sorted(below) == ["over_budget", "succeeded", "succeeded"]


async def test_the_budget_of_an_agent_bounds_each_copy_of_it() -> None:
    def say(transcript: Transcript) -> Any:
        return "leaf" if transcript[0].text == "leaf" else hand_on("leaf")

    meter = Meter()
    model = meter.on(ScriptedModel.always(say))
    agent = Agent("top", model=model, copies=True, budget=Budget(calls=4))
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(agent, "go")

    # The copies have budgets of their own, and are paid for by the one above them as well.
    assert meter.calls == 4
    assert run.outcome.ending is Ending.OVER_BUDGET


# Kinds that are no amount: tasks, depth, seconds.


def read_by(transcript: Transcript) -> list[tuple[str, bool]]:
    return [
        (said.text, said.failed) for said in transcript if isinstance(said, ToolMessage)
    ]


async def test_a_task_too_many_is_refused_and_the_model_reads_why() -> None:
    heard: list[tuple[str, bool]] = []

    def end(transcript: Transcript) -> str:
        heard.extend(read_by(transcript))
        return "end"

    model = ScriptedModel(
        [hand_on("a", "b", "c"), hand_on("a", "b"), hand_on("d"), end]
    )
    top = Agent("top", model=model, delegates=[worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tasks=2, name="two"):
            run = await orchestrator.run(top, "go")

    assert run.outcome.succeeded
    assert run.tree.counts() == {"succeeded": 3}
    assert [failed for _, failed in heard] == [True, False, True]
    assert heard[0][0] == (
        "the budget 'two' (tasks=2) of /top allows 2 tasks; 0 were handed on, and this"
        " call asks for 3. None was started"
    )
    assert "2 were handed on, and this call asks for 1" in heard[2][0]


async def test_racing_calls_never_hand_on_more_tasks_than_allowed() -> None:
    calls = [hand_on("a") for _ in range(10)]
    top = Agent(
        "top", model=ScriptedModel([calls, "end"]), delegates=[worker(seconds=1)]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(tasks=4):
            run = await orchestrator.run(top, "go")

    assert run.tree.counts() == {"succeeded": 5}


async def test_a_level_too_deep_is_refused_and_the_model_reads_why() -> None:
    heard: list[tuple[str, bool]] = []

    def say(transcript: Transcript) -> Any:
        if isinstance(transcript[-1], ToolMessage):
            heard.extend(read_by(transcript))
            return "done"
        return hand_on("deeper")

    agent = Agent("top", model=ScriptedModel.always(say), copies=True)
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(depth=2):
            run = await orchestrator.run(agent, "go")

    assert run.tree.counts() == {"succeeded": 3}
    assert heard[0] == (
        "the budget (depth=2) of /top allows 2 levels of tasks, and this task is at the"
        " bottom: do the work yourself",
        True,
    )


async def test_the_depth_of_an_agents_budget_is_counted_from_its_task() -> None:
    def say(transcript: Transcript) -> Any:
        return "done" if isinstance(transcript[-1], ToolMessage) else hand_on("deeper")

    middle = Agent(
        "middle",
        model=ScriptedModel.always(say),
        copies=True,
        budget=Budget(depth=1),
    )
    top = Agent("top", model=ScriptedModel([hand_on("a"), "end"]), delegates=[middle])
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(top, "go")
        paths = list(endings(orchestrator))

    assert paths == ["/top", "/top/middle[1]", "/top/middle[1]/middle[1]"]


async def test_when_the_seconds_are_over_all_of_it_ends() -> None:
    top = Agent(
        "top",
        model=ScriptedModel([hand_on("a", "b"), "end"]),
        delegates=[worker(seconds=100)],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(seconds=10, name="lunch"):
            run = await orchestrator.run(top, "go")

    assert (run.outcome.ending, run.outcome.kind) == (Ending.TIMED_OUT, "seconds")
    assert run.outcome.error == "the budget 'lunch' (seconds=10) of /top is used up"
    assert trio.current_time() == pytest.approx(10)
    assert "succeeded" not in run.tree.counts()
    assert "running" not in run.tree.counts()


async def test_the_seconds_begin_with_the_first_that_is_asked_for() -> None:
    outcomes: list[Outcome] = []
    agent = Agent("top", model=ScriptedModel.always("ok", 6))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(seconds=10):
            await trio.sleep(100)
            for _ in range(3):
                outcomes.append((await orchestrator.run(agent, "go")).outcome)  # noqa: PERF401

    assert [outcome.ending.value for outcome in outcomes] == [
        "succeeded",
        "timed_out",
        "timed_out",
    ]
    assert trio.current_time() == pytest.approx(110)


async def test_the_seconds_of_a_child_are_its_own_and_its_parent_goes_on() -> None:
    child = Agent(
        "child", model=ScriptedModel.always("ok", 100), budget=Budget(seconds=7)
    )
    top = Agent("top", model=ScriptedModel([hand_on("a"), "end"]), delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(top, "go")
    (task,) = run.tree.children(run.tree.root)

    assert run.output == "end"
    assert run.tree[task]["status"] == "timed_out"
    assert (
        "the budget (seconds=7) of /top/child[1] is used up" in run.tree[task]["error"]
    )
    assert trio.current_time() == pytest.approx(7)


# Odd amounts.


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("calls", Ending.OVER_BUDGET),
        ("tokens", Ending.OVER_BUDGET),
        ("usd", Ending.OVER_BUDGET),
        ("seconds", Ending.TIMED_OUT),
    ],
)
async def test_a_budget_of_nothing_allows_nothing(kind: str, ending: Ending) -> None:
    meter = Meter()
    model = ScriptedModel.always("ok", 1, price=Price(output=10))
    nothing: dict[str, Any] = {kind: 0}
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(**nothing):
            run = await orchestrator.run(Agent("top", model=meter.on(model)), "go")

    assert (run.outcome.ending, run.outcome.kind) == (ending, kind)
    assert meter.used == Usage()
    assert meter.calls == 0


@pytest.mark.parametrize("kind", ["tasks", "depth"])
async def test_a_budget_of_no_tasks_leaves_an_agent_to_work_alone(kind: str) -> None:
    top = Agent("top", model=ScriptedModel([hand_on("a"), "end"]), delegates=[worker()])
    nothing: dict[str, Any] = {kind: 0}
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(**nothing):
            run = await orchestrator.run(top, "go")

    assert run.output == "end"
    assert run.tree.counts() == {"succeeded": 1}


@pytest.mark.parametrize("amount", [-1, math.nan])
@pytest.mark.parametrize("kind", COUNTS)
def test_an_amount_that_makes_no_sense_is_refused(kind: str, amount: float) -> None:
    with pytest.raises(DefinitionError, match=kind):
        with budget(**{kind: amount}):  # type: ignore[arg-type]
            pass
    with pytest.raises(DefinitionError, match=kind):
        Budget(**{kind: amount})  # type: ignore[arg-type]


@pytest.mark.parametrize("amount", [1_000_000, 1_234_567])
def test_a_large_budget_is_named_in_full(amount: int) -> None:
    assert str(amount) in str(Budget(tokens=amount)).replace(",", "")


@pytest.mark.parametrize("kind", ["usd", "seconds"])
async def test_an_endless_budget_is_no_limit(kind: str) -> None:
    """Or it is refused where it is made, but it does not end a run with a riddle."""
    endless: dict[str, Any] = {kind: math.inf}
    journal = MemoryJournal()
    try:
        Budget(**endless)
    except DefinitionError:
        return
    async with open_orchestrator(journal) as orchestrator:
        with budget(**endless):
            run = await orchestrator.run(worker(), "go")
    async with open_orchestrator(journal):
        pass

    assert run.outcome == Outcome(Ending.SUCCEEDED, "done")


@pytest.mark.realtime
@pytest.mark.parametrize("kind", ["calls", "tokens", "tasks", "depth"])
async def test_half_a_call_is_refused_or_can_be_read_back(
    kind: str, tmp_path: Path
) -> None:
    """What cannot be read back must not be written: it would lock everybody out."""
    half: dict[str, Any] = {kind: 2.5}
    try:
        Budget(**half)
    except DefinitionError:
        return
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        with budget(**half):
            run = await orchestrator.run(worker(), "go")
    async with open_orchestrator(path) as again:
        assert (await again.read_tree(run.id)).to_text() == run.tree.to_text()


async def test_the_limits_of_an_agent_hold_with_and_without_a_budget() -> None:
    @tool
    async def again() -> str:
        await trio.lowlevel.checkpoint()
        return "and again"

    meter = Meter()
    agent = meter.worker(
        says=ToolCall("again"), tools=[again], limits=Limits(model_calls=2)
    )
    outcomes: list[Outcome] = []
    async with open_orchestrator(":memory:") as orchestrator:
        outcomes.append((await orchestrator.run(agent, "go")).outcome)
        with budget(calls=100):
            outcomes.append((await orchestrator.run(agent, "go")).outcome)

    assert [outcome.ending for outcome in outcomes] == [Ending.OVER_BUDGET] * 2
    assert {outcome.error for outcome in outcomes} == {
        "used up its limit of 2 model calls"
    }
    assert meter.calls == 4


async def test_the_limit_of_seconds_is_named_if_it_is_nearer_than_the_budget() -> None:
    agent = Agent("top", model=ScriptedModel.always("x", 100), limits=Limits(seconds=5))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(seconds=50):
            run = await orchestrator.run(agent, "go")

    assert run.outcome.ending is Ending.TIMED_OUT
    assert run.outcome.error == "used up its limit of 5 seconds"


# Over a restart.


@pytest.mark.realtime
async def test_after_a_restart_the_spent_part_is_spent(tmp_path: Path) -> None:
    meter = Meter()
    model = meter.on(ScriptedModel.always("ok"))
    agent = Agent("top", model=model, budget=Budget(calls=3))
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("one")
            await session.ask("two")
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(agent, session=session.id) as again:
            three = await again.ask("three")
            four = await again.ask("four")

    assert three.outcome.succeeded
    assert (four.outcome.ending, four.outcome.kind) == (Ending.OVER_BUDGET, "calls")
    assert "the budget (calls=3) of /top is used up" in four.outcome.error
    assert meter.calls == 3


@pytest.mark.realtime
async def test_a_block_that_is_long_gone_still_bounds_the_session_opened_in_it(
    tmp_path: Path,
) -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok")))
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        with budget(calls=1, name="gone"):
            async with orchestrator.open_session(agent) as session:
                await session.ask("one")
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(agent, session=session.id) as again:
            two = await again.ask("two")

    assert two.outcome.ending is Ending.OVER_BUDGET
    assert "the budget 'gone' (calls=1) of /top" in two.outcome.error


@pytest.mark.realtime
async def test_one_block_over_several_processes_is_one_budget(tmp_path: Path) -> None:
    """Runs that are long at rest have used of it what they have used."""
    meter = Meter()
    path = tmp_path / "journal.db"
    outcomes: list[Outcome] = []
    with budget(calls=7, tasks=3, name="shared"):
        for _ in range(4):
            async with open_orchestrator(path) as orchestrator:
                run = await orchestrator.run(
                    lead(meter, 1, meter.worker(seconds=0)), "go"
                )
                outcomes.append(run.outcome)

    # Three calls each, until one is left; then none is.
    assert [outcome.ending.value for outcome in outcomes] == [
        "succeeded",
        "succeeded",
        "over_budget",
        "over_budget",
    ]
    assert meter.calls == 7
    assert "the budget 'shared' (calls=7, tasks=3) of /top" in outcomes[-1].error


@pytest.mark.realtime
async def test_a_session_that_was_at_rest_has_used_what_it_has_used_and_no_more(
    tmp_path: Path,
) -> None:
    meter = Meter()
    agent = Agent("top", model=meter.on(ScriptedModel.always("ok")))
    path = tmp_path / "journal.db"
    endings: list[Ending] = []
    async with open_orchestrator(path) as orchestrator:
        with budget(calls=6):
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
            # Somebody else shares it.
            await orchestrator.run(agent, "go")
    for _ in range(5):
        async with open_orchestrator(path) as orchestrator:
            async with orchestrator.open_session(agent, session=session.id) as again:
                endings.append((await again.ask("go on")).outcome.ending)

    assert endings == [Ending.SUCCEEDED] * 4 + [Ending.OVER_BUDGET]
    assert meter.calls == 6


@pytest.mark.realtime
async def test_a_call_that_the_end_of_a_process_broke_off_counts_in_the_next(
    tmp_path: Path,
) -> None:
    asked = trio.Event()

    class Stuck:
        name = "stuck"

        async def answer(self, _: ModelRequest) -> AssistantMessage:
            asked.set()
            await trio.sleep_forever()
            return AssistantMessage("never")

    path = tmp_path / "journal.db"
    meter = Meter()
    task_budget = Budget(calls=1)
    stuck = Agent("worker", model=Stuck(), budget=task_budget)
    quick = meter.worker(budget=task_budget)
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(chatty(meter, stuck)) as session:
            await session.ask("go")
            await asked.wait()
    calls = meter.calls
    async with open_orchestrator(path) as orchestrator:
        opened = orchestrator.open_session(chatty(meter, quick), session=session.id)
        async with opened as again:
            await again.wait_idle()
            (task,) = again.tree.children(again.tree.root)

    assert again.tree[task]["status"] == "over_budget"
    # The turn that reads the news, and nothing else.
    assert meter.calls == calls + 1


async def test_a_crash_after_any_entry_never_books_more_than_the_budget() -> None:
    def team() -> Agent:
        def say(transcript: Transcript) -> Any:
            told = [said for said in transcript if isinstance(said, ToolMessage)]
            return "end" if told else hand_on("a", "b", "c", "d", background=True)

        model = ScriptedModel.always(say, 0.5)
        return Agent("top", model=model, delegates=[worker(seconds=1)])

    async def finish(journal: MemoryJournal) -> list[Any]:
        opened = facts(journal.entries, SessionOpened)
        async with open_orchestrator(journal) as orchestrator:
            id_ = opened[0].session if opened else None
            with budget(calls=5):
                async with orchestrator.open_session(team(), session=id_) as session:
                    if session.tree[session.tree.root]["goal"] == "":
                        await session.ask("go")
                    await session.wait_idle()
        calls = [*facts(journal.entries, ModelAnswered)]
        return [*calls, *facts(journal.entries, ModelFailed)]

    whole = MemoryJournal()
    assert len(await finish(whole)) == 5
    for length in range(1, len(whole.entries)):
        calls = await finish(MemoryJournal(whole.entries[:length]))

        assert len(calls) == 5, length


async def test_what_the_model_reads_of_a_child_over_budget_says_what_to_know() -> None:
    heard: list[Any] = []

    def end(transcript: Transcript) -> str:
        heard.append(json.loads(transcript[-1].text))
        return "end"

    child = Agent("child", model=ScriptedModel(["never"]), budget=Budget(calls=0))
    model = ScriptedModel([hand_on("a"), end])
    top = Agent("top", model=model, delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(top, "go")

    (result,) = heard[0]["results"]
    assert result["status"] == "over_budget"
    assert "the budget (calls=0) of /top/child[1] is used up" in result["error"]
    assert result["tokens"] == 0


async def test_what_is_said_to_a_task_under_a_budget_is_unchanged_by_it() -> None:
    told: list[Transcript] = []

    def say(transcript: Transcript) -> str:
        told.append(list(transcript))
        return "ok"

    agent = Agent("top", model=ScriptedModel.always(say))
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=1, tokens=50_000, calls=9, seconds=9, tasks=9, depth=9):
            run = await orchestrator.run(agent, "go")

    assert run.output == "ok"
    assert told == [[UserMessage("go")]]
