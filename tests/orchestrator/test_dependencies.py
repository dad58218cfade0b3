"""`depends_on`: a task starts when those it needs have succeeded, and is told what they said."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Limits,
    ModelError,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
)
from orchestrator.delegation import Ending, Rules, TaskNode, Tree
from orchestrator.delegation.events import (
    Entry,
    MessageReceived,
    ModelAnswered,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
)
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from tests.kit import FunctionModel, facts

DIAMOND: list[dict[str, Any]] = [
    # Asked for in an order that is not that of the needs: the call says what, not when.
    {"goal": "join", "label": "d", "depends_on": ["b", "c"]},
    {"goal": "left", "label": "b", "depends_on": ["a"]},
    {"goal": "right", "label": "c", "depends_on": ["a"]},
    {"goal": "begin", "label": "a"},
]
MODES = pytest.mark.parametrize("background", [False, True])


class Recorder:
    """A model that says what it is told to say of a goal, and remembers what it was sent."""

    name = "recorder"

    def __init__(self, seconds: float = 10, **says: Any) -> None:
        self._seconds = seconds
        self._says = says
        self.briefs: dict[str, str] = {}
        """The first line of the first message."""
        self.begun: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        brief = request.transcript[0].text
        goal = brief.rpartition("Your task:\n")[2].split("\n", maxsplit=1)[0]
        assert goal not in self.briefs, "a goal is asked twice"
        self.briefs[goal] = brief
        self.begun[goal] = trio.current_time()
        said = self._says.get(goal, f"{goal} is done")
        answer = await ScriptedModel([said], self._seconds).answer(request)
        self.ended[goal] = trio.current_time()
        return answer


def batch(*tasks: dict[str, Any], background: bool | None = None) -> ToolCall:
    arguments: dict[str, Any] = {"tasks": list(tasks)}
    if background is not None:
        arguments["background"] = background
    return ToolCall("delegate_task", arguments)


def task(label: str, *needs: str, **more: Any) -> dict[str, Any]:
    return {"goal": label, "label": label, "depends_on": list(needs), **more}


def lead(call: ToolCall, model: Any, **options: Any) -> Agent:
    """Return an agent that makes one call, and then says what it has heard last."""

    def say(transcript: Transcript) -> Any:
        answered = any(isinstance(message, ToolMessage) for message in transcript)
        return transcript[-1].text if answered else call

    return Agent(
        "lead", model=ScriptedModel.always(say), delegates=[Agent("worker", model=model, **options)]
    )


def by_label(tree: Tree) -> dict[str, TaskNode]:
    return {tree[task].label: tree[task] for task in tree if tree[task].label}


def statuses(tree: Tree) -> dict[str, str]:
    return {label: node.status for label, node in by_label(tree).items()}


async def finish(
    call: ToolCall, model: Any, *, rules: Rules | None = None, **options: Any
) -> tuple[str, Tree]:
    """Have a session make a call, wait until all is quiet, and return its first reply."""
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        agent = lead(call, model, **options)
        async with orchestrator.open_session(agent) as session:
            reply = await session.ask("go")
            await session.wait_idle()
            return reply.text, session.tree


@MODES
async def test_a_task_starts_after_its_dependencies_have_succeeded(background: bool) -> None:
    model = Recorder()

    _, tree = await finish(batch(*DIAMOND, background=background), model)

    assert model.begun["begin"] == 0
    assert model.begun["left"] == model.begun["right"] == model.ended["begin"] == 10
    assert model.begun["join"] == model.ended["left"] == 20
    assert statuses(tree) == dict.fromkeys("dbca", "succeeded")


@MODES
async def test_a_task_reads_the_results_of_its_dependencies(background: bool) -> None:
    model = Recorder(left="the left half", right="the right half")

    await finish(batch(*DIAMOND, background=background), model)

    assert model.briefs["begin"] == "begin"
    assert model.briefs["join"] == (
        "join\n\nResult of b, which this needs:\nthe left half"
        "\n\nResult of c, which this needs:\nthe right half"
    )


async def test_the_context_of_a_task_precedes_the_results_of_its_dependencies() -> None:
    call = batch(task("a"), task("b", "a", context="Be brief."), background=False)
    model = Recorder()

    await finish(call, model)

    assert model.briefs["b"] == (
        "Context:\nBe brief.\n\nYour task:\nb\n\nResult of a, which this needs:\na is done"
    )


async def test_results_come_in_the_order_of_the_call_and_not_of_the_needs() -> None:
    reply, _ = await finish(batch(*DIAMOND, background=False), Recorder())

    answer = json.loads(reply)
    assert [result["label"] for result in answer["results"]] == ["d", "b", "c", "a"]
    assert answer["results"][0]["output"] == "join is done"


async def test_a_receipt_names_the_dependencies_of_a_task() -> None:
    call = batch(task("a"), task("b", "a"), task("c", "a", "b"), background=True)

    reply, _ = await finish(call, Recorder())

    a, b, c = json.loads(reply)["tasks"]
    assert "waits_for" not in a
    assert b["waits_for"] == [a["task_id"]]
    assert c["waits_for"] == sorted([a["task_id"], b["task_id"]])
    assert "position" not in b


async def test_a_list_shows_the_remaining_dependencies() -> None:
    read: list[Any] = []

    def then(step: Any) -> Any:
        def say(transcript: Transcript) -> Any:
            read.append(json.loads(transcript[-1].text))
            return step

        return say

    listed = ToolCall("task", {"action": "list"})
    model = ScriptedModel(
        [
            batch(task("a"), task("b", "a"), task("c", "a", "b"), background=True),
            then(ToolCall("task", {"action": "wait", "mode": "any"})),
            then(listed),
            then("end"),
            *["news"] * 9,
        ]
    )
    worker = Agent("worker", model=Recorder())
    agent = Agent("lead", model=model, delegates=[worker])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    shown = {one["label"]: one for one in read[2]["tasks"]}
    assert [shown[label]["status"] for label in "abc"] == ["succeeded", "running", "queued"]
    assert shown["c"]["waits_for"] == [shown["b"]["task_id"]]


@MODES
async def test_a_task_with_a_failed_dependency_is_refused_and_names_it(background: bool) -> None:
    model = Recorder(a=ModelError("no such model"))
    call = batch(task("a"), task("b", "a"), task("free"), background=background)

    _, tree = await finish(call, model)

    assert statuses(tree) == {"a": "failed", "b": "refused", "free": "succeeded"}
    assert by_label(tree)["b"].error == (
        "it needs 'a' (/lead/worker[1]), which ended as failed: no such model"
    )
    assert "b" not in model.briefs


@MODES
async def test_refusals_pass_on_and_each_names_the_one_before(background: bool) -> None:
    model = Recorder(a=ModelError("no such model"))
    chain = [task("a"), task("b", "a"), task("c", "b"), task("d", "c")]

    _, tree = await finish(batch(*chain, background=background), model)

    assert statuses(tree) == {"a": "failed"} | dict.fromkeys("bcd", "refused")
    assert "it needs 'c' (/lead/worker[3]), which ended as refused" in (by_label(tree)["d"].error)
    assert list(model.briefs) == ["a"]


async def test_the_model_reads_the_refused_task_and_the_reason() -> None:
    model = Recorder(a=ModelError("no such model"))

    reply, _ = await finish(batch(task("a"), task("b", "a"), background=False), model)

    _, refused = json.loads(reply)["results"]
    assert refused["status"] == "refused"
    assert "no such model" in refused["error"]
    assert (refused["output"], refused["tokens"]) == ("", 0)


async def test_a_refused_background_task_sends_a_notice() -> None:
    heard: list[str] = []

    def note(transcript: Transcript) -> str:
        heard.append("\n".join(message.text for message in transcript))
        return "heard"

    call = batch(task("a"), task("b", "a"), background=True)
    worker = Agent("worker", model=Recorder(a=ModelError("no such model")))
    agent = Agent("lead", model=ScriptedModel([call, "ok", note, note]), delegates=[worker])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert len(heard) == 1  # both are due together, so there is one turn
    assert "Outcome: refused" in heard[0]
    assert "Error: it needs 'a' (/lead/worker[1])" in heard[0]


async def test_one_need_that_failed_is_enough_and_refuses_at_once() -> None:
    model = Recorder(b=ModelError("no such model"))
    call = batch(task("a"), task("b"), task("c", "a", "b"), background=False)
    slow = Recorder(100)

    async def answer(request: ModelRequest) -> AssistantMessage:
        is_slow = request.transcript[0].text == "a"
        return await (slow if is_slow else model).answer(request)

    _, tree = await finish(call, FunctionModel(answer))

    refused = by_label(tree)["c"]
    assert refused.status == "refused"
    assert refused.ended == pytest.approx(refused.requested + 10)


@pytest.mark.parametrize(
    ("says", "options", "ending"),
    [
        (ModelError("x"), {}, "failed"),
        ("late", {"limits": Limits(seconds=1)}, "timed_out"),
        ("much", {"limits": Limits(calls=0)}, "over_budget"),
    ],
)
async def test_every_unsuccessful_ending_refuses_the_dependents(
    says: Any, options: dict[str, Any], ending: str
) -> None:
    call = batch(task("a"), task("b", "a"), background=False)

    _, tree = await finish(call, Recorder(a=says), **options)

    assert statuses(tree) == {"a": ending, "b": "refused"}
    assert f"which ended as {ending}" in by_label(tree)["b"].error


@MODES
async def test_cancelling_a_dependency_refuses_its_dependents(background: bool) -> None:
    model = Recorder(100)
    call = batch(task("a"), task("b", "a"), task("c"), background=background)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(lead(call, model)) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(1)
                ids = {session.tree[id_].label: id_ for id_ in session.tree}
                await orchestrator.cancel(ids["a"])

                assert statuses(session.tree) == {"a": "cancelled", "b": "refused", "c": "running"}
                assert trio.current_time() == pytest.approx(1)
            await session.wait_idle()

    assert "which ended as cancelled" in by_label(session.tree)["b"].error
    assert statuses(session.tree)["c"] == "succeeded"


@MODES
async def test_cancelling_a_dependent_spares_its_dependency(background: bool) -> None:
    model = Recorder(100)
    call = batch(task("a"), task("b", "a"), background=background)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(lead(call, model)) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(1)
                ids = {session.tree[id_].label: id_ for id_ in session.tree}
                await orchestrator.cancel(ids["b"])
                assert trio.current_time() == pytest.approx(1)
            await session.wait_idle()

    assert statuses(session.tree) == {"a": "succeeded", "b": "cancelled"}
    assert list(model.briefs) == ["a"]


async def test_cancelling_the_parent_ends_all_of_a_batch() -> None:
    model = Recorder(100)
    async with open_orchestrator(":memory:") as orchestrator:
        with trio.move_on_after(1):
            await orchestrator.run(lead(batch(*DIAMOND), model), "go")
        tree = orchestrator.tree(orchestrator.runs[-1])

    assert set(statuses(tree).values()) <= {"cancelled", "refused"}
    assert list(model.briefs) == ["begin"]


@MODES
@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        ([task("a", "b"), task("b", "a")], "wait for each other"),
        ([task("a", "a")], "wait for each other: a -> a"),
        ([task("a", "c"), task("b", "a"), task("c", "b"), task("d")], "wait for each other"),
        ([task("a"), task("b", "z")], "names 'z', and no task of this call has that"),
        (
            [task("a"), {"goal": "x", "label": "a"}, task("b", "a")],
            "names 'a', and more than one task of this call has that",
        ),
    ],
)
async def test_a_batch_with_impossible_dependencies_starts_no_task(
    tasks: list[dict[str, Any]], problem: str, background: bool
) -> None:
    model = Recorder()

    reply, tree = await finish(batch(*tasks, background=background), model)

    assert problem in reply
    assert "no task was started" in reply
    assert (len(tree), model.briefs) == (1, {})


async def test_a_dependency_must_be_in_the_same_call() -> None:
    model = Recorder()
    worker = Agent("worker", model=model)
    script = ScriptedModel(
        [
            batch(task("a"), background=False),
            batch(task("b", "a"), background=False),
            lambda transcript: transcript[-1].text,
        ]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(Agent("lead", model=script, delegates=[worker]), "go")

    assert "no task of this call has that label" in run.output
    assert len(run.tree) == 2


@MODES
async def test_a_dependency_listed_twice_counts_once(background: bool) -> None:
    model = Recorder()
    call = batch(task("a"), task("b", "a", "a"), task("c"), background=background)

    # With a single place, one that was counted twice would never be free again.
    _, tree = await finish(call, model, rules=Rules(live_tasks=1))

    assert statuses(tree) == dict.fromkeys("abc", "succeeded")
    assert model.briefs["b"].count("Result of a") == 1


async def test_a_place_is_free_again_after_a_task_that_needed_another_twice() -> None:
    model = Recorder()
    first = batch(task("a"), task("b", "a", "a"), background=False)
    second = batch(task("c"), background=False)
    script = ScriptedModel([first, second, "end"])
    agent = Agent("lead", model=script, delegates=[Agent("worker", model=model)])
    rules = Rules(live_tasks=1, queue=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert statuses(run.tree) == dict.fromkeys("abc", "succeeded")


@MODES
async def test_needs_are_edges_of_the_graph_and_of_the_chart(background: bool) -> None:
    _, tree = await finish(batch(*DIAMOND, background=background), Recorder())

    names = {task: tree[task].label or "lead" for task in tree}
    edges = {
        (names[above], names[below], edge["kind"])
        for above, below, edge in tree.to_networkx().edges(data=True)
    }
    assert edges == {
        *(("lead", label, "delegates") for label in "abcd"),
        ("a", "b", "needs"),
        ("a", "c", "needs"),
        ("b", "d", "needs"),
        ("c", "d", "needs"),
    }
    chart = tree.to_mermaid()
    assert chart.count("==>") == 4
    assert chart.count("-.->" if background else "-->") == 4


@MODES
@pytest.mark.parametrize(
    "rules",
    [
        Rules(live_tasks=1),
        Rules(live_children=1),
        Rules(detached=1),
        Rules(live_tasks=2, live_children=1),
    ],
    ids=str,
)
async def test_needs_and_room_do_not_wait_for_each_other(rules: Rules, background: bool) -> None:
    tasks = [*DIAMOND, *(task(f"free{number}") for number in range(5))]

    _, tree = await finish(batch(*tasks, background=background), Recorder(), rules=rules)

    assert set(statuses(tree).values()) == {"succeeded"}


async def test_a_chain_of_a_hundred_needs_comes_to_its_end() -> None:
    chain = [task("n0"), *(task(f"n{n}", f"n{n - 1}") for n in range(1, 100))]
    model = Recorder(1)

    await finish(batch(*reversed(chain), background=False), model)

    assert list(model.briefs) == [f"n{number}" for number in range(100)]


async def test_a_failure_refuses_a_hundred_at_once() -> None:
    chain = [task("n0"), *(task(f"n{n}", f"n{n - 1}") for n in range(1, 100))]
    model = Recorder(1, n0=ModelError("no such model"))

    _, tree = await finish(batch(*reversed(chain), background=True), model)

    assert Counter(statuses(tree).values()) == {"failed": 1, "refused": 99}
    assert trio.current_time() == pytest.approx(1)


async def test_children_may_have_batches_with_needs_of_their_own() -> None:
    leaf = Recorder(1)

    def middle(transcript: Transcript) -> Any:
        if len(transcript) > 1:
            return "up"
        name = transcript[0].text[0]
        return batch(task(f"{name}1"), task(f"{name}2", f"{name}1"))

    top = batch(task("x"), task("y", "x"), background=False)
    agent = Agent(
        "lead",
        model=ScriptedModel([top, "end"]),
        delegates=[
            Agent(
                "middle", model=ScriptedModel.always(middle), delegates=[Agent("leaf", model=leaf)]
            )
        ],
    )
    async with open_orchestrator(":memory:", rules=Rules(live_tasks=1)) as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.tree.counts() == {"succeeded": 7}
    assert list(leaf.briefs) == ["x1", "x2", "y1", "y2"]


# Over a crash.

FORKED: list[dict[str, Any]] = [*DIAMOND, task("broken"), task("e", "broken", "a"), task("f", "e")]
EXPECTED = dict.fromkeys("abcd", "succeeded") | {"broken": "failed", "e": "refused", "f": "refused"}


def forked(background: bool, seconds: float = 10) -> Agent:
    """Return an agent whose models are functions of the transcript: they go on anywhere."""

    def say(transcript: Transcript) -> Any:
        goal = transcript[0].text
        return ModelError("broken") if goal == "broken" else f"{goal.split()[0]} done"

    model = ScriptedModel.always(say, seconds)
    return lead(batch(*FORKED, background=background), model)


async def go_on(
    entries: Sequence[Entry], background: bool, rules: Rules | None = None
) -> tuple[list[Entry], Tree]:
    journal = MemoryJournal(entries)
    opened = facts(entries, SessionOpened)
    said = opened[0].session if opened else None
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with orchestrator.open_session(forked(background), session=said) as session:
            if not facts(entries, MessageReceived):
                await session.ask("go")
            await session.wait_idle()
            return journal.entries, session.tree


@MODES
@pytest.mark.parametrize("rules", [Rules(), Rules(live_tasks=1), Rules(live_children=2)], ids=str)
async def test_a_crash_after_any_entry_runs_every_task_exactly_once(
    background: bool, rules: Rules
) -> None:
    whole, _ = await go_on([], background, rules)

    assert len(facts(whole, TaskRequested)) == 7
    for length in range(1, len(whole)):
        entries, tree = await go_on(whole[:length], background, rules)

        assert statuses(tree) == EXPECTED, length
        requested = Counter(fact.request.label for fact in facts(entries, TaskRequested))
        settled = Counter(fact.task for fact in facts(entries, TaskSettled))
        answered = Counter(
            tree[fact.task].label
            for fact in facts(entries, ModelAnswered)
            if fact.task != tree.root
        )
        assert requested == Counter(EXPECTED.keys()), length
        assert set(settled.values()) == {1}, length
        assert answered == Counter("abcd"), length
        ended = facts(entries, TurnEnded)
        assert {fact.outcome.ending for fact in ended} == {Ending.SUCCEEDED}, length


@MODES
async def test_a_task_never_starts_before_its_dependencies_after_any_crash(
    background: bool,
) -> None:
    whole, _ = await go_on([], background)
    for length in range(1, len(whole)):
        entries, tree = await go_on(whole[:length], background)

        succeeded: set[str] = set()
        for entry in entries:
            match entry.event:
                case TaskSettled(task=done, outcome=outcome) if outcome.succeeded:
                    succeeded.add(done)
                case TaskStarted(task=begun):
                    assert succeeded.issuperset(tree.needs(begun)), length
                case _:
                    pass


@pytest.mark.memory_only
@pytest.mark.realtime
@MODES
async def test_a_batch_with_needs_goes_on_from_a_file(tmp_path: Path, background: bool) -> None:
    path = tmp_path / "journal.db"
    scope = trio.CancelScope()
    with scope:
        async with open_orchestrator(path) as orchestrator:
            agent = forked(background, seconds=1000)
            async with orchestrator.open_session(agent) as session:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(session.ask, "go")
                    seen = 0
                    while statuses(session.tree).get("a") != "running":
                        seen = await orchestrator.wait_changed(after=seen)
                    scope.cancel()
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(
            forked(background, seconds=0), session=session.id
        ) as again:
            await again.wait_idle()
            assert statuses(again.tree) == EXPECTED

    settled = Counter(fact.task for fact in facts(await read_sqlite_journal(path), TaskSettled))
    assert sorted(settled.values()) == [1] * 7
