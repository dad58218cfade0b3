"""The task board: siblings post, claim, finish and read shared items."""

import json
from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    DefinitionError,
    ModelError,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    tool,
)
from orchestrator.delegation import Ledger
from orchestrator.delegation.board import MOST_ITEMS, BoardState, ShownItem, shown_boards
from orchestrator.delegation.events import (
    SessionOpened,
    StateChanged,
    TaskRequested,
    TaskSettled,
    ToolAnswered,
)
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.simulation import SimulationSettings, simulate
from orchestrator.testing import Harness
from tests.kit import facts, hand_on, last_text, run
from tests.orchestrator.test_replay import run_of


def use(action: str, **arguments: Any) -> ToolCall:
    return ToolCall("board", {"action": action, **arguments})


def delegate(*goals: str) -> ToolCall:
    tasks = [{"goal": goal} for goal in goals]
    return ToolCall("delegate_task", {"tasks": tasks, "background": False})


def scripted(name: str, *steps: Any, **options: Any) -> Agent:
    """Return an agent with a board that takes one step after another."""

    def step(transcript: Transcript) -> Any:
        said = steps[sum(isinstance(it, AssistantMessage) for it in transcript)]
        return said(transcript) if callable(said) else said

    return Agent(name, model=ScriptedModel.always(step), board=True, **options)


def work(transcript: Transcript) -> Any:
    """Claim items and finish them, until none is free."""
    last = transcript[-1]
    if not isinstance(last, ToolMessage):
        return use("claim")
    answer = json.loads(last.text)
    if "claimed" not in answer:
        return use("claim")
    if answer["claimed"] is None:
        return "nothing is left"
    item = answer["claimed"]
    return use("finish", item=item["item"], result=f"{item['text']} is done")


def team(**options: Any) -> Agent:
    worker = Agent("worker", model=ScriptedModel.always(work), board=True)
    return scripted(
        "lead",
        use("post", items=["a", "b", "c"]),
        delegate("one", "two"),
        use("read"),
        last_text,
        delegates=[worker],
        **options,
    )


def states_of(output: str) -> list[tuple[str, str]]:
    return [(it["state"], it.get("result", "")) for it in json.loads(output)["items"]]


ALL_DONE = [("finished", f"{it} is done") for it in "abc"]


async def test_siblings_claim_each_item_once() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        ended = await orchestrator.run(team(), "go")

    assert states_of(ended.output) == ALL_DONE
    claims = Counter(
        it["item"]
        for fact in facts(journal.entries, ToolAnswered)
        if fact.message.text.startswith('{"claimed"')
        and (it := json.loads(fact.message.text)["claimed"])
    )
    assert claims == {1: 1, 2: 1, 3: 1}
    assert len(facts(journal.entries, StateChanged)) == 7


@pytest.mark.parametrize("end", ["answer", "fail"])
async def test_item_is_free_again_when_its_claimer_ends(end: str) -> None:
    last = "gone" if end == "answer" else ModelError("down")
    lazy = scripted("lazy", use("claim"), last)
    lead = scripted(
        "lead",
        use("post", items=["a"]),
        hand_on("x", agent="lazy", background=False),
        use("read"),
        last_text,
        delegates=[lazy],
    )

    assert states_of((await run(lead)).output) == [("free", "")]


async def test_item_of_a_cancelled_task_is_free_again() -> None:
    async with open_orchestrator(":memory:") as orchestrator:

        def wait_long(_: Transcript) -> Any:
            return ToolCall("sleep", {})

        @tool
        async def sleep() -> str:
            """Sleep."""
            await trio.sleep_forever()
            return ""

        lazy = scripted("lazy", use("claim"), wait_long, tools=[sleep])
        post = use("post", items=["a"])
        hand = hand_on("x", agent="lazy", background=True)
        lead = scripted("lead", post, hand, use("read"), last_text, "told", delegates=[lazy])
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await trio.testing.wait_all_tasks_blocked()
            (task,) = session.tree.children(session.tree.root)
            records = orchestrator.read.records
            record = records.sessions[session.id]
            (before,) = shown_boards(record, records.tasks)[session.tree.root]
            await orchestrator.cancel(task)
            (after,) = shown_boards(record, records.tasks)[session.tree.root]

    assert before == ShownItem(1, "a", "claimed", "/lead/lazy[1]")
    assert after == ShownItem(1, "a", "free")


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([use("finish", item=1)], "you have not claimed item 1"),
        ([use("finish")], "in `item`"),
        ([use("post")], "in `items`"),
        ([use("post", items=["x"] * MOST_ITEMS)], "at most 200 items"),
        ([use("claim", item=7)], "no item 7"),
        ([use("read", item=7)], "no item 7"),
        ([use("claim", item=1), use("finish", item=1), use("finish", item=1)], "not claimed"),
        ([use("claim", item=1), use("finish", item=1), use("claim", item=1)], "finished"),
    ],
)
async def test_model_reads_why_a_board_refuses(steps: list[ToolCall], problem: str) -> None:
    ended = await run(scripted("lead", use("post", items=["a"]), *steps, last_text))

    assert problem in ended.output


async def test_claimed_item_cannot_be_claimed_by_another_task() -> None:
    child = scripted("child", use("claim", item=1), last_text)
    lead = scripted(
        "lead",
        use("post", items=["a"]),
        use("claim", item=1),
        use("claim", item=1),
        hand_on("x", agent="child", background=False),
        last_text,
        delegates=[child],
    )

    assert "item 1 is claimed by /lead: claim another one" in (await run(lead)).output


async def test_list_shortens_results_and_one_item_is_whole() -> None:
    steps = [use("post", items=["a"]), use("claim"), use("finish", item=1, result="x" * 900)]
    listed = await run(scripted("lead", *steps, use("read"), last_text))
    whole = await run(scripted("lead", *steps, use("read", item=1), last_text))

    assert len(json.loads(listed.output)["items"][0]["result"]) < 400
    assert json.loads(whole.output)["items"][0]["result"] == "x" * 900


async def test_children_of_two_parents_have_two_boards() -> None:
    worker = scripted("worker", use("post", items=["a"]), last_text)
    middle = scripted("middle", hand_on("x", background=False), "done", delegates=[worker])
    lead = scripted("lead", delegate("one", "two"), use("read"), last_text, delegates=[middle])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        ended = await orchestrator.run(lead, "go")

    assert states_of(ended.output) == []
    ledger = Ledger()
    for entry in journal.entries:
        ledger.fold(entry)
    (session,) = ledger.sessions.values()
    boards = shown_boards(session, ledger.tasks)
    assert sorted(len(it) for it in boards.values()) == [1, 1]
    assert {it.text for it in session.state(BoardState).items.values() if it} == {"a"}


def test_session_without_a_board_shows_none() -> None:
    ledger = Ledger()
    for entry in run_of(Agent("a", model=ScriptedModel(["done"]))):
        ledger.fold(entry)
    (session,) = ledger.sessions.values()

    assert shown_boards(session, ledger.tasks) == {}


async def test_crash_after_any_fact_repeats_no_operation() -> None:
    whole = Harness()
    expected = await whole.run(team(), "go")
    assert states_of(expected.output) == ALL_DONE
    first = next(it.seq for it in whole.entries if isinstance(it.event, SessionOpened)) + 2
    for length in range(first, len(whole.entries)):
        harness = Harness()
        async with harness.open(crash_after=length) as orchestrator:
            await orchestrator.run(team(), "go")
        (opened,) = harness.facts(SessionOpened)
        async with harness.open() as orchestrator:
            again = await orchestrator.resume(team(), opened.session)

        assert states_of(again.output) == ALL_DONE, length
        # One post, three claims, three finishes.
        assert len(harness.facts(StateChanged)) == 7, length
        assert len(harness.facts(TaskRequested)) == 2
        harness.assert_laws()


async def test_task_that_begins_anew_has_lost_its_claims() -> None:
    steps = [use("post", items=["a"]), use("claim"), use("finish", item=1, result="ok")]
    child = scripted("child", *steps, "done", on_restart="restart")
    lead = scripted(
        "lead", hand_on("x", agent="child", background=False), last_text, delegates=[child]
    )
    harness = Harness()
    async with harness.open() as orchestrator:
        await orchestrator.run(lead, "go")
    claimed = [it.seq for it in harness.entries if isinstance(it.event, StateChanged)][1]

    harness = Harness()
    async with harness.open(crash_after=claimed) as orchestrator:
        await orchestrator.run(lead, "go")
    (opened,) = harness.facts(SessionOpened)
    async with harness.open() as orchestrator:
        await orchestrator.resume(lead, opened.session)
    (settled,) = harness.facts(TaskSettled)

    assert settled.outcome.succeeded
    # It posts once more, claims its first item once more, and finishes it.
    assert len(harness.facts(StateChanged)) == 5


def test_replay_repeats_a_board() -> None:
    assert replay_sync(run_of(team()), team()).is_same


async def test_fork_of_a_run_has_the_board_of_that_moment() -> None:
    async with open_orchestrator(MemoryJournal()) as orchestrator:
        first = await orchestrator.run(team(), "go")
        forked = await orchestrator.fork(team(), first.id, task="/lead/worker[1]")

    assert states_of(forked.output) == ALL_DONE


def test_simulation_uses_no_board() -> None:
    simulate(team(), settings=SimulationSettings(seeds=3))


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"place": "mac"}, "workers cannot reach"), ({"tools": "own"}, "a tool of its own")],
)
def test_agent_with_a_board_that_does_not_fit_is_refused(
    options: dict[str, Any], problem: str
) -> None:
    @tool
    def board() -> str:
        """Show a board."""
        return ""

    if "tools" in options:
        options = {"tools": [board]}
    with pytest.raises(DefinitionError, match=problem):
        Agent("lead", model="m:x", board=True, **options)
