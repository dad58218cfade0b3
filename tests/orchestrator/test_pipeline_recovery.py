"""Crash after every entry: a pipeline runs again, and nothing that it delegated is done twice."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import trio

from orchestrator import TaskFailedError, budget, delegate, detach, map_each, race, retry
from orchestrator.agents import (
    Agent,
    Pipeline,
    ScriptedModel,
    ToolMessage,
    Transcript,
    UserMessage,
    agent,
)
from orchestrator.delegation import Ending
from orchestrator.delegation.events import (
    Entry,
    ModelAnswered,
    TaskRequested,
    TaskSettled,
    TurnEnded,
)
from tests.kit import continue_session, facts, hand_on, worker


def echo(name: str, seconds: float = 1) -> Agent:
    """Return an agent whose answers depend on its goal, and on nothing else."""
    return Agent(
        name, model=ScriptedModel.always(lambda said: f"{name} of {said[0].text}", seconds)
    )


def whole_pipeline() -> Pipeline[str, str]:
    """Return a pipeline that does everything that a crash could spoil."""
    reader, quick, slow = echo("reader"), echo("quick"), echo("slow", 30)
    broken = Agent("broken", model=ScriptedModel.always(RuntimeError("it broke"), 0.2))

    @agent
    async def inner(topic: str) -> str:
        first = await detach(quick, f"{topic} first")
        second = await delegate(quick, f"{topic} second")
        return f"{await first.result()} and {second}"

    @agent
    async def brief(topic: str) -> str:
        parts = [topic, "a", "b", "b"]
        read = await delegate(map_each(reader, limit=2), parts)
        try:
            await delegate(retry(broken, times=2), topic)
        except TaskFailedError as exc:
            read.append(str(exc.outcome.ending))
        with trio.move_on_after(0.5) as patience:
            await delegate(slow, topic)
        read.append(f"gave up: {patience.cancelled_caught}")
        with budget(calls=10):
            read.append(await delegate(inner, topic))
        read.append(await delegate(race(slow, quick), "race"))
        await detach(quick, "not awaited")
        return "; ".join(read)

    return brief


def team() -> Agent:
    """Return an agent that delegates to one pipeline joined, and to one detached."""

    def lead(transcript: Transcript) -> Any:
        answered = sum(isinstance(message, ToolMessage) for message in transcript)
        last = transcript[-1]
        if isinstance(last, UserMessage) and last.text.startswith("A task"):
            return "heard: " + last.text.partition("Output:\n")[2]
        steps = [
            hand_on("now", agent="brief", background=False),
            hand_on("later", agent="brief", background=True),
            "on its way",
        ]
        return steps[answered]

    return Agent(
        "lead", model=ScriptedModel.always(lead), delegates=[whole_pipeline(), worker("other")]
    )


def asked_for(entries: Sequence[Entry]) -> Counter[tuple[str, str]]:
    requests = (fact.request for fact in facts(entries, TaskRequested))
    return Counter((request.agent, request.goal) for request in requests)


def how_it_ended(entries: Sequence[Entry]) -> Counter[tuple[str, Ending]]:
    agents = {fact.request.id: fact.request.agent for fact in facts(entries, TaskRequested)}
    return Counter((agents[fact.task], fact.outcome.ending) for fact in facts(entries, TaskSettled))


async def test_a_crash_after_any_entry_repeats_no_delegation() -> None:
    """The program finds its earlier children by their requests."""
    whole = await continue_session(team(), [], takes_replies=True)
    answers = [fact.outcome.output for fact in facts(whole, TurnEnded)]

    assert len(whole) > 60
    assert len(answers) == 2
    assert "gave up: True" in answers[1]
    for length in range(1, len(whole)):
        entries = await continue_session(team(), whole[:length], takes_replies=True)

        assert asked_for(entries) == asked_for(whole), length
        settled = Counter(fact.task for fact in facts(entries, TaskSettled))
        asked = [fact.request.id for fact in facts(entries, TaskRequested)]
        assert settled == Counter(asked), length
        assert how_it_ended(entries) == how_it_ended(whole), length
        ended = [fact.outcome.output for fact in facts(entries, TurnEnded)]
        assert ended == answers, length


async def test_a_session_that_is_a_pipeline_goes_on_after_any_crash() -> None:
    whole = await continue_session(whole_pipeline(), [], takes_replies=True)

    for length in range(1, len(whole)):
        entries = await continue_session(whole_pipeline(), whole[:length], takes_replies=True)

        assert asked_for(entries) == asked_for(whole), length
        ended = [fact.outcome for fact in facts(entries, TurnEnded)]
        assert ended == [fact.outcome for fact in facts(whole, TurnEnded)], length


async def test_a_model_answer_recorded_before_a_crash_is_not_asked_again() -> None:
    """A model whose answer is in the journal is not asked once more."""
    whole = await continue_session(team(), [], takes_replies=True)
    answered = len(facts(whole, ModelAnswered))
    for length in range(1, len(whole), 7):
        entries = await continue_session(team(), whole[:length], takes_replies=True)

        assert len(facts(entries, ModelAnswered)) == answered, length
