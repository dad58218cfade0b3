"""An agent reaches its own descendants with the tool `task`, and no other task."""

from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, Transcript
from orchestrator.delegation import Ending, TaskId, root_of
from orchestrator.delegation.events import CancelRequested, TaskSettled
from orchestrator.testing import GatedModel
from tests.kit import dispatched, facts, hand_on, tool_answers, worker
from tests.orchestrator.task_control_kit import Lead, background, control, hold, on_each, sleeper

VERBS: list[dict[str, Any]] = [
    {"action": "list"},
    {"action": "wait"},
    {"action": "result"},
    {"action": "steer", "message": "stop it"},
    {"action": "cancel"},
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb["action"]))
async def test_a_task_of_another_session_is_unknown(verb: dict[str, Any]) -> None:
    journal = MemoryJournal()
    victim = Agent("lead", model=Lead(background("100")), delegates=[sleeper("worker", says="ok")])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(victim) as theirs:
            await theirs.ask("go")
            (task,) = theirs.tree.children(theirs.tree.root)
            for foreign in (task, theirs.id, "t_none", ""):
                lead = Lead(
                    background("10"),
                    lambda transcript, foreign=foreign: ToolCall(
                        "task", verb | {"ids": [*dispatched(transcript), foreign]}
                    ),
                )
                agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
                async with orchestrator.open_session(agent) as mine:
                    await mine.ask("go")
                    await mine.wait_idle()

                    assert lead.answers[1] == (
                        f"there is no such task: {foreign!r}; nothing was done"
                    )
                    # Not even to the one that is its own.
                    assert mine.tree.counts() == {"succeeded": 2}
            assert theirs.tree[task].status == "running"
            await theirs.wait_idle()

    assert facts(journal.entries, CancelRequested) == []
    assert {fact.outcome.ending for fact in facts(journal.entries, TaskSettled)} == {
        Ending.SUCCEEDED
    }


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb["action"]))
async def test_a_child_reaches_neither_its_parent_nor_its_siblings_nor_itself(
    verb: dict[str, Any],
) -> None:
    ids: dict[str, str] = {}
    read: list[str] = []

    def meddle(transcript: Transcript) -> Any:
        tried = tool_answers(transcript)
        read[:] = tried
        if len(tried) == len(ids):
            return "gave up"
        return ToolCall("task", verb | {"ids": [list(ids.values())[len(tried)]]})

    meddler = Agent("meddler", model=ScriptedModel.always(meddle, 5), delegates=[worker("leaf")])
    lead = Lead([background("a", agent="meddler"), background("100", agent="other")])
    agent = Agent("lead", model=lead, delegates=[meddler, sleeper("other")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            first, second = session.tree.children(session.tree.root)
            ids |= {"parent": session.id, "itself": first, "sibling": second}
            await session.wait_idle()

            assert session.tree.counts() == {"succeeded": 3}
    assert read == [f"there is no such task: {id_!r}; nothing was done" for id_ in ids.values()]


async def test_a_child_looks_after_its_own_descendants_only() -> None:
    listed: list[Any] = []

    def look(transcript: Transcript) -> Any:
        done = tool_answers(transcript)
        if len(done) == 2:
            listed.extend(task["path"] for task in done[1]["tasks"])
            return "done"
        return control("list") if done else hand_on("x", "y")

    middle = Agent("middle", model=ScriptedModel.always(look), delegates=[worker("leaf")])
    lead = Lead([background("a", agent="middle"), background("50", agent="other")])
    agent = Agent("lead", model=lead, delegates=[middle, sleeper("other")])
    session = await hold(agent)

    mine = next(
        session.tree[task].path for task in session.tree if session.tree[task].agent == "middle"
    )
    assert sorted(listed) == [f"{mine}/leaf[1]", f"{mine}/leaf[2]"]


async def test_a_session_reaches_its_grandchildren() -> None:
    middle = Agent(
        "middle",
        model=ScriptedModel([hand_on("100", "20"), "both have ended"]),
        delegates=[sleeper("leaf")],
    )

    def cancel_first_leaf(transcript: Transcript) -> Any:
        tasks = tool_answers(transcript)[-1]["tasks"]
        (leaf,) = (task for task in tasks if task["goal"] == "100")
        return control("cancel", leaf["task_id"])

    lead = Lead(
        background("a"),
        control("wait", seconds=5),
        control("list"),
        cancel_first_leaf,
        on_each("wait"),
    )
    session = await hold(Agent("lead", model=lead, delegates=[middle]))

    assert lead.answers[3]["results"][0]["status"] == "cancelled"
    assert lead.answers[4]["results"][0]["output"] == "both have ended"
    assert trio.current_time() == pytest.approx(20)
    assert session.tree.counts() == {"succeeded": 3, "cancelled": 1}


@pytest.mark.realtime
async def test_after_a_restart_a_session_reaches_the_same_tasks(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    helper = Agent("worker", model=GatedModel())

    def agent(model: Any) -> Agent:
        return Agent("lead", model=model, delegates=[helper])

    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(agent(Lead(background("a")))) as mine:
            await mine.ask("go")
        async with orchestrator.open_session(agent(Lead(background("b")))) as theirs:
            await theirs.ask("go")
    (own,) = mine.tree.children(mine.tree.root)
    (foreign,) = theirs.tree.children(theirs.tree.root)

    lead = Lead(control("list"), control("cancel", foreign), control("cancel", own))
    async with open_orchestrator(path) as orchestrator:
        opened = orchestrator.open_session(agent(lead), session=mine.id)
        async with opened as again:
            await again.ask("stop it")
            await again.wait_idle()
        now = orchestrator.tree(theirs.id)[TaskId(foreign)].status

    assert [task["task_id"] for task in lead.answers[1]["tasks"]] == [own]
    assert lead.answers[2] == f"there is no such task: {foreign!r}; nothing was done"
    assert lead.answers[3]["results"][0]["status"] == "cancelled"
    assert lead.notices == []
    assert now == "interrupted"


@pytest.mark.realtime
async def test_a_wait_that_a_restart_interrupted_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    def say(transcript: Transcript) -> Any:
        done = tool_answers(transcript)
        if len(done) == 2:
            return done[1]["results"][0]["output"]
        return on_each("wait")(transcript) if done else background("a")

    def agent(helper: Agent) -> Agent:
        return Agent("lead", model=ScriptedModel.always(say), delegates=[helper])

    with trio.CancelScope() as process:
        stuck = agent(Agent("worker", model=GatedModel()))
        async with (
            open_orchestrator(path) as orchestrator,
            orchestrator.open_session(stuck) as session,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(session.ask, "go")
            seen, root = 0, orchestrator.read.records.tasks[root_of(session.id)]
            # It has delegated, and waits.
            while len(root.transcript) < 4:
                seen = await orchestrator.wait_changed(after=seen)
            process.cancel()
    async with open_orchestrator(path) as orchestrator:
        quick = agent(worker(says="found"))
        async with orchestrator.open_session(quick, session=session.id) as again:
            reply = await again.replies.receive()
            await again.wait_idle()

    assert (reply.turn, reply.text) == (1, "found")
    assert again.tree.counts() == {"succeeded": 2}
