"""Cancelling turns, trees and tasks: what ends, and what runs on."""

from pathlib import Path

import pytest
import trio

from orchestrator import MemoryJournal, Orchestrator, Run, open_orchestrator
from orchestrator.agents import Agent, Price, ScriptedModel, Tool, ToolCall, Usage, tool
from orchestrator.delegation import Ending, Rules
from orchestrator.delegation.events import CancelRequested, TaskSettled
from orchestrator.testing import StreamingModel
from tests.kit import facts, hand_on, tool_answers, worker
from tests.orchestrator.task_control_kit import (
    Lead,
    background,
    control,
    hold,
    mail_in,
    mail_read,
    on_each,
    on_the,
    sleeper,
)


def statuses(orchestrator: Orchestrator, session: str) -> dict[str, str]:
    tree = orchestrator.tree(session)
    return {tree[task].path: tree[task].status for task in tree}


def untidy(seconds: float, log: list[str], name: str = "tidy") -> Tool:
    """Return a tool that never ends, and takes its time to tidy up."""

    @tool(name=name)
    async def run() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)
            log.append(name)
        return "never"

    return run


async def test_cancelling_a_turn_ends_only_its_joined_tasks() -> None:
    lead = Lead(background("50"), hand_on("100", background=False), "news")
    agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id)

                assert statuses(orchestrator, session.id) == {
                    "/lead": "waiting",
                    "/lead/worker[1]": "running",
                    "/lead/worker[2]": "cancelled",
                }
                assert trio.current_time() == pytest.approx(10)
            await session.wait_idle()

            assert session.replies.receive_nowait().text == "news"
    assert len(lead.notices) == 1
    assert "done 50" in lead.notices[0]


async def test_cancelling_a_turn_leaves_its_detached_tasks_free_to_act_meanwhile() -> None:
    log: list[str] = []
    joined = Agent("joined", model=ScriptedModel([ToolCall("tidy")]), tools=[untidy(100, log)])

    @tool
    async def think() -> str:
        await trio.sleep(50)
        return "thought"

    detached = Agent(
        "detached",
        model=ScriptedModel([ToolCall("think"), hand_on("leaf"), "did it all"]),
        tools=[think],
        delegates=[worker("leaf", seconds=10)],
    )
    lead = Lead(
        background("a", agent="detached"), hand_on("b", agent="joined", background=False), "news"
    )
    agent = Agent("lead", model=lead, delegates=[joined, detached])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id)
            await session.wait_idle()
            ended = statuses(orchestrator, session.id)

    assert log == ["tidy"]
    assert ended["/lead/joined[1]"] == "cancelled"
    assert ended["/lead/detached[1]"] == "succeeded"
    assert ended.get("/lead/detached[1]/leaf[1]") == "succeeded"


async def test_cancelling_a_turn_lets_its_detached_tasks_begin_meanwhile() -> None:
    log: list[str] = []
    joined = Agent("joined", model=ScriptedModel([ToolCall("tidy")]), tools=[untidy(100, log)])
    lead = Lead(
        background("20", "30", agent="detached"),
        hand_on("b", agent="joined", background=False),
        "news",
        "more news",
    )
    agent = Agent("lead", model=lead, delegates=[joined, sleeper("detached")])
    rules = Rules(detached=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id)
            await session.wait_idle()
            ended = statuses(orchestrator, session.id)

    assert ended["/lead/detached[1]"] == "succeeded"
    assert ended["/lead/detached[2]"] == "succeeded"


async def test_cancelling_a_turn_does_not_change_how_a_detached_task_ends() -> None:
    log: list[str] = []
    joined = Agent("joined", model=ScriptedModel([ToolCall("tidy")]), tools=[untidy(100, log)])
    broken = Agent("broken", model=ScriptedModel([ValueError("a bug")], 50))
    lead = Lead(
        background("a", agent="broken"), hand_on("b", agent="joined", background=False), "news"
    )
    agent = Agent("lead", model=lead, delegates=[joined, broken])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id)
            await session.wait_idle()
            ended = statuses(orchestrator, session.id)

    assert ended["/lead/broken[1]"] == "failed"


async def test_cancelling_the_tree_of_a_session_ends_every_task() -> None:
    middle = Agent(
        "middle", model=ScriptedModel.always(hand_on("100", "200")), delegates=[sleeper("leaf")]
    )
    lead = Lead(background("a", "b"), hand_on("c", background=False), "news")
    agent = Agent("lead", model=lead, delegates=[middle])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id, tree=True)

                below = [*statuses(orchestrator, session.id).values()][1:]
                assert below == ["cancelled"] * 9
                assert trio.current_time() == pytest.approx(10)
            await session.wait_idle()

    # It is told what became of them all, once.
    assert len(lead.notices) == 2
    assert mail_read(journal.entries) == mail_in(journal.entries)


async def test_cancelling_the_tree_of_a_session_between_two_turns() -> None:
    lead = Lead(background("100", "200"), "later", "news")
    agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await orchestrator.cancel(session.id)
            assert session.tree.counts() == {"waiting": 1, "running": 2}
            await orchestrator.cancel(session.id, tree=True)
            await session.wait_idle()

    assert session.tree.counts() == {"succeeded": 1, "cancelled": 2}
    assert len(lead.notices) == 2


async def test_cancel_returns_after_the_cleanup_of_every_descendant() -> None:
    log: list[str] = []
    deepest = Agent(
        "deepest", model=ScriptedModel.always(ToolCall("slow")), tools=[untidy(7, log, "slow")]
    )
    middle = Agent(
        "middle",
        model=ScriptedModel([[hand_on("x"), ToolCall("quick")]]),
        tools=[untidy(3, log, "quick")],
        delegates=[deepest],
    )
    lead = Lead(background("a"), "later", "news")
    agent = Agent("lead", model=lead, delegates=[middle])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await trio.sleep(10)
            (task,) = session.tree.children(session.tree.root)
            async with trio.open_nursery() as nursery:
                # A second caller waits as long.
                nursery.start_soon(orchestrator.cancel, task)
                await orchestrator.cancel(task)

            assert log == ["quick", "slow"]
            assert trio.current_time() == pytest.approx(17)
            assert [*statuses(orchestrator, session.id).values()][1:] == ["cancelled", "cancelled"]


async def test_a_model_that_cancels_reads_the_partial_text_and_the_usage() -> None:
    @tool
    async def wait() -> str:
        await trio.sleep_forever()
        return "never"

    used = Usage(calls=1, input_tokens=1, output_tokens=2, micro_usd=2_000)
    half = StreamingModel.always("half of it", ToolCall("wait"), usage=used)
    helper = Agent("helper", model=half, tools=[wait])
    lead = Lead(
        [background("a", agent="helper"), background("50", agent="other")],
        control("wait", seconds=5),
        lambda transcript: control(
            "cancel",
            *(
                task["task_id"]
                for task in tool_answers(transcript)[-1]["running"]
                if "/helper" in task["path"]
            ),
        ),
        "stopped it",
    )
    journal = MemoryJournal()
    agent = Agent("lead", model=lead, delegates=[helper, sleeper("other")])
    session = await hold(agent, journal)
    (result,) = lead.answers[3]["results"]

    assert result["status"] == "cancelled"
    assert result["output"] == "half of it"
    assert result["tokens"] > 0
    assert result["cost_usd"] > 0
    # Its sibling lives on, and is the only one that the session is told of.
    assert session.tree.counts() == {"succeeded": 2, "cancelled": 1}
    assert len(lead.notices) == 1
    assert "done 50" in lead.notices[0]
    assert mail_read(journal.entries) == mail_in(journal.entries)


async def test_a_model_that_cancels_waits_for_the_cleanup_too() -> None:
    log: list[str] = []
    helper = Agent("helper", model=ScriptedModel.always(ToolCall("tidy")), tools=[untidy(7, log)])
    lead = Lead(background("a"), control("wait", seconds=5), on_each("cancel"))
    await hold(Agent("lead", model=lead, delegates=[helper]))

    assert log == ["tidy"]
    assert lead.answers[2]["results"][0]["status"] == "cancelled"
    assert trio.current_time() == pytest.approx(12)


async def test_cancelling_an_ended_task_records_no_fact() -> None:
    journal = MemoryJournal()
    lead = Lead(background("10"), on_each("wait"), on_each("cancel"))
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]), journal)

    assert lead.answers[2]["results"][0]["status"] == "succeeded"
    assert facts(journal.entries, CancelRequested) == []


async def test_a_cancelled_run_returns_its_tree_and_usage() -> None:
    runs: list[Run[str]] = []
    model = ScriptedModel([hand_on("100"), "never"], price=Price(output=1_000))
    agent = Agent("lead", model=model, delegates=[sleeper("worker")])
    async with open_orchestrator(":memory:") as orchestrator:

        async def run() -> None:
            runs.append(await orchestrator.run(agent, "go"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.sleep(10)
            await orchestrator.cancel(orchestrator.runs[-1])
            assert trio.current_time() == pytest.approx(10)

    assert runs[0].outcome.ending is Ending.CANCELLED
    assert runs[0].tree.counts() == {"cancelled": 2}
    assert runs[0].usage.micro_usd > 0


async def test_cancelling_a_parent_ends_its_children_that_wait_in_line() -> None:
    middle = Agent(
        "middle",
        model=ScriptedModel.always(hand_on("100", "100", "100")),
        delegates=[sleeper("leaf")],
    )
    lead = Lead(background("a"), control("wait", seconds=5), on_each("cancel"))
    agent = Agent("lead", model=lead, delegates=[middle])
    rules = Rules(live_children=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert session.tree.counts() == {"succeeded": 1, "cancelled": 4}
    assert trio.current_time() == pytest.approx(5)


async def test_a_queued_task_can_be_cancelled_and_never_starts() -> None:
    lead = Lead(background("50", "60", "70"), on_the(1, "cancel"), on_each("wait"))
    agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
    journal = MemoryJournal()
    rules = Rules(detached=1)
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert lead.answers[1]["results"][0]["status"] == "cancelled"
    assert [result["status"] for result in lead.answers[2]["results"]] == [
        "succeeded",
        "cancelled",
        "succeeded",
    ]
    assert trio.current_time() == pytest.approx(120)
    assert mail_read(journal.entries) == mail_in(journal.entries)


@pytest.mark.realtime
async def test_an_ended_task_can_be_cancelled_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    model = ScriptedModel([hand_on("a"), "end"])
    agent = Agent("lead", model=model, delegates=[worker()])
    async with open_orchestrator(path) as orchestrator:
        run = await orchestrator.run(agent, "go")
        for task in run.tree:
            await orchestrator.cancel(task)
    async with open_orchestrator(path) as orchestrator:
        assert orchestrator.runs == [run.id]
        for task in run.tree:
            await orchestrator.cancel(task)
        await orchestrator.cancel(run.id, tree=True)


@pytest.mark.parametrize("ticks", range(8))
async def test_a_cancel_and_an_end_in_the_same_moment_make_one_settlement(ticks: int) -> None:
    journal = MemoryJournal()
    lead = Lead(background("10"), "later", "news")
    agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            (task,) = session.tree.children(session.tree.root)
            await trio.sleep(10 - trio.current_time())
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            await orchestrator.cancel(task)
            await session.wait_idle()

    assert len(facts(journal.entries, TaskSettled)) == 1
    assert len(lead.notices) == 1
    assert mail_read(journal.entries) == mail_in(journal.entries)
