"""Quiet and stalled: who shows no sign of life is seen, and in the end stopped, once."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import MemoryJournal, Orchestrator, budget, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Limits,
    Model,
    ModelEvent,
    ModelRequest,
    Patience,
    ReasoningDelta,
    ScriptedModel,
    TextDelta,
    Tool,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    tool,
)
from orchestrator.delegation import Cause, Ending, Rules, TaskId
from orchestrator.delegation.events import (
    Entry,
    MessageReceived,
    QuietChanged,
    SessionOpened,
    TaskSettled,
)
from orchestrator.testing import SpyModel, StreamingModel
from orchestrator.testing.models import Piece
from tests.kit import FunctionModel, facts, hand_on, worker

NEVER = Patience(quiet=None, stalled=None, stalled_in_tool=None)


def streaming(words: int, every: float = 50, event: ModelEvent | None = None) -> StreamingModel:
    """Return a model that emits an event now and then, and answers after so many of them."""
    pieces: list[Piece] = [every, event or TextDelta("word ")] * words
    return StreamingModel.always(*pieces, AssistantMessage("done", usage=Usage(calls=1)))


def tool_of(seconds: float, *, idempotent: bool = False) -> Tool:
    @tool(name="work", idempotent=idempotent)
    async def work() -> str:
        """Work for a while, and say nothing."""
        await trio.sleep(seconds)
        return "worked"

    return work


def steps(*said: Any, seconds: float = 0) -> ScriptedModel:
    """Return a model that goes through steps as a function of the transcript."""

    def say(transcript: Transcript) -> Any:
        return said[sum(isinstance(it, AssistantMessage) for it in transcript)]

    return ScriptedModel.always(say, seconds)


def lead(child: Agent, *, background: bool = False) -> Agent:
    def say(transcript: Transcript) -> Any:
        if len(transcript) == 1:
            return hand_on("a", background=background)
        return "end"

    return Agent("top", model=ScriptedModel.always(say), delegates=[child])


class Observed:
    """One run of a lead with one child, looked at while it goes on."""

    def __init__(self, orchestrator: Orchestrator, journal: MemoryJournal) -> None:
        self.orchestrator = orchestrator
        self._journal = journal

    @property
    def child(self) -> TaskId:
        tree = self.orchestrator.tree(self.orchestrator.runs[-1])
        return tree.children(tree.root)[0]

    @property
    def status(self) -> str:
        tree = self.orchestrator.tree(self.orchestrator.runs[-1])
        return str(tree[self.child].status)

    @property
    def changes(self) -> list[bool]:
        """Whether it became quiet, each time that this has changed."""
        return quiet_changes(self._journal.entries)


def quiet_changes(entries: Sequence[Entry]) -> list[bool]:
    return [fact.quiet for fact in facts(entries, QuietChanged)]


async def statuses_at(child: Agent, *moments: float) -> tuple[list[str], list[Entry]]:
    """Return what a joined child is seen to do at some moments, and all the facts."""
    journal = MemoryJournal()
    seen: list[str] = []
    async with open_orchestrator(journal) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead(child), "go")
            for moment in moments:
                await trio.sleep(moment - trio.current_time())
                seen.append(Observed(orchestrator, journal).status)
    return seen, journal.entries


async def settled(child: Agent) -> tuple[TaskSettled, list[Entry]]:
    """Return how a joined child ends: once, and its parent goes on."""
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(lead(child), "go")
    (fact,) = facts(journal.entries, TaskSettled)

    assert run.output == "end"
    return fact, journal.entries


# Quiet.


async def test_a_task_silent_for_a_minute_is_quiet_and_continues() -> None:
    child = Agent("child", model=ScriptedModel.always("late", 500))
    seen, entries = await statuses_at(child, 1, 59, 61, 499, 501)

    assert seen == ["running", "running", "quiet", "quiet", "succeeded"]
    assert quiet_changes(entries)[0] is True


async def test_quiet_ends_with_the_next_answer_of_a_model() -> None:
    model = steps(ToolCall("work"), "done", seconds=100)
    child = Agent("child", model=model, tools=[tool_of(0)])
    seen, _ = await statuses_at(child, 59, 61, 101, 159)

    assert seen == ["running", "quiet", "running", "running"]


async def test_quiet_ends_with_the_next_answer_of_a_tool() -> None:
    model = steps(ToolCall("work"), "done", seconds=10)
    child = Agent("child", model=model, tools=[tool_of(100)])
    seen, entries = await statuses_at(child, 69, 71, 111, 121)

    assert seen == ["running", "quiet", "running", "succeeded"]
    assert quiet_changes(entries) == [True, False]


async def test_quiet_ends_with_the_next_word() -> None:
    child = Agent("child", model=streaming(2, every=100))
    seen, _ = await statuses_at(child, 61, 101)

    assert seen == ["quiet", "running"]


async def test_a_task_that_falls_silent_again_is_quiet_again() -> None:
    child = Agent("child", model=streaming(4, every=100))
    seen, _ = await statuses_at(child, 61, 101, 159, 161, 201, 259, 261)

    assert seen == ["quiet", "running", "running", "quiet", "running", "running", "quiet"]


async def test_a_task_that_is_never_stopped_can_be_quiet_again() -> None:
    patience = Patience(quiet=60, stalled=None, stalled_in_tool=None)
    child = Agent("child", model=streaming(3, every=1_000), patience=patience)
    seen, entries = await statuses_at(child, 61, 1_001, 1_061, 2_001, 2_061)

    assert seen == ["quiet", "running", "quiet", "running", "quiet"]
    assert quiet_changes(entries)[:5] == [True, False, True, False, True]


@pytest.mark.parametrize("event", [TextDelta("word "), ReasoningDelta("hmm ")])
async def test_a_streaming_task_is_never_quiet_and_never_stalled(event: ModelEvent) -> None:
    child = Agent("child", model=streaming(100, every=50, event=event))
    fact, entries = await settled(child)

    assert fact.outcome.ending is Ending.SUCCEEDED
    assert quiet_changes(entries) == []
    assert trio.current_time() == pytest.approx(5_000)


async def test_a_list_shows_quiet_tasks() -> None:
    read: list[Any] = []

    def say(transcript: Transcript) -> Any:
        answers = [said.text for said in transcript if isinstance(said, ToolMessage)]
        script: list[Any] = [
            hand_on("a", background=True),
            ToolCall("task", {"action": "wait", "seconds": 70}),
            ToolCall("task", {"action": "list"}),
            ToolCall("task", {"action": "wait"}),
        ]
        read[:] = map(json.loads, answers)
        return script[len(answers)] if len(answers) < len(script) else "end"

    child = Agent("child", model=ScriptedModel.always("late", 100))
    agent = Agent("top", model=ScriptedModel.always(say), delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")

    assert read[1]["running"][0]["status"] == "quiet"
    assert read[2]["tasks"][0]["status"] == "quiet"
    assert read[3]["results"][0]["status"] == "succeeded"


async def test_the_drawn_tree_shows_quiet_tasks() -> None:
    child = Agent("child", model=ScriptedModel.always("late", 100))
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead(child), "go")
            await trio.sleep(61)
            text = orchestrator.tree(orchestrator.runs[-1]).to_text()
            now = orchestrator.now()
            rows = list(orchestrator.tree(orchestrator.runs[-1]).rows(now=now))

    assert "quiet" in text
    assert len(rows) == 2


# Who is not watched, or not for long.


async def test_a_task_that_waits_for_its_children_is_never_quiet() -> None:
    leaf = Agent("leaf", model=streaming(100, every=50))
    middle = Agent("middle", model=steps(hand_on("x"), "up"), delegates=[leaf])
    fact, entries = await settled_of(middle, "/top/middle[1]")

    assert fact.outcome.ending is Ending.SUCCEEDED
    assert quiet_changes(entries) == []


async def settled_of(child: Agent, path: str) -> tuple[TaskSettled, list[Entry]]:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(lead(child), "go")
    (task,) = (task for task in run.tree if run.tree[task].path == path)
    (fact,) = (it for it in facts(journal.entries, TaskSettled) if it.task == task)
    return fact, journal.entries


async def test_a_task_that_waits_for_queued_children_is_never_quiet() -> None:
    leaf = Agent("leaf", model=streaming(30, every=49))
    middle = Agent("middle", model=steps(hand_on("x", "y", "z"), "up"), delegates=[leaf])
    journal = MemoryJournal()
    rules = Rules(live_tasks=1)
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        run = await orchestrator.run(lead(middle), "go")

    assert run.tree.counts() == {"succeeded": 5}
    assert quiet_changes(journal.entries) == []
    assert trio.current_time() == pytest.approx(3 * 30 * 49)


@pytest.mark.parametrize("attempt", range(8))
async def test_a_task_checked_when_its_last_child_ends_is_not_quiet(attempt: int) -> None:
    """It is looked at every minute, and its child ends in the second one."""
    leaf = Agent("leaf", model=streaming(4, every=30))
    middle = Agent("middle", model=steps(hand_on("x"), "up"), delegates=[leaf])
    _, entries = await settled_of(middle, "/top/middle[1]")

    assert quiet_changes(entries) == [], attempt


@pytest.mark.parametrize("attempt", range(8))
async def test_a_task_checked_when_its_last_child_ends_is_not_stalled(attempt: int) -> None:
    patience = Patience(quiet=None, stalled=60, stalled_in_tool=60)
    leaf = Agent("leaf", model=streaming(4, every=30))
    middle = Agent("middle", model=steps(hand_on("x"), "up"), delegates=[leaf], patience=patience)
    fact, _ = await settled_of(middle, "/top/middle[1]")

    assert fact.outcome.error == "", attempt


async def test_a_quiet_child_does_not_make_its_parent_quiet() -> None:
    patience = Patience(quiet=60, stalled=5_000)
    leaf = Agent("leaf", model=ScriptedModel.always("late", 2_000), patience=patience)
    middle = Agent("middle", model=steps(hand_on("x"), "up"), delegates=[leaf])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead(middle), "go")
            await trio.sleep(1_500)
            tree = orchestrator.tree(orchestrator.runs[-1])
            seen = {tree[task].path: str(tree[task].status) for task in tree}

    assert seen == {
        "/top": "running",
        "/top/middle[1]": "running",
        "/top/middle[1]/leaf[1]": "quiet",
    }
    assert tree.counts() == {"succeeded": 3}


async def test_a_task_silent_after_its_children_is_stopped_in_time() -> None:
    """From the end of the last child on, its silence is its own."""
    leaf = Agent("leaf", model=streaming(25, every=50))
    model = late(steps(hand_on("x"), "late"), 100_000)
    middle = Agent("middle", model=model, delegates=[leaf])
    fact, _ = await settled_of(middle, "/top/middle[1]")

    assert fact.outcome.ending is Ending.TIMED_OUT
    assert trio.current_time() == pytest.approx(1_250 + 900)


async def test_the_turn_of_a_session_is_not_watched() -> None:
    journal = MemoryJournal()
    agent = Agent("top", model=ScriptedModel.always("late", 10_000))
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            reply = await session.ask("go")
        run = await orchestrator.run(agent, "go")

    assert reply.text == run.output == "late"
    assert quiet_changes(journal.entries) == []


async def test_endless_patience_never_ends() -> None:
    child = Agent("child", model=ScriptedModel.always("late", 100_000), patience=NEVER)
    fact, entries = await settled(child)

    assert fact.outcome.ending is Ending.SUCCEEDED
    assert quiet_changes(entries) == []


async def test_a_task_that_is_never_quiet_can_still_stall() -> None:
    patience = Patience(quiet=None, stalled=100)
    child = Agent("child", model=ScriptedModel.always("late", 500), patience=patience)
    fact, entries = await settled(child)

    assert fact.outcome.ending is Ending.TIMED_OUT
    assert quiet_changes(entries) == []
    assert trio.current_time() == pytest.approx(100)


# Stalled.


async def test_a_stalled_child_is_stopped_with_its_place_and_its_parent_continues() -> None:
    child = Agent("child", model=ScriptedModel.always("never", 100_000))
    fact, entries = await settled(child)

    assert fact.outcome.ending is Ending.TIMED_OUT
    assert fact.outcome.cause is Cause.STALLED
    assert fact.outcome.error == ("stalled: no sign of life for 900 seconds, waiting for its model")
    assert quiet_changes(entries) == [True]
    assert trio.current_time() == pytest.approx(900)


async def test_in_a_tool_patience_is_longer() -> None:
    model = steps(ToolCall("work"), "done")
    child = Agent("child", model=model, tools=[tool_of(3_000)])
    fact, _ = await settled(child)

    assert fact.outcome.ending is Ending.SUCCEEDED


async def test_in_a_tool_patience_ends_too() -> None:
    model = steps(ToolCall("work"), "never")
    child = Agent("child", model=model, tools=[tool_of(10_000)])
    fact, _ = await settled(child)

    assert fact.outcome.ending is Ending.TIMED_OUT
    assert fact.outcome.cause is Cause.STALLED
    assert trio.current_time() == pytest.approx(3_600)


async def test_the_slowest_of_several_tools_is_still_a_tool() -> None:
    @tool
    async def quick() -> str:
        await trio.sleep(1)
        return "quick"

    model = steps([ToolCall("work"), ToolCall("quick")], "done")
    child = Agent("child", model=model, tools=[tool_of(3_000), quick])
    fact, _ = await settled(child)

    assert fact.outcome.ending is Ending.SUCCEEDED


async def test_behind_a_tool_patience_is_short_again() -> None:
    model = late(steps(ToolCall("work"), "late"), 10_000)
    child = Agent("child", model=model, tools=[tool_of(1_000)])
    fact, _ = await settled(child)

    assert fact.outcome.ending is Ending.TIMED_OUT
    assert fact.outcome.cause is Cause.STALLED
    assert trio.current_time() == pytest.approx(1_000 + 900)


def late(model: ScriptedModel, seconds: float) -> Model:
    """Return a model whose answer takes long once a tool has answered."""

    async def answer(request: ModelRequest) -> AssistantMessage:
        if isinstance(request.transcript[-1], ToolMessage):
            await trio.sleep(seconds)
        return await model.answer(request)

    return FunctionModel(answer)


async def test_behind_a_tool_of_endless_patience_a_model_is_watched_again() -> None:
    patience = Patience(quiet=60, stalled=900, stalled_in_tool=None)
    model = late(steps(ToolCall("work"), "late"), 50_000)
    child = Agent("child", model=model, tools=[tool_of(20_000)], patience=patience)
    fact, _ = await settled(child)

    assert fact.outcome.ending is Ending.TIMED_OUT
    assert trio.current_time() == pytest.approx(20_000 + 900)


async def test_the_text_and_the_usage_of_a_stalled_child_are_kept() -> None:
    used = Usage(calls=1, micro_usd=7)
    model = StreamingModel.always("half of it", ToolCall("work"), usage=used)
    child = Agent("child", model=model, tools=[tool_of(10_000)])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(lead(child), "go")
    (fact,) = facts(journal.entries, TaskSettled)

    assert fact.outcome.output == "half of it"
    assert run.usage.micro_usd == 7


async def test_a_stalled_child_that_takes_long_to_obey_settles_once() -> None:
    @tool
    async def careful() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                # So long that it would be quiet and stalled a second time.
                await trio.sleep(10_000)
        return "never"

    child = Agent("child", model=steps(ToolCall("careful"), "x"), tools=[careful])
    fact, entries = await settled(child)

    assert fact.outcome.ending is Ending.TIMED_OUT
    assert fact.outcome.cause is Cause.STALLED
    assert trio.current_time() == pytest.approx(13_600)
    assert_quiet_only_before_the_end(entries)


def assert_quiet_only_before_the_end(entries: Sequence[Entry]) -> None:
    """No task becomes quiet, or stops being so, after its end."""
    ended: set[TaskId] = set()
    for entry in entries:
        if isinstance(entry.event, TaskSettled):
            ended.add(entry.event.task)
        if isinstance(entry.event, QuietChanged):
            assert entry.event.task not in ended, entry


async def test_a_stalled_child_that_answers_all_the_same_settles_once() -> None:
    async def shielded(_: ModelRequest) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(2_000)
        return "here it is"

    fact, entries = await settled(Agent("child", model=FunctionModel(shielded)))

    # It has given an answer, or it was stopped: one of them, and not both.
    assert fact.outcome.ending in {Ending.SUCCEEDED, Ending.TIMED_OUT}
    assert fact.outcome.output == "here it is"
    assert_quiet_only_before_the_end(entries)


async def test_a_limit_below_the_patience_ends_a_child_first() -> None:
    child = Agent("child", model=ScriptedModel.always("never", 10_000), limits=Limits(seconds=500))
    fact, _ = await settled(child)

    assert fact.outcome.cause is Cause.DEADLINE


async def test_a_session_is_notified_of_a_stalled_detached_task() -> None:
    told: list[str] = []

    def say(transcript: Transcript) -> Any:
        told.append(transcript[-1].text)
        return "ok" if len(transcript) > 1 else hand_on("look it up", background=True)

    child = Agent("child", model=ScriptedModel.always("never", 100_000))
    agent = Agent("top", model=ScriptedModel.always(say), delegates=[child])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert "Outcome: timed_out after 900.0 s" in told[-1]
    assert "stalled: no sign of life for 900 seconds, waiting for its model" in told[-1]
    assert len(facts(journal.entries, TaskSettled)) == 1


async def test_a_quiet_task_can_be_cancelled() -> None:
    child = Agent("child", model=ScriptedModel.always("never", 100_000))
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead(child), "go")
            await trio.sleep(100)
            seen = Observed(orchestrator, journal)
            assert seen.status == "quiet"
            await orchestrator.cancel(seen.child)
            assert seen.status == "cancelled"
        await trio.sleep(10_000)

    assert len(facts(journal.entries, TaskSettled)) == 1
    assert quiet_changes(journal.entries) == [True]


async def test_a_task_that_waits_for_a_budget_is_not_stalled() -> None:
    """Its sibling holds the reservation and will release it."""
    child = Agent("child", model=streaming(40, every=50))
    top = Agent("top", model=steps(hand_on("a", "b"), "end"), delegates=[child])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with budget(tokens=20_000):
            run = await orchestrator.run(top, "go")

    assert run.tree.counts() == {"succeeded": 3}
    assert quiet_changes(journal.entries) == []
    assert trio.current_time() == pytest.approx(4_000)


# Signs that come too late.


async def test_an_event_after_the_end_of_a_task_is_ignored() -> None:
    """An event that is emitted after the end of a task reaches no subscriber, and does no harm."""
    spy = SpyModel(ScriptedModel.always("done", 100))
    journal = MemoryJournal()
    patience = Patience(quiet=60, stalled=90)
    child = Agent("child", model=spy, patience=patience)
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(lead(child), "go")
        before = list(journal.entries)
        spy.requests[0].tell(TextDelta("late"))
        await trio.testing.wait_all_tasks_blocked()

        assert journal.entries == before
    spy.requests[0].tell(TextDelta("later still"))
    assert journal.entries == before


# Restarts.


async def resumed(
    entries: Sequence[Entry], child: Agent, *moments: float
) -> tuple[list[str], list[Entry]]:
    """Go on with a session after a crash, and look at its only task at some moments."""
    journal = MemoryJournal(entries)
    opened = facts(entries, SessionOpened)
    id_ = opened[0].session if opened else None
    seen: list[str] = []
    agent = lead(child, background=True)
    async with open_orchestrator(journal) as orchestrator:
        began = trio.current_time()
        if opened and moments:
            seen.append(Observed(orchestrator, journal).status)
        async with orchestrator.open_session(agent, session=id_) as session:
            if not facts(entries, MessageReceived):
                await session.ask("go")
            for moment in moments:
                await trio.sleep(began + moment - trio.current_time())
                seen.append(Observed(orchestrator, journal).status)
            if not moments:
                await session.wait_idle()
    return seen, journal.entries


async def test_a_restart_ends_a_silence_and_begins_a_new_one() -> None:
    child = Agent("child", model=ScriptedModel.always("late", 200))
    seen, entries = await resumed([], child, 1, 61)
    assert seen == ["running", "quiet"]

    seen, entries = await resumed(entries, child, 1, 59, 61, 201)
    assert seen == ["interrupted", "running", "running", "quiet", "succeeded"]
    assert len(facts(entries, TaskSettled)) == 1


async def test_a_crash_after_any_entry_of_a_silence_ends_well() -> None:
    def child() -> Agent:
        model = steps(ToolCall("work"), "done", seconds=100)
        work = tool_of(100, idempotent=True)
        return Agent("child", model=model, tools=[work])

    _, whole = await resumed([], child())
    assert True in quiet_changes(whole)
    for length in range(1, len(whole)):
        _, entries = await resumed(whole[:length], child())

        (fact,) = facts(entries, TaskSettled)
        assert fact.outcome.succeeded, length
        assert_quiet_only_before_the_end(entries)


async def test_a_tool_that_a_restart_runs_again_has_the_patience_of_a_tool() -> None:
    model = steps(ToolCall("work"), "done")
    child = Agent("child", model=model, tools=[tool_of(2_000, idempotent=True)])
    _, entries = await resumed([], child, 100)
    assert facts(entries, TaskSettled) == []

    _, entries = await resumed(entries, child)
    (fact,) = facts(entries, TaskSettled)
    assert (fact.outcome.ending, fact.outcome.error) == (Ending.SUCCEEDED, "")


# What it costs.


async def test_thousands_of_tasks_leave_no_watchdog_checks() -> None:
    goals = ["x"] * 100
    async with open_orchestrator(":memory:") as orchestrator:
        watch = orchestrator._engine.runner.watchdog
        most = 0
        for _ in range(20):
            model = ScriptedModel([hand_on(*goals), "end"])
            await orchestrator.run(Agent("top", model=model, delegates=[worker()]), "go")
            most = max(most, len(watch._checks))
        assert most <= 1_200
        # And when their time has come, the others are forgotten as well.
        await trio.sleep(4_000)
        assert len(watch._checks) == 0


async def test_one_after_another_leaves_no_growing_heap() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        watch = orchestrator._engine.runner.watchdog
        most = 0
        for _ in range(2_000):
            model = ScriptedModel([hand_on("x"), "end"])
            await orchestrator.run(Agent("top", model=model, delegates=[worker()]), "go")
            most = max(most, len(watch._checks))

    assert most <= 1_200


async def test_stalled_and_endless_tasks_leave_no_watchdog_checks() -> None:
    """Also those count whose last look was taken long before they ended."""
    quick = Patience(quiet=1, stalled=None, stalled_in_tool=None)
    child = Agent("worker", model=ScriptedModel.always("ok", 5), patience=quick)
    goals = ["x"] * 100
    async with open_orchestrator(":memory:") as orchestrator:
        watch = orchestrator._engine.runner.watchdog
        most = 0
        for _ in range(15):
            model = ScriptedModel([hand_on(*goals), "end"])
            await orchestrator.run(Agent("top", model=model, delegates=[child]), "go")
            most = max(most, len(watch._checks))

    assert most <= 1_200
