"""The actions of the tool `task`: list, wait, result."""

import json
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, budget, open_orchestrator
from orchestrator.agents import Agent, ToolCall, Transcript
from orchestrator.delegation import Rules
from orchestrator.testing import SpyModel
from tests.kit import dispatched, tool_answers, worker
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


async def test_a_list_shows_the_goal_mode_and_status_of_each_task() -> None:
    lead = Lead(background("10", "20"), control("list"))
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]))
    listed = lead.answers[1]["tasks"]

    assert [task["path"] for task in listed] == ["/lead/worker[1]", "/lead/worker[2]"]
    assert [task["goal"] for task in listed] == ["10", "20"]
    assert {task["mode"] for task in listed} == {"detached"}
    assert {task["status"] for task in listed} <= {"queued", "running"}
    assert all(task["seconds"] >= 0 and task["tokens"] == 0 for task in listed)


async def test_a_list_shows_running_tasks_before_ended_ones() -> None:
    lead = Lead(background("10", "50"), control("wait", mode="any"), control("list"), "on it")
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]))
    listed = lead.answers[2]["tasks"]

    assert [(task["goal"], task["status"]) for task in listed] == [
        ("50", "running"),
        ("10", "succeeded"),
    ]


async def test_a_list_without_tasks_is_empty() -> None:
    lead = Lead(control("list"))
    await hold(Agent("lead", model=lead, delegates=[worker()]))

    assert lead.answers == [{"tasks": []}]


async def test_a_list_shows_a_hundred_tasks_and_counts_the_rest() -> None:
    goals = ["10"] * 60
    lead = Lead([background(*goals), background(*goals)], control("list"))
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]))

    assert len(lead.answers[2]["tasks"]) == 100
    assert lead.answers[2]["note"] == "20 more are not shown."


async def test_waiting_for_all_brings_every_result_in_order() -> None:
    lead = Lead(background("20", "10"), on_each("wait"))
    session = await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]))
    answer = lead.answers[1]

    assert answer["status"] == "completed"
    assert [result["output"] for result in answer["results"]] == ["done 20", "done 10"]
    assert "running" not in answer
    assert lead.notices == []
    assert session.tree.counts() == {"succeeded": 3}
    assert trio.current_time() == pytest.approx(20)


async def test_waiting_for_any_returns_the_first_result_and_the_running_tasks() -> None:
    journal = MemoryJournal()
    lead = Lead(background("20", "10"), on_each("wait", mode="any"), "one is there")
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]), journal)
    answer = lead.answers[1]

    assert answer["status"] == "still_running"
    assert [result["output"] for result in answer["results"]] == ["done 10"]
    assert [task["goal"] for task in answer["running"]] == ["20"]
    # What was not waited for still wakes the session, and only that.
    assert len(lead.notices) == 1
    assert "done 20" in lead.notices[0]
    assert mail_read(journal.entries) == mail_in(journal.entries)


async def test_a_wait_ends_at_its_timeout() -> None:
    lead = Lead(background("100"), on_each("wait", seconds=7), "later then")
    agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            assert trio.current_time() == pytest.approx(7)
            await session.wait_idle()

    assert lead.answers[1]["status"] == "still_running"
    assert lead.answers[1]["results"] == []
    assert len(lead.notices) == 1


async def test_waiting_without_a_name_is_for_all_that_run() -> None:
    lead = Lead(background("20", "10", "5"), control("wait"))
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]))

    assert [result["output"] for result in lead.answers[1]["results"]] == [
        "done 20",
        "done 10",
        "done 5",
    ]


@pytest.mark.parametrize("mode", ["any", "all"])
async def test_waiting_without_tasks_returns_at_once(mode: str) -> None:
    lead = Lead(control("wait", mode=mode))
    agent = Agent("lead", model=lead, delegates=[worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            with trio.fail_after(1000):
                await session.ask("go")

    assert lead.answers == [{"status": "completed", "results": []}]
    assert trio.current_time() == 0


@pytest.mark.parametrize("mode", ["any", "all"])
async def test_waiting_for_ended_tasks_returns_at_once(mode: str) -> None:
    lead = Lead(background("10"), on_each("wait"), on_each("wait", mode=mode))
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]))

    assert lead.answers[2] == lead.answers[1]
    assert trio.current_time() == pytest.approx(10)


async def test_a_result_is_read_on_page_by_page_without_loss() -> None:
    text = "".join(f"line {number}\n" for number in range(15_000))

    def next_page(transcript: Transcript) -> Any:
        shown = tool_answers(transcript)[1:]
        output = shown[-1]["results"][0]["output"]
        if "[" not in output:
            return "end"
        offset = int(output.rpartition("offset=")[2].partition(")")[0])
        return control("result", *dispatched(transcript), offset=offset)

    lead = Lead(background("a"), on_each("wait"), *[next_page] * 4)
    helper = worker(says=text)
    await hold(Agent("lead", model=lead, delegates=[helper]))
    pages = [answer["results"][0]["output"].partition("\n[")[0] for answer in lead.answers[1:]]

    assert len(pages) == -(-len(text) // 50_000)
    assert "".join(pages) == text
    assert f"of {len(text)} characters are left out here" in json.dumps(lead.answers[1])


async def test_reading_past_the_end_of_a_result_returns_an_empty_text() -> None:
    lead = Lead(background("a"), on_each("wait"), on_each("result", offset=999))
    await hold(Agent("lead", model=lead, delegates=[worker()]))

    assert lead.answers[2]["results"][0]["output"] == ""


async def test_waiting_for_an_unstartable_task_returns_its_refusal() -> None:
    batch = ToolCall(
        "delegate_task",
        {
            "tasks": [
                {"goal": "no number", "label": "one"},
                {"goal": "10", "label": "two", "depends_on": ["one"]},
            ],
            "background": True,
        },
    )
    lead = Lead(batch, on_each("wait"))
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]))
    results = {result["label"]: result for result in lead.answers[1]["results"]}

    assert results["one"]["status"] == "failed"
    assert results["two"]["status"] == "refused"
    assert "it needs 'one'" in results["two"]["error"]
    assert lead.notices == []


async def test_looking_after_tasks_counts_as_no_task_and_needs_no_room() -> None:
    lead = Lead(
        background("10", "20"),
        background("30"),
        control("list"),
        on_the(0, "wait"),
        on_the(1, "cancel"),
    )
    agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
    rules = Rules(live_tasks=1, live_children=1, detached=1, queue=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        with budget(tasks=2):
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
                await session.wait_idle()

    assert "allows 2 tasks" in lead.answers[1]
    assert len(lead.answers[2]["tasks"]) == 2
    assert lead.answers[3]["results"][0]["output"] == "done 10"
    assert lead.answers[4]["results"][0]["status"] == "cancelled"


async def test_the_result_of_a_running_task_is_still_running() -> None:
    lead = Lead(background("10"), on_each("result"), "later then")
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]))

    assert lead.answers[1]["status"] == "still_running"
    assert lead.answers[1]["results"] == []
    assert [task["goal"] for task in lead.answers[1]["running"]] == ["10"]
    assert len(lead.notices) == 1


async def test_a_result_can_be_read_as_often_as_one_likes() -> None:
    journal = MemoryJournal()
    lead = Lead(background("10"), on_each("wait"), *[on_each("result")] * 3)
    agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
    await hold(agent, journal)

    assert lead.answers[1:] == [lead.answers[1]] * 4
    assert mail_read(journal.entries) == mail_in(journal.entries)


async def test_a_result_of_a_turn_long_ago_can_still_be_read() -> None:
    lead = Lead(background("10"), "later", "news", on_each("result"))
    agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
            await session.ask("what was it?")

    assert lead.answers[-1]["results"][0]["output"] == "done 10"


@pytest.mark.parametrize("action", ["result", "steer", "cancel"])
async def test_an_action_without_ids_is_an_error(action: str) -> None:
    lead = Lead(background("10"), control(action, message="hello"), "sorry")
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]))

    assert lead.answers[1] == f"{action}: say which tasks are meant, in `ids`"


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "explode"},
        {"action": "wait", "seconds": -1},
        {"action": "wait", "mode": "some"},
        {"action": "result", "ids": "t_1"},
        {"action": "result", "ids": ["t_1"], "offset": -1},
        {"action": "list", "session": "other"},
        {},
    ],
)
async def test_invalid_arguments_are_answered_and_affect_no_task(arguments: dict[str, Any]) -> None:
    lead = Lead(ToolCall("task", arguments))
    session = await hold(Agent("lead", model=lead, delegates=[worker()]))

    assert isinstance(lead.answers[0], str)
    assert session.tree.counts() == {"succeeded": 1}


async def test_an_agent_without_delegates_has_no_task_tool() -> None:
    spy = SpyModel("ok")
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(Agent("alone", model=spy), "go")
        team = Agent("lead", model=spy, delegates=[worker()])
        await orchestrator.run(team, "go")

    names = [[tool.name for tool in it.tools] for it in spy.requests]
    assert names == [[], ["delegate_task", "task"]]
