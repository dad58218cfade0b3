"""Each ending of a delegated task is reported as what it is."""

import json
from typing import Any

import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, Limits, ScriptedModel, ToolCall, Transcript
from orchestrator.delegation import Rules, Tree
from orchestrator.delegation.events import TurnEnded
from tests.kit import editor, facts, hand_on, last_text, worker
from tests.orchestrator.delegate_task_kit import handed, wait


async def test_every_ending_is_reported_in_the_results() -> None:
    def crash(_: Transcript) -> str:
        raise ZeroDivisionError

    never = ScriptedModel.always(ToolCall("wait"))
    delegates = [
        worker("good"),
        Agent("broken", model=ScriptedModel.always(crash)),
        Agent("stopped", model=never, tools=[wait]),
        Agent("late", model=never, tools=[wait], limits=Limits(seconds=5)),
        Agent("greedy", model=ScriptedModel.always(ToolCall("x")), limits=Limits(calls=2)),
    ]
    names = [delegate.name for delegate in delegates]
    tasks: list[dict[str, Any]] = [{"goal": name, "agent": name, "label": name} for name in names]
    tasks.append({"goal": "x", "agent": "good", "label": "x", "depends_on": ["broken"]})
    agent = editor(handed(tasks=tasks, background=False), last_text, delegates=delegates)
    async with open_orchestrator(":memory:") as orchestrator:
        outputs: list[str] = []

        async def go() -> None:
            outputs.append((await orchestrator.run(agent, "go")).output)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go)
            await trio.sleep(10)
            tree = orchestrator.tree(orchestrator.runs[-1])
            (stopped,) = (id_ for id_ in tree if tree[id_].agent == "stopped")
            await orchestrator.cancel(stopped)

    results = {result["label"]: result for result in json.loads(outputs[0])["results"]}
    assert {label: result["status"] for label, result in results.items()} == {
        "good": "succeeded",
        "broken": "failed",
        "stopped": "cancelled",
        "late": "timed_out",
        "greedy": "over_budget",
        "x": "refused",
    }
    assert "ZeroDivisionError" in results["broken"]["error"]
    assert "5 seconds" in results["late"]["error"]
    assert "2 model calls" in results["greedy"]["error"]
    assert all(result["error"] for label, result in results.items() if label != "good")


async def test_the_tasks_of_a_killed_process_are_interrupted() -> None:
    """A process that is killed writes nothing: its journal just ends."""
    waiting = Agent("w", model=ScriptedModel.always(ToolCall("wait")), tools=[wait])
    agent = editor(hand_on("a", "b", background=False), "never", delegates=[waiting])
    journal = MemoryJournal()
    async with open_orchestrator(journal, rules=Rules(live_tasks=1)) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, agent, "go")
            await trio.sleep(10)
            left = MemoryJournal(journal.entries)
            nursery.cancel_scope.cancel()
    async with open_orchestrator(left) as orchestrator:
        (run_id,) = orchestrator.runs
        tree = orchestrator.tree(run_id)

        assert tree.counts() == {"interrupted": 3}
    assert facts(left.entries, TurnEnded) == []


async def test_cancelling_a_turn_leaves_its_background_tasks_running() -> None:
    agent = editor(
        hand_on("apart", background=True),
        hand_on("within", background=False),
        "news",
        delegates=[worker(seconds=100)],
    )

    def modes(tree: Tree) -> dict[str, str]:
        return {tree[task].goal: tree[task].status for task in tree}

    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id)

                assert modes(session.tree) == {
                    "go": "waiting",
                    "apart": "running",
                    "within": "cancelled",
                }
            await session.wait_idle()

            assert session.replies.receive_nowait().text == "news"
