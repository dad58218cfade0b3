"""A fork of one task: all work that does not follow from its result is kept, and is not paid."""

from collections import Counter
from typing import Any

import attrs
import pytest
import trio

from orchestrator import (
    DefinitionError,
    MemoryJournal,
    Orchestrator,
    delegate,
    detach,
    map_each,
    open_orchestrator,
    parallel,
)
from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, Transcript, agent, tool
from orchestrator.agents.script import Script, script_agent
from orchestrator.delegation import SessionId, Tree
from orchestrator.delegation.events import Event, SessionOpened, TaskSettled
from orchestrator.ports.errors import ChangedProgramError
from orchestrator.products.evaluation.settings import SettingsChange, change_of_fork
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.testing import assert_laws
from tests.kit import facts, hand_on, statuses
from tests.orchestrator.test_replay import recorded


class Team:
    """Agents that count their model and tool calls; the answer of a worker has its version."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.version = "v1"

        @tool
        async def look(at: str) -> str:
            """Look at something."""
            await trio.lowlevel.checkpoint()
            self.calls[f"look {at}"] += 1
            return f"seen {at}"

        self.look = look

    def worker(self, name: str = "worker", **options: Any) -> Agent:
        def work(transcript: Transcript) -> Any:
            first = transcript[0].text.splitlines()[-1]
            self.calls[f"{name} {first}"] += 1
            if "tools" in options and not isinstance(transcript[-1], ToolMessage):
                return ToolCall("look", {"at": first})
            return f"{first}:{self.version}"

        return Agent(name, model=ScriptedModel.always(work, 1), **options)

    def lead(self, *calls: Any, name: str = "lead", **options: Any) -> Agent:
        """Return an agent that makes calls one after the other, and repeats the last result."""

        def step(transcript: Transcript) -> Any:
            self.calls[name] += 1
            results = [it.text for it in transcript if isinstance(it, ToolMessage)]
            return calls[len(results)] if len(results) < len(calls) else results[-1]

        return Agent(name, model=ScriptedModel.always(step), **options)

    def forget(self) -> None:
        self.calls.clear()
        self.version = "v2"


def kept(tree: Tree) -> set[str]:
    return {tree[task].path for task in tree if tree[task].kept}


async def test_siblings_make_no_model_or_tool_call() -> None:
    team, journal = Team(), MemoryJournal()
    worker = team.worker(tools=[team.look])
    lead = team.lead(hand_on("a", "b", "c"), delegates=[worker])
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(lead, "go")
        team.forget()
        again = await orchestrator.fork(lead, run.id, only="/lead/worker[2]")

    assert team.calls == {"worker b": 2, "look b": 1, "lead": 1}
    assert [again.output.count(it) for it in ("a:v1", "b:v2", "c:v1")] == [1, 1, 1]
    assert statuses(again.tree) == statuses(run.tree)
    assert kept(again.tree) == {"/lead/worker[1]", "/lead/worker[3]"}
    assert again.usage.calls == 3
    assert "kept · a" in again.tree.to_text()
    assert [str(it).endswith(", 2 kept") for it in run.tree.diff(again.tree)] == [False, True]
    assert_laws(journal.entries)


def test_a_fork_of_one_task_can_be_replayed() -> None:
    team = Team()
    lead = team.lead(hand_on("a", "b", "c"), delegates=[team.worker()])

    async def live(orchestrator: Orchestrator) -> None:
        run = await orchestrator.run(lead, "go")
        team.forget()
        await orchestrator.fork(lead, run.id, only="/lead/worker[2]")

    entries = recorded(live)
    for opened in facts(entries, SessionOpened):
        assert replay_sync(entries, lead, run=opened.session).difference is None


async def test_a_fork_stops_at_the_result_if_asked() -> None:
    team, journal = Team(), MemoryJournal()
    lead = team.lead(hand_on("a", "b"), delegates=[team.worker()])
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(lead, "go")
        team.forget()
        again = await orchestrator.fork(lead, run.id, only="/lead/worker[2]", stop=True)

    assert again.output == "b:v2"
    assert team.calls == {"worker b": 1}
    assert statuses(again.tree)["/lead"] == "cancelled"
    assert again.usage.calls == 1
    assert_laws(journal.entries)


async def test_a_change_holds_for_the_task_and_its_descendants_alone() -> None:
    team = Team()
    deep = team.worker("deep")
    worker = team.lead(hand_on("below"), name="worker", delegates=[deep])
    lead = team.lead(hand_on("a", "b"), hand_on("c"), delegates=[worker])

    def change(each: Agent[Any]) -> Agent[Any]:
        return attrs.evolve(each, model=ScriptedModel.always("changed")) if each is deep else each

    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead, "go")
        team.forget()
        again = await orchestrator.fork(lead, run.id, only="/lead/worker[1]", change=change)

    assert team.calls == {"worker": 4, "deep below": 1, "lead": 2}, "the new worker[3] is unchanged"
    assert kept(again.tree) == {"/lead/worker[2]", "/lead/worker[2]/deep[1]"}


async def test_fork_takes_one_task() -> None:
    lead = Team().lead()
    async with open_orchestrator(":memory:") as orchestrator:
        wrong: list[Any] = [{}, {"task": "a", "only": "b"}, {"task": "a", "stop": True}]
        for terms in wrong:
            with pytest.raises(DefinitionError, match=r"fork\(\) takes"):
                await orchestrator.fork(lead, "r_1", **terms)


async def test_a_nested_task_keeps_the_earlier_steps_above_it() -> None:
    team = Team()
    middle = team.lead(hand_on("x"), hand_on("y"), name="middle", delegates=[team.worker()])
    lead = team.lead(hand_on("left", "right"), delegates=[middle])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead, "go")
        team.forget()
        again = await orchestrator.fork(lead, run.id, only="/lead/middle[2]/worker[2]")

    assert team.calls == {"worker y": 1, "middle": 1, "lead": 1}
    assert list(statuses(again.tree)) == list(statuses(run.tree))


async def test_dependents_of_a_succeeded_task_run_again() -> None:
    team = Team()
    chain = ToolCall(
        "delegate_task",
        {
            "tasks": [
                {"label": "two", "agent": "worker", "goal": "2", "depends_on": ["one"]},
                {"label": "one", "agent": "worker", "goal": "1"},
                {"label": "tri", "agent": "worker", "goal": "3", "depends_on": ["two"]},
                {"label": "free", "agent": "worker", "goal": "4"},
            ],
            "background": False,
        },
    )
    lead = team.lead(chain, delegates=[team.worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead, "go")
        paths = {run.tree[it].label: run.tree[it].path for it in run.tree}
        team.forget()
        again = await orchestrator.fork(lead, run.id, only=paths["one"])

    assert team.calls.total() == 4, "the task, two dependents, and the lead"
    assert kept(again.tree) == {paths["free"]}


async def test_the_turn_that_read_a_detached_result_is_taken_again() -> None:
    team = Team()

    def step(transcript: Transcript) -> Any:
        team.calls["lead"] += 1
        news = [it.text for it in transcript if it.text.startswith("A task")]
        if news and not isinstance(transcript[-1], ToolMessage):
            return " ".join(news)
        if isinstance(transcript[-1], ToolMessage):
            return "on its way"
        return hand_on("a", "b", background=True)

    lead = Agent("lead", model=ScriptedModel.always(step), delegates=[team.worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()
        team.forget()
        again = await orchestrator.fork(lead, session.id, only="/lead/worker[1]")
        called = team.calls.copy()
        team.forget()
        stopped = await orchestrator.fork(lead, session.id, only="/lead/worker[1]", stop=True)

    assert called["worker a"] == 1
    assert called["worker b"] == 0
    assert called["lead"] >= 1
    assert "a:v2" in again.output
    assert "b:v1" in again.output
    assert (stopped.output, team.calls) == ("a:v2", {"worker a": 1})


@pytest.fixture
def team() -> Team:
    return Team()


async def forked_program(
    orchestrator: Orchestrator, team: Team, program: Agent[Any, Any], goal: Any, path: str
) -> tuple[Any, Any]:
    run = await orchestrator.run(program, goal)
    team.forget()
    return run, await orchestrator.fork(program, run.id, only=path)


async def test_map_each_repeats_one_item(team: Team) -> None:
    program = map_each(team.worker(), limit=2)
    async with open_orchestrator(":memory:") as orchestrator:
        _, again = await forked_program(
            orchestrator, team, program, ["a", "b", "c", "d"], "/map_each/worker[2]"
        )

    assert again.output == ["a:v1", "b:v2", "c:v1", "d:v1"]
    assert team.calls == {"worker b": 1}


async def test_equal_requests_keep_their_answers(team: Team) -> None:
    program = map_each(team.worker())
    async with open_orchestrator(":memory:") as orchestrator:
        _, again = await forked_program(
            orchestrator, team, program, ["a", "a", "a"], "/map_each/worker[2]"
        )

    assert again.output == ["a:v1", "a:v2", "a:v1"]


async def test_parallel_repeats_one_branch(team: Team) -> None:
    program = parallel(team.worker("left"), team.worker("right"))
    async with open_orchestrator(":memory:") as orchestrator:
        _, again = await forked_program(orchestrator, team, program, "a", "/parallel/right[1]")

    assert list(again.output) == ["a:v1", "a:v2"]
    assert team.calls == {"right a": 1}


async def test_dependents_in_a_program_run_again(team: Team) -> None:
    first, second, other = team.worker("first"), team.worker("second"), team.worker("other")

    @agent
    async def program(goal: str) -> str:
        one = await detach(first, goal)
        beside = await detach(other, goal)
        two = await detach(second, after=one)
        return f"{await two.result()} {await beside.result()}"

    async with open_orchestrator(":memory:") as orchestrator:
        _, again = await forked_program(orchestrator, team, program, "a", "/program/first[1]")

    assert again.output == "a:v2:v2 a:v1"
    assert team.calls == {"first a": 1, "second a:v2": 1}


def two_steps(team: Team) -> Agent[Any, Any]:
    first, second = team.worker("first"), team.worker("second")

    @agent
    async def program(goal: str) -> str:
        done = dict[str, str]()
        async with trio.open_nursery() as nursery:

            async def both(item: str) -> None:
                done[item] = await delegate(second, await delegate(first, item))

            for item in goal.split():
                nursery.start_soon(both, item)
        return " ".join(done[item] for item in goal.split())

    return program


async def test_a_program_that_asks_for_other_tasks_gets_new_ones(team: Team) -> None:
    """The second step of another item began after the first step of this one had ended."""
    program = two_steps(team)
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(program, "a b")
        item = next(
            it.goal[0] for it in map(run.tree.__getitem__, run.tree) if it.path.endswith("first[1]")
        )
        beside = "b" if item == "a" else "a"
        team.forget()
        again = await orchestrator.fork(program, run.id, only="/program/first[1]")

    assert team.calls == {f"first {item}": 1, f"second {item}:v2": 1}
    assert f"{item}:v2:v2" in again.output
    assert f"{beside}:v1:v1" in again.output
    assert "kept, but not requested again: /program/second[" in again.outcome.note


async def test_a_script_repeats_one_call(team: Team) -> None:
    program = script_agent([team.worker()], [])
    code = 'await gather(*[agent("worker", it) for it in ["a", "b", "c"]])'
    async with open_orchestrator(":memory:") as orchestrator:
        _, again = await forked_program(
            orchestrator, team, program, Script(code=code), "/script/worker[2]"
        )

    assert again.output == '["a:v1", "b:v2", "c:v1"]'
    assert team.calls == {"worker b": 1}


def is_kept(event: Event) -> bool:
    return isinstance(event, TaskSettled) and event.outcome.kept is True


async def test_a_crash_after_any_entry_ends_like_the_fork(team: Team) -> None:
    journal = MemoryJournal()
    program = two_steps(team)
    lead = team.lead(hand_on("a b"), delegates=[program])
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(lead, "go")
        team.forget()
        whole = await orchestrator.fork(lead, run.id, only="/lead/program[1]/first[1]")
        stopped = await orchestrator.fork(lead, run.id, only="/lead/program[1]/first[1]", stop=True)
    entries = journal.entries
    for fork in (whole, stopped):
        own = [it.seq for it in entries if it.session == fork.id]
        copied = max(it.seq for it in entries if it.seq in own and is_kept(it.event))
        for length in range(copied, own[-1]):
            cut = MemoryJournal([it for it in entries if it.seq <= length])
            async with open_orchestrator(cut) as orchestrator:
                if not orchestrator.read.records.sessions[fork.id].awaits_resume:
                    continue
                team.calls.clear()
                end = await orchestrator.resume(lead, fork.id)
            assert ("a:v2" in end.output) is ("a:v2" in fork.output)
            assert ("b:v2" in end.output) is ("b:v2" in fork.output)
            assert max(team.calls.values(), default=0) <= 1
            assert not {it for it in team.calls if it.endswith(":v1")}
            assert_laws(cut.entries)


async def interrupted_fork(team: Team, lead: Agent, change: Any) -> tuple[MemoryJournal, SessionId]:
    """Return the journal of a changed fork whose process died before its task called a model."""
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(lead, "go")
        team.forget()
        fork = await orchestrator.fork(lead, run.id, only="/lead/worker[1]", change=change)
    opened = next(it.seq for it in journal.entries if it.session == fork.id)
    answered = next(
        it.seq
        for it in journal.entries
        if it.seq > opened and isinstance(it.event, TaskSettled) and not is_kept(it.event)
    )
    return MemoryJournal([it for it in journal.entries if it.seq < answered]), fork.id


async def test_a_resumed_fork_needs_its_change_again(team: Team) -> None:
    lead = team.lead(hand_on("a", "b"), delegates=[team.worker()])

    def change(each: Agent[Any]) -> Agent[Any]:
        return attrs.evolve(each, model=ScriptedModel.always("changed"))

    journal, fork = await interrupted_fork(team, lead, change)
    async with open_orchestrator(MemoryJournal(journal.entries)) as orchestrator:
        with pytest.raises(ChangedProgramError, match="changed agents"):
            await orchestrator.resume(lead, fork)
        assert "changed" in (await orchestrator.resume(lead, fork, change=change)).output
    async with open_orchestrator(MemoryJournal(journal.entries)) as orchestrator:
        plain = await orchestrator.resume(lead, fork, on_change="accept")
    assert "a:v2" in plain.output


async def test_a_fork_records_the_settings_of_its_change(team: Team) -> None:
    lead = team.lead(hand_on("a", "b"), delegates=[team.worker()])
    settings = ("worker.instructions=Be brief.", "worker.limits.calls=3")
    journal, fork = await interrupted_fork(team, lead, SettingsChange(settings))
    async with open_orchestrator(journal) as orchestrator:
        found = await orchestrator.read.session(fork)
        change = change_of_fork(found.session)
        assert change == SettingsChange(settings)
        again = await orchestrator.resume(lead, fork, change=change)
    assert again.outcome.succeeded
    worker = change(team.worker())
    assert (worker.instructions, worker.limits.calls) == ("Be brief.", 3)
