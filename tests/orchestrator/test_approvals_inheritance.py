"""Approvals of a task go to its session, and a child inherits the rules."""

from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, Transcript, allow, confirm, deny
from orchestrator.delegation.events import ApprovalAsked, TaskSettled
from tests.kit import facts, hand_on
from tests.orchestrator.approvals_kit import ASKS, Shell, run, stepwise, tool_texts, turn_of


async def test_an_unattended_run_denies_calls_that_need_approval() -> None:
    shell = Shell()
    journal = MemoryJournal()

    async with open_orchestrator(journal) as orchestrator:
        began = trio.current_time()
        done = await orchestrator.run(shell.agent(run("x"), tool_texts, rules=ASKS), "go")

    assert trio.current_time() == began
    assert done.output == (
        "terminal needs an approval, and no person can be asked here: it was not run. Do"
        " without it, and say in your answer what you were not allowed to do."
    )
    assert shell.ran == []
    assert facts(journal.entries, ApprovalAsked) == []


async def test_a_joined_child_of_an_unattended_run_is_denied_too() -> None:
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, rules=ASKS, name="child")
    lead = Agent("main", model=stepwise(hand_on("go"), tool_texts), delegates=[child])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(lead, "go")

    assert "needs an approval, and no person can be asked here" in done.output
    assert shell.ran == []


@pytest.mark.memory_only
@pytest.mark.parametrize("deep", [False, True])
async def test_an_attended_run_asks_for_its_children_too(deep: bool) -> None:
    shell = Shell()
    agent = shell.agent(run("x"), tool_texts, rules=ASKS, name="child")
    if deep:
        agent = Agent("main", model=stepwise(hand_on("go"), "end"), delegates=[agent])

    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(orchestrator.run, agent, "go", attended=True))
            await trio.testing.wait_all_tasks_blocked()
            (question,) = orchestrator.approvals
            await orchestrator.answer(question.id, "once")

    assert question.path == ("/main/child[1]" if deep else "/child")
    assert shell.ran == ["x"]


@pytest.mark.parametrize("background", [False, True])
async def test_a_child_of_a_session_asks_the_session(background: bool) -> None:
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, name="child")
    lead = Agent(
        "main",
        model=stepwise(hand_on("go", background=background), "end"),
        delegates=[child],
        approve=ASKS,
    )
    async with turn_of(lead) as turn:
        question = await turn.answer("once")
        await turn.session.wait_idle()

    assert question.path == "/main/child[1]"
    assert shell.ran == ["x"]


async def test_a_child_of_a_detached_task_asks_the_session() -> None:
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, rules=ASKS, name="child")
    middle = Agent("middle", model=stepwise(hand_on("go"), "end"), delegates=[child])
    lead = Agent("main", model=stepwise(hand_on("go", background=True), "end"), delegates=[middle])
    async with turn_of(lead) as turn:
        await turn.reply()
        question = await turn.answer("once")
        await turn.session.wait_idle()

    assert question.path == "/main/middle[1]/child[1]"
    assert shell.ran == ["x"]


async def test_a_question_of_a_detached_task_waits_for_the_next_door() -> None:
    """No client is attached when it asks, and one may come in time."""
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, rules=ASKS, name="child")
    lead = Agent(
        "main",
        model=stepwise(hand_on("go", background=True), "end"),
        delegates=[attrs.evolve(child, model=stepwise(run("x"), "end", seconds=5))],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
        await trio.sleep(10)
        assert [it.subject for it in orchestrator.approvals] == ["x"]

        async with orchestrator.open_session(lead, session=session.id) as again:
            question = await again.questions.receive()
            await again.answer(question.id, "once")
            await again.wait_idle()

    assert shell.ran == ["x"]


def three(shell: Shell, command: str, *, top: Any = (), middle: Any = (), leaf: Any = ()) -> Agent:
    """Return an agent over an agent over an agent that runs a command."""
    low = shell.agent(run(command), tool_texts, rules=leaf, name="leaf")
    mid = Agent(
        "middle",
        model=stepwise(hand_on("go", background=False), tool_texts),
        delegates=[low],
        approve=middle,
    )
    return Agent(
        "main",
        model=stepwise(hand_on("go", background=False), tool_texts),
        delegates=[mid],
        approve=top,
    )


@pytest.mark.parametrize(
    ("top", "middle", "leaf", "denied"),
    [
        ([deny("terminal")], [allow("terminal")], [allow("terminal")], True),
        ([allow("terminal")], [deny("terminal")], [allow("terminal")], True),
        ([allow("terminal")], [allow("terminal")], [deny("terminal")], True),
        ([confirm("terminal")], [allow("terminal")], [deny("terminal")], True),
        ([allow("terminal")], [allow("terminal")], [allow("terminal")], False),
        ([deny("terminal", command="rm*")], [], [], False),
        ([deny("terminal", for_children=False)], [allow("terminal")], [allow("terminal")], False),
        ([allow("terminal")], [deny("t*", for_children=False)], [allow("terminal")], False),
        ([allow("terminal")], [allow("terminal")], [deny("*", for_children=False)], True),
    ],
)
async def test_a_child_may_do_only_the_calls_that_all_its_ancestors_may(
    top: Any, middle: Any, leaf: Any, denied: bool
) -> None:
    shell = Shell()

    agent = three(shell, "x", top=top, middle=middle, leaf=leaf)
    async with turn_of(agent) as turn:
        said = await turn.reply()

    assert ("terminal was denied" in said) is denied
    assert shell.ran == ([] if denied else ["x"])


async def test_a_lead_that_may_use_no_tool_itself_delegates_to_a_team_that_may() -> None:
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, rules=[allow("terminal")], name="child")
    lead = shell.agent(
        run("y"),
        hand_on("go", background=False),
        tool_texts,
        rules=[allow("delegate_task"), deny("*", for_children=False)],
        delegates=[child],
    )
    async with turn_of(lead) as turn:
        said = await turn.reply()

    assert "terminal was denied" in said
    assert shell.ran == ["x"]


async def test_an_ask_rule_of_an_ancestor_applies_to_its_descendants() -> None:
    shell = Shell()
    agent = three(shell, "x", top=ASKS, middle=[allow("*")], leaf=[allow("*")])

    async with turn_of(agent) as turn:
        question = await turn.answer("once")

    assert question.path == "/main/middle[1]/leaf[1]"
    assert shell.ran == ["x"]


async def test_a_copy_has_the_rules_of_the_original() -> None:
    shell = Shell()

    def say(transcript: Transcript) -> Any:
        if "copy" in transcript[0].text:
            return run("x") if len(transcript) == 1 else tool_texts(transcript)
        return hand_on("copy") if len(transcript) == 1 else tool_texts(transcript)

    agent = shell.agent(say, say, rules=[deny("terminal")], copies=True)
    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert "terminal was denied" in done.output
    assert shell.ran == []


async def test_a_detached_child_has_the_rules_of_all_above_after_they_have_ended() -> None:
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, rules=[allow("*")], name="child")
    lead = Agent(
        "main",
        model=stepwise(hand_on("go", background=True), "end"),
        delegates=[attrs.evolve(child, model=stepwise(run("x"), tool_texts, seconds=9))],
        approve=[deny("terminal")],
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()

    (settled,) = facts(journal.entries, TaskSettled)
    assert "terminal was denied" in settled.outcome.output
    assert shell.ran == []


async def test_an_approval_for_a_task_covers_its_descendants_only() -> None:
    """Approved in `first`, it holds for the leaf of `first`, and neither above nor in `second`."""
    shell = Shell()
    leaf = shell.agent(run("x"), tool_texts, name="leaf")
    first = shell.agent(run("x"), hand_on("go"), tool_texts, name="first", delegates=[leaf])
    second = shell.agent(run("x"), tool_texts, name="second")
    main = shell.agent(
        hand_on("go", agent="first", background=False),
        hand_on("go", agent="second", background=False),
        run("x"),
        "end",
        rules=ASKS,
        delegates=[first, second],
    )
    async with turn_of(main) as turn:
        questions = [await turn.answer(it) for it in ("task", "deny", "deny")]

    assert [it.path for it in questions] == ["/main/first[1]", "/main/second[1]", "/main"]
    assert shell.ran == ["x", "x"]


async def test_an_approval_for_the_turn_of_a_session_covers_its_children() -> None:
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, name="child")
    main = shell.agent(
        run("x"), hand_on("go", background=False), "end", rules=ASKS, delegates=[child]
    )
    async with turn_of(main) as turn:
        await turn.answer("task")

    assert shell.ran == ["x", "x"]


async def test_an_approval_for_the_session_covers_all_its_tasks() -> None:
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, name="child")
    main = shell.agent(
        hand_on("a", background=False),
        hand_on("b", background=False),
        run("x"),
        "end",
        rules=ASKS,
        delegates=[child],
    )
    async with turn_of(main) as turn:
        question = await turn.answer("session")

    assert question.path == "/main/child[1]"
    assert shell.ran == ["x", "x", "x"]


async def test_handing_work_on_can_be_denied_and_asked_about_like_any_call() -> None:
    shell = Shell()
    child = shell.agent(run("x"), "done", name="child")
    main = Agent(
        "main",
        model=stepwise(hand_on("a", background=False), tool_texts),
        delegates=[child],
        approve=[confirm("delegate_task")],
    )
    for answer, says in (("once", '"done"'), ("deny", "delegate_task was denied by Ann")):
        async with turn_of(main) as turn:
            await turn.answer(answer)
            assert says in await turn.reply()
            assert len(turn.session.tree) == (2 if answer == "once" else 1)

    assert shell.ran == ["x"]
