"""`delegate(..., after=...)`: dependencies between the tasks that a function delegates."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from orchestrator import (
    Child,
    TaskFailedError,
    agent,
    budget,
    delegate,
    detach,
    open_orchestrator,
    parallel,
)
from orchestrator.agents import Agent, DefinitionError, Pipeline, ScriptedModel
from orchestrator.delegation import Cause, Ending, Rules
from orchestrator.delegation.events import Entry, TaskRequested, TurnEnded
from orchestrator.simulation import SimulationSettings, simulate_once
from orchestrator.testing import assert_laws
from tests.kit import continue_session, facts, run, statuses


@attrs.frozen
class Facts:
    words: list[str]


@attrs.frozen
class Price:
    euros: int


def echo(name: str, seconds: float = 1) -> Agent:
    return Agent(name, model=ScriptedModel.always(lambda said: f"<{said[0].text}>", seconds))


research = Agent("research", output=Facts, model=ScriptedModel.always('{"words": ["a", "b"]}', 2))
price = Agent("price", output=Price, model=ScriptedModel.always('{"euros": 5}', 1))
write = echo("write")


@agent
async def count(given: Facts) -> int:
    return len(given.words)


@agent
async def report(given: tuple[Facts, Price]) -> str:
    found, cost = given
    return f"{' '.join(found.words)} for {cost.euros}"


@agent
async def shout(text: str) -> str:
    return text.upper()


@agent
async def joined(texts: list[str]) -> str:
    return "+".join(texts)


@agent
async def diamond(topic: str) -> str:
    """Return a report on two results, of which one is read twice."""
    found = await detach(research, topic)
    cost = await detach(price, topic)
    number = await detach(count, after=found)
    text = await detach(report, after=(found, cost))
    loud = await detach(shout, after=text)
    return f"{await loud.result()}: {await number.result()}"


async def test_outputs_of_dependencies_are_the_input_of_a_function() -> None:
    done = await run(diamond)

    assert done.output == "A B FOR 5: 2"
    tree = done.tree
    paths = {tree[it].path: [tree[need].path for need in tree.needs(it)] for it in tree}
    assert paths["/diamond/report[1]"] == ["/diamond/research[1]", "/diamond/price[1]"]
    assert paths["/diamond/shout[1]"] == ["/diamond/report[1]"]


async def test_model_reads_the_goal_and_the_outputs_of_dependencies() -> None:
    @agent
    async def brief(topic: str) -> list[str]:
        first, second = await detach(shout, "one"), await detach(shout, "two")
        with_goal = await delegate(write, f"on {topic}", after=[first, second])
        return [with_goal, await delegate(write, after=first)]

    done = await run(brief, "swims")

    assert done.output == [
        "<on swims\n\nResult of /brief/shout[1], which this needs:\nONE"
        "\n\nResult of /brief/shout[2], which this needs:\nTWO>",
        "<Result of /brief/shout[1], which this needs:\nONE>",
    ]


async def test_list_of_dependencies_is_a_list_of_outputs() -> None:
    @agent
    async def brief(words: list[str]) -> str:
        return await delegate(joined, after=[await detach(shout, word) for word in words])

    assert [(await run(brief, words)).output for words in ('["a", "b"]', '["a"]')] == ["A+B", "A"]


async def test_tasks_with_dependencies_are_in_the_tree_before_they_start() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(diamond) as session, trio.open_nursery() as nursery:
            nursery.start_soon(session.ask, "go")
            await wait_all_tasks_blocked()
            before = statuses(session.tree)
            shown = session.tree.to_text()
            await session.wait_idle()
            after = statuses(session.tree)
    assert before["/diamond/report[1]"] == "queued"
    assert before["/diamond/shout[1]"] == "queued"
    assert "after research[1], price[1]" in shown
    assert after["/diamond/shout[1]"] == "succeeded"


async def test_arrows_between_composed_agents() -> None:
    """`>>` and `parallel` are agents, so each is a dependency and a dependent."""

    @agent
    async def brief(topic: str) -> str:
        both = await detach(parallel(research, price), topic)
        return await delegate(report >> shout, after=both)

    done = await run(brief)

    assert done.output == "A B FOR 5"
    assert "n1 ==> n4" in done.tree.to_mermaid()


async def test_failed_dependency_refuses_its_dependents() -> None:
    broken = Agent("broken", model=ScriptedModel.always(RuntimeError("it broke"), 1))
    endings: list[tuple[Ending, Cause]] = []

    @agent
    async def brief(topic: str) -> str:
        failing = await detach(broken, topic)
        early = await detach(shout, after=failing)
        with pytest.raises(TaskFailedError, match="which ended as refused"):
            await delegate(write, "later", after=early)
        # Its dependency has failed already.
        late = await detach(shout, after=failing)
        endings.extend((it.ending, it.cause) for it in (await early.wait(), await late.wait()))
        return "done"

    assert (await run(brief)).output == "done"
    assert endings == [(Ending.REFUSED, Cause.DEPENDENCY)] * 2


async def test_dependent_of_a_cancelled_task_is_refused_and_a_cancelled_one_never_starts() -> None:
    slow = echo("slow", 100)

    @agent
    async def brief(topic: str) -> str:
        first = await detach(slow, topic)
        second = await detach(write, "second", after=first)
        with trio.move_on_after(1):
            await delegate(write, "third", after=first)
        await first.cancel()
        return (await second.wait()).ending

    done = await run(brief)

    assert done.output == "refused"
    assert statuses(done.tree)["/brief/write[2]"] == "cancelled"
    cancelled = done.tree.at("/brief/write[2]")
    assert cancelled is not None
    assert done.tree[cancelled].started is None


async def test_dependent_takes_no_slot_and_pays_from_the_budget_around_it() -> None:
    @agent
    async def brief(topic: str) -> str:
        first = await detach(write, "one")
        with budget(calls=1):
            second = await detach(write, "two", after=first)
            third = await detach(write, "three", after=second)
        return (await third.wait()).ending

    done = await run(brief, rules=Rules(live_children=1))

    assert done.output == "over_budget"
    assert done.tree.total.calls == 2


async def test_cycle_is_refused_and_named_before_it_starts() -> None:
    known: list[Child[Any]] = []

    @agent
    async def inner(topic: str) -> str:
        return await delegate(write, topic, after=known[0])

    @agent
    async def middle(topic: str) -> str:
        return await delegate(inner, topic)

    @agent
    async def brief(topic: str) -> str:
        child = await detach(middle, topic)
        known.append(child)
        return await child.result()

    done = await run(brief)

    assert done.outcome.ending is Ending.FAILED
    assert (
        "cycle /brief/middle[1] → /brief/middle[1]/inner[1] → /brief/middle[1]/inner[1]/write"
        " → /brief/middle[1]"
    ) in done.outcome.error


async def test_wrong_dependencies_are_refused() -> None:
    anything: Any = delegate

    @agent
    async def inner(topic: str) -> str:
        return await delegate(write, topic, after=known[0])

    @agent
    async def brief(topic: str) -> str:
        with pytest.raises(DefinitionError, match="'write' has no input"):
            await anything(write)
        with pytest.raises(DefinitionError, match="'write' has no input"):
            await anything(write, after=[])
        with pytest.raises(DefinitionError, match="after 'facts': it is no task"):
            await anything(write, after=["facts"])
        known.append(await detach(write, "one"))
        with pytest.raises(TaskFailedError, match=r"/brief/write.* has not delegated"):
            await delegate(inner, topic)
        return "done"

    known: list[Child[Any]] = []
    assert (await run(brief)).output == "done"


def outcome_of(entries: Sequence[Entry]) -> list[str]:
    return [it.outcome.output for it in facts(entries, TurnEnded)]


def calls_of(entries: Sequence[Entry]) -> list[str]:
    return sorted(it.request.call for it in facts(entries, TaskRequested))


@agent
async def equal_goals(topic: str) -> str:
    """Delegate equal goals after different tasks."""
    first, second = await detach(shout, "a"), await detach(shout, "b")
    return "|".join([await delegate(write, after=first), await delegate(write, after=second)])


@pytest.mark.parametrize("pipeline", [diamond, equal_goals])
async def test_crash_after_any_fact_requests_no_task_twice(pipeline: Pipeline[str, str]) -> None:
    whole = await continue_session(pipeline, [])

    for length in range(1, len(whole)):
        entries = await continue_session(pipeline, whole[:length])
        assert_laws(entries)
        assert outcome_of(entries) == outcome_of(whole), length
        assert calls_of(entries) == calls_of(whole), length
    assert len(set(calls_of(whole))) == len(calls_of(whole))


def test_simulation_runs_dependencies_in_order() -> None:
    simulated = simulate_once(diamond, "go", SimulationSettings(), seed=1)
    tree = simulated.tree

    for task in tree:
        started = tree[task].started
        for need in tree.needs(task):
            ended = tree[need].ended
            assert started is not None
            assert ended is not None
            assert ended <= started
    assert sum(len(tree.needs(task)) for task in tree) == 4
