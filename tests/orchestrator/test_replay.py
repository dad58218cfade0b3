"""A run is done again from its record: without a model, and the same every time."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
import trio
import trio.testing

from orchestrator import MemoryJournal, Orchestrator, UnknownIdError, budget, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    Limits,
    ModelError,
    ModelRequest,
    Patience,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    tool,
)
from orchestrator.delegation import Grant, Rules
from orchestrator.delegation.events import (
    Entry,
    ModelAnswered,
    SessionOpened,
    TaskSettled,
    TurnStarted,
)
from orchestrator.kernel.budget_scope import use_grants
from orchestrator.products.history.replay.compare import Difference, ReplayResult
from orchestrator.products.history.replay.record import ReplayError
from orchestrator.products.history.replay.run import replay, replay_sync
from tests.growth import grows_at_most
from tests.kit import FunctionModel, continue_session, facts, hand_on, worker
from tests.orchestrator.test_cli import Shell
from tests.orchestrator.test_recovery import team

T = TypeVar("T")


def on_a_jumping_clock(work: Callable[[], Awaitable[T]]) -> T:
    return trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


def recorded(
    live: Callable[[Orchestrator], Awaitable[Any]], rules: Rules | None = None
) -> list[Entry]:
    """Return the journal of what a function does with an orchestrator."""
    journal = MemoryJournal()

    async def record() -> None:
        async with open_orchestrator(journal, rules=rules) as orchestrator:
            await live(orchestrator)

    on_a_jumping_clock(record)
    return journal.entries


def run_of(agent: Agent[Any], rules: Rules | None = None) -> list[Entry]:
    return recorded(lambda orchestrator: orchestrator.run(agent, "go"), rules)


def talk_with(agent: Agent[Any]) -> list[Entry]:
    async def talk(orchestrator: Orchestrator) -> None:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    return recorded(talk)


def muted(agent: Agent[Any]) -> Agent[Any]:
    """Return an agent whose team has models that may not be asked, and tools to match."""

    async def run(call: ToolCall) -> str:
        await trio.lowlevel.checkpoint()
        raise AssertionError("a tool was run")

    assert isinstance(agent.model, ScriptedModel)
    error = AssertionError("a model was called")
    return attrs.evolve(
        agent,
        model=ScriptedModel.always(error, price=agent.model.price),
        tools=[attrs.evolve(it, run=run) for it in agent.tools],
        delegates=[muted(it) for it in agent.delegates],
    )


def same(entries: Sequence[Entry], agent: Agent[Any], rules: Rules | None = None) -> int:
    """Require that a run is the same again, and return how many tasks it has."""
    replayed = replay_sync(entries, muted(agent), rules=rules)
    assert replayed.difference is None, replayed.difference
    assert replayed.steps > replayed.tasks > 0
    return replayed.tasks


def different(entries: Sequence[Entry], agent: Agent[Any]) -> Difference:
    found = replay_sync(entries, muted(agent)).difference
    assert found is not None
    return found


def stepwise(*steps: Any, seconds: float = 0) -> ScriptedModel:
    """Return a model that says one thing after the other, in every task anew."""

    def say(transcript: Transcript) -> Any:
        said = sum(isinstance(message, ToolMessage) for message in transcript)
        return steps[min(said, len(steps) - 1)]

    return ScriptedModel.always(say, seconds)


@tool
async def look(place: str) -> str:
    await trio.sleep(3)
    return f"seen {place}"


@tool
async def hang() -> str:
    await trio.sleep(100)
    return "never"


@tool
async def crash() -> str:
    await trio.sleep(1)
    raise ValueError("a bug")


def test_a_joined_and_nested_run_is_the_same_ten_times() -> None:
    entries = run_of(team())

    assert [same(entries, team()) for _ in range(10)] == [7] * 10


def test_a_session_with_detached_tasks_is_the_same_ten_times() -> None:
    entries = on_a_jumping_clock(partial(continue_session, team(), [], takes_replies=True))

    assert [same(entries, team()) for _ in range(10)] == [7] * 10


def test_a_run_replays_identically_after_any_crash() -> None:
    whole = on_a_jumping_clock(partial(continue_session, team(), [], takes_replies=True))
    for length in range(1, len(whole)):
        entries = on_a_jumping_clock(
            partial(continue_session, team(), whole[:length], takes_replies=True)
        )

        assert same(entries, team()) == 7, length


def test_recorded_failures_replay_identically() -> None:
    """Models that fail, tools that refuse or crash, tasks that are too slow or too dear."""

    def member(name: str, *steps: Any, **more: Any) -> Agent[Any]:
        return Agent(name, model=stepwise(*steps, seconds=1), **more)

    refusing = member("refusing", ToolCall("look", {"plaice": "x"}), "well", tools=[look])
    failing = member("failing", ModelError("down", partial="I thi"))
    crashing = member("crashing", [ToolCall("crash"), ToolCall("hang")])
    slow = Agent("slow", model=ScriptedModel.always("late", 60), limits=Limits(seconds=5))
    stuck = member("stuck", ToolCall("hang"), tools=[hang], limits=Limits(seconds=4))
    silent = Agent(
        "silent", model=ScriptedModel.always("…", 100), patience=Patience(quiet=5, stalled=20)
    )
    busy = member("busy", ToolCall("look", {"place": "a"}), tools=[look])
    agents = [
        refusing,
        failing,
        attrs.evolve(crashing, tools=[crash, hang]),
        slow,
        stuck,
        silent,
        attrs.evolve(busy, limits=Limits(calls=3)),
        member("wrong", "no number", output=int),
        member("odd", ToolCall("nothing_like_that"), "so be it"),
    ]
    lead = Agent(
        "lead",
        model=stepwise([hand_on("x", agent=it.name) for it in agents], "done"),
        delegates=agents,
    )

    entries = run_of(lead)
    endings = {str(end) for end in _endings(entries)}

    assert endings == {"succeeded", "failed", "timed_out", "over_budget"}
    for _ in range(5):
        assert same(entries, lead) == 10


def _endings(entries: Sequence[Entry]) -> list[Any]:
    outcomes = [getattr(entry.event, "outcome", None) for entry in entries]
    return [outcome.ending for outcome in outcomes if outcome is not None]


def test_tasks_that_need_others_and_a_budget_that_runs_out_are_the_same() -> None:
    tasks = [
        {"goal": "a", "label": "a", "agent": "worker"},
        {"goal": "b", "label": "b", "agent": "worker", "depends_on": ["a"]},
        {"goal": "c", "agent": "broken", "label": "c"},
        {"goal": "d", "agent": "worker", "depends_on": ["c"]},
    ]
    lead = Agent(
        "lead",
        model=stepwise(
            ToolCall("delegate_task", {"tasks": tasks}), hand_on(*"efghij", agent="worker"), "done"
        ),
        delegates=[
            worker("worker", seconds=1),
            Agent("broken", model=ScriptedModel.always(ModelError("down"))),
        ],
        budget=Budget(calls=8),
    )

    for _ in range(5):
        entries = run_of(lead)
        assert "over_budget" in _endings(entries)
        assert "refused" in _endings(entries)
        assert same(entries, lead) == 11


def test_runs_with_a_shared_budget_replay_identically() -> None:
    agent = Agent(
        "lead",
        model=stepwise(hand_on("a", "b", agent="worker"), "done"),
        delegates=[worker("worker")],
    )

    async def share(orchestrator: Orchestrator) -> None:
        with budget(calls=7):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(orchestrator.run, agent, "go")

    entries = recorded(share)

    assert "over_budget" in _endings(entries)
    for opened in facts(entries, SessionOpened):
        assert replay_sync(entries, muted(agent), run=opened.session).is_same


def test_steering_cancelling_and_waiting_replay_identically() -> None:
    """From inside, by `task`, and from outside."""

    def lead(transcript: Transcript) -> Any:
        answers = [it.text for it in transcript if isinstance(it, ToolMessage)]
        ids = [part.split('"')[0] for part in "".join(answers[:1]).split('task_id":"')[1:]]
        if isinstance(transcript[-1], UserMessage) and answers:
            return f"heard {sum('has ended' in it.text for it in transcript)}"

        def control(action: str, **more: Any) -> ToolCall:
            return ToolCall("task", {"action": action, **more})

        steps = [
            hand_on("a", "b", "c", "d", agent="worker", background=True),
            [control("list"), control("steer", ids=ids[:1], message="hurry")],
            "the two are answered together",
            control("cancel", ids=ids[1:2]),
            control("wait", ids=ids[:1]),
            control("wait", seconds=2),
            control("result", ids=ids[:1]),
            "that is all",
        ]
        return steps[len(answers)] if len(answers) < len(steps) else "so it is"

    at_work = Agent(
        "worker",
        model=stepwise(*(ToolCall("look", {"place": str(n)}) for n in range(4)), "done"),
        tools=[look],
    )
    agent = Agent("lead", model=ScriptedModel.always(lead, 1), delegates=[at_work])

    async def talk(orchestrator: Orchestrator) -> None:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(7)
                tree = session.tree
                third, fourth = tree.children(tree.root)[2:]
                await orchestrator.steer(third, "from outside")
                await orchestrator.cancel(fourth)
            await session.ask("anything else?")
            await session.wait_idle()

    entries = recorded(talk)

    assert _endings(entries).count("cancelled") == 2
    for _ in range(10):
        assert same(entries, agent) == 5


def test_a_run_cancelled_by_its_caller_replays_as_cancelled() -> None:
    async def cancelled(orchestrator: Orchestrator) -> None:
        with trio.move_on_after(0.7):
            await orchestrator.run(team(), "go")

    entries = recorded(cancelled)

    assert "cancelled" in _endings(entries)
    assert same(entries, team()) == 5


def test_a_session_that_another_process_opened_again_is_the_same() -> None:
    journal = MemoryJournal()
    agent = worker("lead", seconds=1)

    async def talk(session: str | None) -> str:
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(agent, session=session) as opened:
                await opened.ask("go")
                return opened.id

    first = on_a_jumping_clock(partial(talk, None))
    on_a_jumping_clock(partial(talk, first))

    assert same(journal.entries, agent) == 1


def test_an_answer_that_came_just_in_time_comes_in_time_again() -> None:
    """A limit of time begins a moment earlier in a replay than it did."""

    def lead(seconds: float) -> Agent[Any]:
        model = ScriptedModel.always("ok", 5)
        slow = Agent("slow", model=model, limits=Limits(seconds=seconds))
        return Agent("lead", model=stepwise(hand_on("x", agent="slow"), "ok"), delegates=[slow])

    entries = run_of(lead(5.1))

    assert same(entries, lead(4.9)) == 2
    assert "timed_out" in different(entries, lead(4.5)).replayed


def test_limits_that_follow_each_other_at_once_are_the_same() -> None:
    """One that has run out of time makes room for the next, time after time."""
    rules = Rules(live_children=1)
    slow = Agent("slow", model=ScriptedModel.always("ok", 9), limits=Limits(seconds=5))
    lead = Agent("lead", model=stepwise(hand_on(*"abcdefgh", agent="slow"), "ok"), delegates=[slow])
    entries = run_of(lead, rules)

    assert same(entries, lead, rules) == 9


async def test_a_fork_is_not_paid_by_the_key_of_the_run() -> None:
    top = Agent(
        "top", model=ScriptedModel([hand_on("a"), "end", "end of the fork"]), delegates=[worker()]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        day = Grant.standing("key:ann:today", Budget(tokens=10**6))
        with use_grants((day,)):
            run = await orchestrator.run(top, "go")
        account = orchestrator.read.records.accounts[day.id]
        used = account.used
        (task,) = run.tree.children(run.tree.root)
        again = await orchestrator.fork(top, run.id, task=task)

    assert (again.output, account.used) == ("end of the fork", used)
    assert used.tokens


async def test_a_fork_has_its_own_share_of_a_budget() -> None:
    """Otherwise a run that has used it up could not be forked."""
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=3):
            run = await orchestrator.run(team_in_a_hurry(), "go")
        fork = await orchestrator.fork(team_in_a_hurry(), run.id, task="/lead/worker[1]")

    assert fork.outcome.succeeded


async def test_a_fork_copies_refusals_and_restarted_tasks() -> None:
    tasks = [
        {"goal": "a", "label": "a", "agent": "broken"},
        {"goal": "b", "agent": "worker", "depends_on": ["a"]},
    ]

    def lead(transcript: Transcript) -> Any:
        answered = sum(isinstance(message, ToolMessage) for message in transcript)
        steps = [
            ToolCall("delegate_task", {"tasks": tasks, "background": False}),
            hand_on("c", agent="worker", background=False),
            "done",
        ]
        return steps[answered]

    agent = Agent(
        "lead",
        model=ScriptedModel.always(lead, 1),
        delegates=[
            worker("worker", seconds=5),
            Agent("broken", model=ScriptedModel.always(ModelError("down"), 1)),
        ],
    )
    journal = MemoryJournal()
    with trio.move_on_after(6):
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session.id) as again:
            await again.replies.receive()
            await again.ask("once more")
        fork = await orchestrator.fork(agent, session.id, task="/lead/worker[2]")

    assert fork.outcome.output == "done"
    assert fork.tree.counts() == {"succeeded": 2, "failed": 1, "refused": 1}


def test_a_replay_applies_the_slot_limits_of_the_run() -> None:
    rules = Rules(live_children=2, live_tasks=3)

    for _ in range(5):
        entries = run_of(team(), rules)
        assert same(entries, team(), rules) == 7


def changed(lead: Agent[Any], **changes: Any) -> Agent[Any]:
    return attrs.evolve(lead, **changes)


def simple(**changes: Any) -> Agent[Any]:
    """Return a team of two: one looks at a place, and the other asks for that."""
    looker = Agent(
        "looker",
        model=stepwise(ToolCall("look", {"place": "here"}), "42"),
        **{"tools": [look], **changes},
    )
    return Agent("lead", model=stepwise(hand_on("look", agent="looker"), "ok"), delegates=[looker])


def test_the_same_is_the_same() -> None:
    assert same(run_of(simple()), simple()) == 2


def test_a_removed_tool_is_the_first_difference() -> None:
    found = different(run_of(simple()), simple(tools=[]))

    assert (found.path, found.step) == ("/lead/looker[1]", 3)
    assert found.recorded == "look answers: seen here"
    assert found.replayed == "look refuses: there is no tool 'look'; there are: none"
    assert "/lead/looker[1], step 3" in str(found)


def test_a_tool_that_is_new_is_a_difference_where_it_was_missed() -> None:
    found = different(run_of(simple(tools=[])), simple())

    assert (found.path, found.step) == ("/lead/looker[1]", 3)
    assert "there is a tool 'look' now" in found.replayed


def test_an_answer_that_does_not_fit_any_more_is_a_difference() -> None:
    """Its model would be called again, with an unknown answer."""
    found = different(run_of(simple()), simple(output=list[int]))

    assert (found.path, found.step) == ("/lead/looker[1]", 5)
    assert found.recorded == "it ends: succeeded: 42"
    assert found.replayed == "its model is asked once more"


def test_a_tighter_limit_is_a_difference() -> None:
    calls = different(run_of(simple()), simple(limits=Limits(calls=1)))
    seconds = different(run_of(simple()), simple(limits=Limits(seconds=2)))

    assert (calls.path, calls.step) == ("/lead/looker[1]", 4)
    assert calls.recorded == "its model answers: 42"
    assert "over_budget: calls: used up its limit of 1 model calls" in calls.replayed
    assert (seconds.path, seconds.step) == ("/lead/looker[1]", 3)
    assert "timed_out" in seconds.replayed


def test_a_removed_delegate_is_a_difference() -> None:
    found = different(run_of(simple()), changed(simple(), delegates=[worker("other")]))

    assert (found.path, found.step) == ("/lead", 3)
    assert found.recorded.startswith("delegate_task answers: ")
    assert "agent is 'looker'; it must be one of: other" in found.replayed


def test_a_budget_of_an_agent_is_a_difference_where_it_is_asked() -> None:
    found = different(run_of(simple()), simple(budget=Budget(calls=9)))

    assert (found.path, found.step) == ("/lead/looker[1]", 1)
    assert "budget budget (calls=9)" in found.replayed


def test_a_lower_limit_of_detached_tasks_is_a_difference() -> None:
    lead = changed(simple(), model=stepwise(hand_on("look", agent="looker"), "told later"))
    entries = talk_with(lead)
    found = replay_sync(entries, muted(lead), rules=Rules(detached=0)).difference

    assert same(entries, lead) == 2
    assert found is not None
    assert (found.path, found.step) == ("/lead/looker[1]", 1)
    assert "detached because the session that asked can be told later" in found.recorded
    assert "joined because the rules allow nothing in the background" in found.replayed


def test_a_replay_of_the_wrong_agent_or_run_is_refused() -> None:
    entries = run_of(team())

    with pytest.raises(ReplayError, match="belongs to agent 'lead', not 'other'"):
        replay_sync(entries, worker("other"))
    with pytest.raises(UnknownIdError, match="no run 'r_no'"):
        replay_sync(entries, team(), run="r_no")
    with pytest.raises(UnknownIdError, match="no runs"):
        replay_sync([], team())


def test_a_run_is_replayed_up_to_wherever_its_record_ends() -> None:
    entries = run_of(team())
    first = next(i for i, it in enumerate(entries) if isinstance(it.event, TurnStarted))
    for length in range(first + 1, len(entries)):
        replayed = replay_sync(entries[:length], team())

        assert replayed.difference is None, (length, replayed.difference)
        assert replayed.is_whole is False


def test_a_difference_is_found_before_the_record_ends() -> None:
    entries = run_of(simple())
    settled = next(i for i, it in enumerate(entries) if isinstance(it.event, TaskSettled))
    found = replay_sync(entries[:settled], simple(tools=[])).difference

    assert found is not None
    assert (found.path, found.step) == ("/lead/looker[1]", 3)
    assert found.replayed == "look refuses: there is no tool 'look'; there are: none"


def test_a_thousand_tasks_are_replayed_in_ten_times_the_time_of_a_hundred() -> None:
    def run(batches: int) -> tuple[Sequence[Entry], Agent]:
        goals = [str(number) for number in range(100)]
        calls = [hand_on(*goals, agent="worker") for _ in range(batches)]
        lead = Agent("lead", model=stepwise(calls, "done"), delegates=[worker("worker", seconds=1)])
        return run_of(lead), lead

    def replay_it(run: tuple[Sequence[Entry], Agent]) -> None:
        assert same(*run) % 100 == 1

    assert grows_at_most(40, replay_it, small=run(1), large=run(10))


@pytest.mark.realtime
async def test_a_run_is_replayed_in_a_thread_where_an_event_loop_runs() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(team_in_a_hurry(), "go")

        replayed = await replay(journal.entries, team_in_a_hurry(), run=run.id)

    assert replayed == ReplayResult(run=run.id, tasks=2, steps=8, difference=None)


def team_in_a_hurry() -> Agent[Any]:
    return Agent(
        "lead", model=stepwise(hand_on("x", agent="worker"), "ok"), delegates=[worker("worker")]
    )


def counted(agent: Agent[Any], asked: list[str]) -> Agent[Any]:
    model = agent.model
    assert isinstance(model, ScriptedModel)

    async def note(request: ModelRequest) -> AssistantMessage:
        asked.append(request.transcript[0].text)
        return await model.answer(request)

    return attrs.evolve(
        agent, model=FunctionModel(note), delegates=[counted(it, asked) for it in agent.delegates]
    )


async def test_a_fork_repeats_no_recorded_call_and_continues_live_from_a_child() -> None:
    def read(transcript: Transcript) -> Any:
        texts = [it.text for it in transcript if isinstance(it, ToolMessage)]
        steps = [hand_on("first", agent="worker"), hand_on("second", agent="worker")]
        return steps[len(texts)] if len(texts) < 2 else " | ".join(texts)

    def lead(says: str) -> Agent[Any]:
        return Agent(
            "lead",
            model=ScriptedModel.always(read),
            delegates=[worker("worker", says=says)],
            budget=Budget(calls=5),
        )

    journal = MemoryJournal()
    asked: list[str] = []
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(lead("old"), "go")
        fork = await orchestrator.fork(
            counted(attrs.evolve(lead("new"), budget=Budget(calls=2)), asked),
            run.id,
            task="/lead/worker[2]",
        )

    opened = facts(journal.entries, SessionOpened)[-1]
    assert asked == ["second", "go"]
    assert fork.outcome.succeeded, "the budget is enough for the two calls that are live"
    assert fork.usage.calls == 2
    assert run.usage.calls == 5
    assert '"output":"old"' in fork.output
    assert '"output":"new"' in fork.output
    assert opened.session == fork.id != run.id
    assert opened.forked_from == f"{run.id}/{run.tree.children(run.tree.root)[1]}"
    assert not set(run.tree) & set(fork.tree)
    assert all(it not in fork.output for it in run.tree)
    copied = [it for it in facts(journal.entries, ModelAnswered) if it.copied]
    assert len(copied) == 3


async def test_a_fork_from_any_task_of_a_session_comes_to_the_same_end() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(team()) as session:
            await session.ask("go")
            await session.wait_idle()
        for task in list(session.tree):
            fork = await orchestrator.fork(team(), session.id, task=task)

            assert fork.outcome.output == "heard 2"
            assert fork.tree.counts() == {"succeeded": 7}


async def test_a_fork_of_a_fork_is_one_too() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(team(), "go")
        fork = await orchestrator.fork(team(), run.id, task="/lead/slow[1]")
        again = await orchestrator.fork(team(), fork.id, task="/lead/slow[1]")

        assert again.outcome.output == fork.outcome.output == run.outcome.output
        with pytest.raises(UnknownIdError, match="has no task '/lead/nobody'"):
            await orchestrator.fork(team(), run.id, task="/lead/nobody")


async def test_a_tool_that_ran_when_a_fork_parts_is_not_run_twice() -> None:
    runs: list[str] = []

    @tool
    async def launch() -> str:
        runs.append("launch")
        await trio.sleep(5)
        return "launched"

    agent = Agent(
        "lead",
        model=stepwise([ToolCall("launch"), hand_on("x", agent="worker")], "", "done"),
        tools=[launch],
        delegates=[worker("worker", seconds=1)],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(agent, "go")
        fork = await orchestrator.fork(agent, run.id, task="/lead/worker[1]")

    assert fork.output == "done"
    assert runs == ["launch"]


def test_a_fork_can_be_replayed_too() -> None:
    async def live(orchestrator: Orchestrator) -> None:
        run = await orchestrator.run(team(), "go")
        for task in list(run.tree):
            await orchestrator.fork(team(), run.id, task=task)

    entries = recorded(live)

    for opened in facts(entries, SessionOpened):
        assert replay_sync(entries, muted(team()), run=opened.session).is_same


AGENTS = """
from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage

def lead(transcript):
    told = [message.text for message in transcript if isinstance(message, ToolMessage)]
    if told:
        return "they say: " + told[0].partition('"output":"')[2].partition('"')[0]
    return ToolCall("delegate_task", {"goal": "part"})

helper = Agent("helper", model=ScriptedModel.always("SAYS"))
editor = Agent("editor", model=ScriptedModel.always(lead), delegates=[helper])
"""


@pytest.fixture
def shell(tmp_path: Path, python: list[str]) -> Shell:
    return Shell(tmp_path, python)


def test_the_replay_command_reports_whether_a_run_is_the_same(shell: Shell) -> None:
    shell.write("agents_file.py", AGENTS)
    shell.run("run", "agents_file.py", "go")
    unasked = AGENTS.replace('ScriptedModel.always("SAYS")', '"openai:gpt-5"')
    shell.environ.pop("OPENAI_API_KEY", None)
    shell.write("unasked.py", unasked)
    shell.write("gone.py", AGENTS.replace("delegates=[helper]", "copies=True"))

    assert shell.run("replay", "unasked.py:editor")[0] == ("the same: 2 tasks, 8 steps\n")
    out, _ = shell.run("replay", "gone.py:editor", code=1)
    assert out.splitlines()[0] == "not the same: /editor/helper[1], step 1"
    assert "recorded  is asked for: agent helper; goal part" in out
    assert "replayed  is asked for: agent editor; goal part; of a copy" in out


def test_the_replay_command_refuses_unknown_runs_and_files(shell: Shell) -> None:
    shell.write("agents_file.py", AGENTS)

    assert "there are no runs yet" in shell.error("replay", "agents_file.py")
    shell.run("run", "agents_file.py", "go")
    for words, problem in (
        (["agents_file.py", "r_no"], "there is no run 'r_no'"),
        (["nowhere.py"], "there is no file nowhere.py"),
        (["agents_file.py:helper"], "belongs to agent 'editor'"),
    ):
        assert problem in shell.error("replay", *words)


def test_the_command_forks_a_run_and_the_link_is_shown(shell: Shell) -> None:
    shell.write("agents_file.py", AGENTS)
    assert shell.run("run", "agents_file.py", "go")[0] == "they say: SAYS\n"
    shell.write("agents_file.py", AGENTS.replace("SAYS", "something else"))

    out, err = shell.run("fork", "agents_file.py", "/editor/helper[1]")
    _, run, fork = shell.run("runs")[0].splitlines()
    tree, _ = shell.run("tree")

    assert out == "they say: something else\n"
    assert "helper[1]" in err
    assert f"[fork of {run.split()[0]}/t_" in fork
    assert f"forked from {run.split()[0]}/t_" in tree


FAILING = """
from pathlib import Path
from orchestrator import Agent, ModelError, ScriptedModel, ToolCall

def work(transcript):
    goal = transcript[-1].text.splitlines()[-1]
    Path("asked").open("a").write(f"{goal}\\n")
    fails = goal == "b" and not Path("mended").exists()
    return ModelError("no b") if fails else f"{goal} is done"

def lead(transcript):
    if len(transcript) > 1:
        return f"{transcript[-1].text.count('is done')} of 2"
    tasks = [{"agent": "helper", "goal": "a"}, {"agent": "helper", "goal": "b"}]
    return ToolCall("delegate_task", {"tasks": tasks})

helper = Agent("helper", model=ScriptedModel.always(work))
lead = Agent("lead", model=ScriptedModel.always(lead), delegates=[helper])
"""


def test_the_retry_command_repeats_only_the_named_task(shell: Shell) -> None:
    shell.write("team.py", FAILING)
    assert shell.run("run", "team.py:lead", "go")[0] == "1 of 2\n"
    shell.write("mended", "")
    shell.write("asked", "")

    assert shell.run("retry", "team.py:lead", "/lead/helper[2]")[0] == "2 of 2\n"
    assert (shell.home / "asked").read_text() == "b\n"
    assert shell.run("retry", "team.py:lead", "/lead/helper[2]")[0] == "2 of 2\n"
    assert (shell.home / "asked").read_text() == "b\nb\n"
    assert shell.run("fork", "team.py:lead", "/lead/helper[1]")[0] == "2 of 2\n"
    assert "has no task '/lead/x'" in shell.error("fork", "team.py:lead", "/lead/x")
