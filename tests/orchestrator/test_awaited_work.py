"""The critical path of real runs: races, waits with the tool `task`, waits for providers."""

from typing import Any

import pytest
import trio

from orchestrator import (
    Agent,
    AssistantMessage,
    MemoryJournal,
    Run,
    ScriptedModel,
    Tree,
    Usage,
    agent,
    budget,
    delegate,
    detach,
    map_each,
    open_orchestrator,
    race,
)
from orchestrator.cli.terminal.transcript import transcript_lines
from orchestrator.delegation import Mode, Reason
from orchestrator.delegation.tree.critical_path import SegmentKind
from orchestrator.kernel.journal.run_history import read_history
from orchestrator.models import Limiter, ModelRequest, with_rate_limit
from orchestrator.products.history.report import Transcripts, build_report
from tests.orchestrator.task_control_kit import Lead, background, hold, on_each, sleeper

fast = Agent("fast", model=ScriptedModel.always("f", seconds=2))
slow = Agent("slow", model=ScriptedModel.always("s", seconds=30))


@agent
async def watched(goal: str) -> str:
    """Work beside a watcher, and stop it at the end."""
    watcher = await detach(slow, "watch")
    answer = await delegate(fast, goal)
    await watcher.cancel()
    return answer


@agent
async def failing(goal: str) -> str:
    """Raise beside a child, which is cancelled."""
    await detach(slow, "watch")
    await delegate(fast, goal)
    raise ValueError("no")


def path_of(tree: Tree) -> list[tuple[str, str, int]]:
    segments = tree.critical_path().segments
    return [(tree[it.task].path, it.part.value, round(it.seconds)) for it in segments]


async def run_of(what: Agent[Any, Any], goal: object) -> Run[Any]:
    async with open_orchestrator(MemoryJournal()) as orchestrator:
        return await orchestrator.run(what, goal)


@pytest.mark.parametrize(
    ("what", "goal", "awaited"),
    [
        (race(fast, slow), "go", "/race/fast[1]"),
        (race(slow, fast), "go", "/race/fast[1]"),
        (watched, "go", "/watched/fast[1]"),
        (failing, "go", "/failing/fast[1]"),
        (map_each(sleeper("worker")).first(), ["9", "2", "8"], "/map_each/worker[2]"),
        (map_each(sleeper("worker")).quorum(2), ["3", "2", "8"], "/map_each/worker[1]"),
    ],
    ids=lambda it: it.name if isinstance(it, Agent) else "",
)
async def test_the_critical_path_leads_through_the_child_that_the_parent_waited_for(
    what: Agent[Any, Any], goal: object, awaited: str
) -> None:
    tree = (await run_of(what, goal)).tree

    seconds = round(tree.critical_path().seconds)
    assert path_of(tree) == [(awaited, "works", seconds)]
    stopped = {tree[it].path for it in tree if tree[it].status == "cancelled"}
    assert stopped.isdisjoint(tree[it].path for it in tree.slack())
    assert len(stopped) + len(tree.slack()) == len(tree)


async def test_a_cancelled_run_waited_for_its_children() -> None:
    async with open_orchestrator(MemoryJournal()) as orchestrator:
        async with orchestrator.open_session(race(slow, slow)) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(5)
                await orchestrator.cancel(session.id)
            tree = session.tree

    assert {path for path, _, _ in path_of(tree)} & {"/race/slow[1]", "/race/slow[2]"}


async def test_a_turn_that_waits_with_the_tool_does_not_work_meanwhile() -> None:
    lead = Lead(background("20", "10"), on_each("wait"))
    tree = (await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]))).tree

    assert path_of(tree) == [("/lead/worker[1]", "works", 20)]
    assert tree.parallelism().peak == 2
    assert {tree[it].path: round(late) for it, late in tree.slack().items()} == {
        "/lead": 0,
        "/lead/worker[1]": 0,
        "/lead/worker[2]": 10,
    }


async def test_a_task_that_the_tool_cancels_was_not_waited_for() -> None:
    lead = Lead(background("20"), on_each("wait", seconds=5), on_each("cancel"), "enough")
    tree = (await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]))).tree

    assert path_of(tree) == [("/lead", "works", 5)]


class TwoSecondModel:
    name = "openai:two-seconds"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.sleep(2)
        return AssistantMessage("ok", usage=Usage(calls=1))


async def limited_run(journal: MemoryJournal) -> Run[Any]:
    limited = with_rate_limit(TwoSecondModel(), Limiter(in_flight=1))
    worker = Agent("worker", model=limited)
    async with open_orchestrator(journal) as orchestrator:
        return await orchestrator.run(map_each(worker), ["one", "two", "three"])


async def test_waits_for_a_provider_are_told_from_the_time_of_the_model() -> None:
    journal = MemoryJournal()
    run = await limited_run(journal)
    tree = run.tree

    waits = {tree[it].goal: round(tree.own_provider_wait(it)) for it in tree.children(tree.root)}
    assert waits == {"one": 0, "two": 2, "three": 4}
    assert len(tree.provider_waits) == 2, "a call that does not wait leaves nothing"
    assert round(tree.provider_wait()) == 6
    assert path_of(tree) == [
        ("/map_each/worker[3]", "provider", 4),
        ("/map_each/worker[3]", "works", 2),
    ]
    assert round(tree.critical_path().seconds_of(SegmentKind.PROVIDER)) == 4


async def test_a_report_and_a_transcript_name_the_wait_for_a_provider() -> None:
    journal = MemoryJournal()
    run = await limited_run(journal)
    entries = [it for it in journal.entries if it.session in {"", run.id}]
    history = read_history(run.id, entries, has_writer=False, wants_transcript=lambda _: False)

    html = build_report(history, version="1", transcripts=Transcripts.NONE).html
    assert "<dt>waiting for providers</dt><dd>6.0 s<small>before model calls of 2 agents" in html
    assert ">waiting for the provider</td>" in html
    lines = [line.plain for line in transcript_lines(entries)]
    assert sum("has waited 4.0 s for the provider" in it for it in lines) == 1


async def test_a_wait_for_a_budget_is_none_for_a_provider() -> None:
    model = TwoSecondModel()
    worker = Agent("worker", model=model)

    @agent
    async def pair(goal: str) -> list[str]:
        """Ask two workers under a budget that pays for one call at a time."""
        return await delegate(map_each(worker), [goal, goal])

    async with open_orchestrator(MemoryJournal()) as orchestrator:
        with budget(calls=2):
            run = await orchestrator.run(pair, "go")

    assert run.tree.provider_waits == {}


async def test_a_task_that_a_function_detaches_is_shown_as_detached() -> None:
    """The function owns it, so it is joined for the rules and the critical path."""
    tree = (await run_of(watched, "go")).tree
    beside, awaited = tree.children(tree.root)

    assert (tree[beside].mode, tree[beside].reason) == (Mode.JOINED, Reason.RUNS_BESIDE)
    assert [row.mode for row in tree.rows()] == [Mode.ROOT, Mode.DETACHED, Mode.JOINED]
    assert tree[awaited].reason == Reason.ASKED_TO_WAIT
