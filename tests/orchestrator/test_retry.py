"""A task is retried in a new run: what did not come of its end is kept, and is not paid again."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, Orchestrator, Run, delegate, open_orchestrator
from orchestrator.agents import (
    Agent,
    ModelError,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    agent,
    tool,
)
from orchestrator.delegation import Tree
from orchestrator.delegation.events import Entry, ModelAnswered, SessionOpened, TaskStarted
from orchestrator.products.history.replay.record import ReplayError
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.testing import assert_laws
from tests.kit import FunctionModel, facts, hand_on, statuses
from tests.orchestrator import every_kind_kit
from tests.orchestrator.test_recovery import imagined_tools
from tests.orchestrator.test_replay import recorded


class Asked:
    """A model for all agents of a team: some goals fail until they are mended."""

    def __init__(self, *failing: str) -> None:
        self.failing = {*failing}
        self.goals: list[str] = []
        """The last text of each request."""

    def team(self, **options: Any) -> Agent:
        return Agent("lead", model=ScriptedModel.always(self.lead), **options)

    def worker(self, name: str = "worker", seconds: float = 1) -> Agent:
        async def work(request: ModelRequest) -> str:
            goal = request.transcript[-1].text.splitlines()[-1]
            self.goals.append(goal)
            await trio.sleep(seconds)
            if goal in self.failing:
                raise ModelError(f"no {goal}")
            return f"{goal} is done"

        return Agent(name, model=FunctionModel(work))

    def lead(self, transcript: Transcript) -> Any:
        """Ask for three at once, and repeat what came of them."""
        self.goals.append("lead")
        if isinstance(transcript[-1], ToolMessage):
            done = transcript[-1].text.count("is done")
            return f"{done} of 3"
        return hand_on("a", "b", "c", background=False)


async def failed_and_retried(
    orchestrator: Orchestrator, asked: Asked, team: Agent[Any], path: str
) -> tuple[Run[Any], Run[Any]]:
    """Run a team, mend all that fails, and retry the task of a path."""
    run = await orchestrator.run(team, "go")
    asked.failing.clear()
    asked.goals.clear()
    return run, await orchestrator.retry(team, run.id, task=path)


async def test_only_the_task_and_the_next_step_of_its_parent_are_paid_again() -> None:
    asked = Asked("b")
    team = asked.team(delegates=[asked.worker()])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run, again = await failed_and_retried(orchestrator, asked, team, "/lead/worker[2]")
        before = await orchestrator.read_tree(run.id)

    assert (run.output, again.output) == ("2 of 3", "3 of 3")
    assert asked.goals == ["b", "lead"]
    assert again.usage.calls == 2
    assert statuses(before)["/lead/worker[2]"] == "failed", "the old run stays as it is"
    assert list(statuses(again.tree)) == list(statuses(run.tree))
    assert set(statuses(again.tree).values()) == {"succeeded"}
    assert_laws(journal.entries)


def test_a_retry_can_be_replayed_too() -> None:
    asked = Asked("b")
    team = asked.team(delegates=[asked.worker()])

    async def live(orchestrator: Orchestrator) -> None:
        await failed_and_retried(orchestrator, asked, team, "/lead/worker[2]")

    entries = recorded(live)
    for opened in facts(entries, SessionOpened):
        assert replay_sync(entries, team, run=opened.session).difference is None


async def test_a_retry_keeps_the_earlier_steps_of_the_parent() -> None:
    """Here the one in the middle had tried twice, and its parent had given up."""
    asked = Asked("leaf")

    def middle(transcript: Transcript) -> Any:
        asked.goals.append("middle")
        answers = [it.text for it in transcript if isinstance(it, ToolMessage)]
        if len(answers) == 0:
            return hand_on("other")
        if len(answers) > 1 and "is done" in answers[-1]:
            return "it is there"
        return hand_on("leaf") if len(answers) < 3 else "nothing"

    model = ScriptedModel.always(middle)
    between = Agent("middle", model=model, delegates=[asked.worker("leaf")])

    def lead(transcript: Transcript) -> Any:
        asked.goals.append("lead")
        if isinstance(transcript[-1], ToolMessage):
            return "good" if "it is there" in transcript[-1].text else "bad"
        return hand_on("look")

    team = Agent("lead", model=ScriptedModel.always(lead), delegates=[between])
    async with open_orchestrator(":memory:") as orchestrator:
        run, again = await failed_and_retried(orchestrator, asked, team, "/lead/middle[1]/leaf[2]")

    assert (run.output, again.output) == ("bad", "good")
    assert asked.goals == ["leaf", "middle", "lead"]
    assert len(run.tree) == 5
    assert len(again.tree) == 4, "the second attempt came of the first"


async def test_tasks_that_were_refused_because_of_it_run() -> None:
    asked = Asked("first")
    chain = ToolCall(
        "delegate_task",
        {
            "tasks": [
                {"label": "one", "agent": "worker", "goal": "first"},
                {"label": "two", "agent": "worker", "goal": "x", "depends_on": ["one"]},
                {"label": "tri", "agent": "worker", "goal": "y", "depends_on": ["two"]},
            ],
            "background": False,
        },
    )

    def lead(transcript: Transcript) -> Any:
        return "end" if isinstance(transcript[-1], ToolMessage) else chain

    workers = [asked.worker()]
    team = Agent("lead", model=ScriptedModel.always(lead), delegates=workers)
    async with open_orchestrator(":memory:") as orchestrator:
        run, again = await failed_and_retried(orchestrator, asked, team, "/lead/worker[1]")

    assert run.tree.counts() == {"succeeded": 1, "failed": 1, "refused": 2}
    assert again.tree.counts() == {"succeeded": 4}


async def test_a_fan_out_that_was_cut_short_goes_on() -> None:
    asked = Asked("b")
    quick, slow = asked.worker("quick", 1), asked.worker("slow", 60)

    @agent
    async def both(goal: str) -> str:
        first = await delegate(quick, "a")
        done = [first, first]
        async with trio.open_nursery() as nursery:

            async def work(index: int, worker: Agent, what: str) -> None:
                done[index] = await delegate(worker, what)

            nursery.start_soon(work, 0, quick, "b")
            nursery.start_soon(work, 1, slow, goal)
        return f"{first}, {done[0]}, {done[1]}"

    async with open_orchestrator(":memory:") as orchestrator:
        run, again = await failed_and_retried(orchestrator, asked, both, "/both/quick[2]")

    assert statuses(run.tree) == {
        "/both": "failed",
        "/both/quick[1]": "succeeded",
        "/both/quick[2]": "failed",
        "/both/slow[1]": "cancelled",
    }
    assert again.output == "a is done, b is done, go is done"
    assert sorted(asked.goals) == ["b", "go"]


def news(transcript: Transcript) -> list[str]:
    return [
        it.text for it in transcript if isinstance(it, UserMessage) and it.text.startswith("A task")
    ]


async def test_the_turn_that_read_of_its_end_is_taken_again() -> None:
    """A detached task: its notice was mail, and the next turn had answered it."""
    asked = Asked("b")

    def lead(transcript: Transcript) -> Any:
        asked.goals.append("lead")
        if news(transcript) and not isinstance(transcript[-1], ToolMessage):
            return f"heard of {len(news(transcript))}"
        if isinstance(transcript[-1], ToolMessage):
            return "on its way"
        return hand_on("b", background=True)

    workers = [asked.worker()]
    team = Agent("lead", model=ScriptedModel.always(lead), delegates=workers)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(team) as session:
            await session.ask("go")
            await session.wait_idle()
        asked.failing.clear()
        asked.goals.clear()
        again = await orchestrator.retry(team, session.id, task="/lead/worker[1]")

    assert again.outcome.output == "heard of 1"
    assert asked.goals == ["b", "lead"]
    assert again.tree.counts() == {"succeeded": 2}


async def test_a_tool_that_ran_beside_it_is_not_run_twice() -> None:
    asked, runs = Asked("b"), list[str]()

    @tool
    async def measure() -> str:
        await trio.sleep(9)  # longer than the task
        runs.append("measure")
        return "12"

    def lead(transcript: Transcript) -> Any:
        if isinstance(transcript[-1], ToolMessage):
            return "end"
        return [hand_on("b"), ToolCall("measure")]

    model = ScriptedModel.always(lead)
    team = Agent("lead", model=model, tools=[measure], delegates=[asked.worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        _, again = await failed_and_retried(orchestrator, asked, team, "/lead/worker[1]")

    assert (again.output, runs) == ("end", ["measure"])


async def test_a_run_that_was_cancelled_goes_on_with_all_its_tasks() -> None:
    asked = Asked()
    team = asked.team(delegates=[asked.worker(seconds=60)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, team, "go")
            await trio.sleep(1)
            (run,) = orchestrator.runs
            await orchestrator.cancel(run)
        again = await orchestrator.retry(team, run, task="/lead/worker[2]")

    assert again.output == "3 of 3"
    assert again.tree.counts() == {"succeeded": 4}


async def test_retrying_a_failed_run_repeats_all_of_it() -> None:
    asked = Asked()
    answers: list[Any] = [ModelError("no"), "yes"]
    team = Agent("lead", model=ScriptedModel(answers), delegates=[asked.worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        run, again = await failed_and_retried(orchestrator, asked, team, "/lead")

    assert not run.outcome.succeeded
    assert again.output == "yes"


async def test_a_retry_of_a_task_of_a_running_run_is_refused() -> None:
    asked = Asked()
    team = asked.team(delegates=[asked.worker(seconds=60)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, team, "go")
            await trio.sleep(1)
            (run,) = orchestrator.runs
            with pytest.raises(ReplayError, match="has not ended, and can go on"):
                await orchestrator.retry(team, run, task="/lead/worker[2]")


async def test_a_crash_after_any_entry_of_it_ends_like_the_retry_does() -> None:
    """The copy is one commit; from there on every cut is tried."""
    asked = Asked("b")
    team = asked.team(delegates=[asked.worker()])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        _, again = await failed_and_retried(orchestrator, asked, team, "/lead/worker[2]")
    whole = journal.entries
    started = [
        it.seq for it in whole if it.session == again.id and isinstance(it.event, TaskStarted)
    ]
    for length in range(started[-1] - 1, len(whole) - 1):
        journal = MemoryJournal(whole[:length])
        async with open_orchestrator(journal) as orchestrator:
            end = await orchestrator.resume(team, again.id)
        assert end.output == "3 of 3", length
        assert paid_for(journal.entries, again.id) == {"b is done": 1, "3 of 3": 1}
        assert_laws(journal.entries)


def paid_for(entries: Sequence[Entry], run: str) -> Counter[str]:
    own = [it for it in entries if it.session == run]
    return Counter(fact.message.text for fact in facts(own, ModelAnswered) if not fact.copied)


async def test_any_task_of_any_kind_can_be_retried() -> None:
    """Joined, detached, nested, failing, cancelled, dependent, steered, limited, budgeted."""
    journal = MemoryJournal()
    team = every_kind_kit.team(imagined_tools([]))
    async with open_orchestrator(journal) as orchestrator:
        await every_kind_kit.converse(orchestrator, team, [])
        (run,) = orchestrator.runs
        tree: Tree = await orchestrator.read_tree(run)
        ended = {tree[task].path: tree[task].status for task in tree if task != tree.root}
        assert len(ended) > 3
        for path in ended:
            again = await orchestrator.retry(team, run, task=path)
            assert not again.tree.tally().unsettled, path
    assert_laws(journal.entries)
