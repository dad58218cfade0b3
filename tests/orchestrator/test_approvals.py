"""Approvals: a call that a rule has asked about waits until somebody has answered, once."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from agents import (
    Agent,
    Limits,
    Patience,
    ToolCall,
    Transcript,
    allow,
    ask,
    deny,
    tool,
)
from agents.tools.files import FILES
from delegation import SessionId
from delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    QuietChanged,
    TaskSettled,
)
from delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator import (
    ClosedError,
    MemoryJournal,
    Orchestrator,
    UnknownIdError,
    open_orchestrator,
)
from orchestrator.engine.approvals import SHOWN
from orchestrator.replay.run import replay_sync
from tests.kit import facts, hand_on
from tests.orchestrator.approvals_kit import (
    ANN,
    Shell,
    heard,
    run,
    stepwise,
    talking,
)
from tests.orchestrator.test_replay import muted, on_a_jumping_clock

ASKS = (ask("terminal"),)


# A question and its answer.


async def test_a_call_waits_until_it_is_approved_and_then_runs() -> None:
    shell = Shell()

    async with talking(shell.agent(run("make"), heard, rules=ASKS)) as talk:
        question = await talk.asked()
        await talk.settled()
        assert shell.ran == []
        await talk.session.answer(question.id, "once")
        assert await talk.said() == "ran make in ."

    assert (question.path, question.tool, question.subject) == (
        "/main",
        "terminal",
        "make",
    )
    assert question.deadline - question.asked_at == pytest.approx(600)
    assert shell.ran == ["make"]


async def test_once_is_once() -> None:
    shell = Shell()

    async with talking(shell.agent(run("a"), run("a"), heard, rules=ASKS)) as talk:
        first = await talk.answer("once")
        second = await talk.answer("deny")

    assert first.id != second.id
    assert shell.ran == ["a"]


async def test_a_denial_tells_the_model_who_and_why() -> None:
    shell = Shell()

    async with talking(shell.agent(run("make"), heard, rules=ASKS)) as talk:
        await talk.answer("deny", "not on Fridays")

        assert await talk.said() == (
            "terminal was denied by Ann: not on Fridays. It was not run."
        )
    assert shell.ran == []


async def test_a_rule_that_denies_asks_nobody() -> None:
    shell = Shell()
    rules = [deny("terminal", command="rm *", reason="it is not yours"), *ASKS]

    async with talking(shell.agent(run("ls; rm x"), heard, rules=rules)) as talk:
        assert await talk.said() == (
            "terminal was denied: it is not yours. Do without it."
        )
        assert talk.session.open_asks == []


async def test_a_rule_that_denies_without_a_reason_says_that_it_was_a_rule() -> None:
    shell = Shell()

    async with talking(shell.agent(run("x"), heard, rules=[deny("*")])) as talk:
        assert await talk.said() == (
            "terminal was denied by the rules of this run. Do without it."
        )


async def test_what_is_allowed_is_run_and_the_rest_is_asked_about() -> None:
    shell = Shell()
    rules = [allow("terminal", command="git *")]
    agent = shell.agent(run("git log"), run("git log | sh"), heard, rules=rules)

    async with talking(agent) as talk:
        question = await talk.answer("deny")

    assert question.subject == "git log | sh"
    assert shell.ran == ["git log"]


async def test_nobody_answers_in_time_and_the_model_is_told() -> None:
    shell = Shell()
    rules = [ask("terminal", seconds=60)]
    journal = MemoryJournal()

    async with open_orchestrator(journal) as orchestrator:
        began = trio.current_time()
        async with talking(
            shell.agent(run("x"), heard, rules=rules), orchestrator=orchestrator
        ) as talk:
            said = await talk.said()
            assert trio.current_time() - began == pytest.approx(60)
            assert talk.session.open_asks == []

    assert said == (
        "terminal was denied by the deadline: nobody has answered within 60 seconds. It was"
        " not run."
    )
    (answered,) = facts(journal.entries, ApprovalAnswered)
    assert (answered.answer, answered.by) == (ApprovalVerdict.DENY, "the deadline")
    assert shell.ran == []


async def test_several_calls_of_one_answer_ask_at_once_and_are_answered_in_any_order() -> (
    None
):
    shell = Shell()
    agent = shell.agent([run("a"), run("b"), run("c")], heard, rules=ASKS)

    async with talking(agent) as talk:
        await talk.settled()
        asked = {it.subject: it.id for it in talk.session.open_asks}
        assert sorted(asked) == ["a", "b", "c"]
        assert talk.status("/main") == "waiting"

        await talk.session.answer(asked["c"], "once")
        await talk.settled()
        assert shell.ran == ["c"]
        assert talk.status("/main") == "waiting"

        await talk.session.answer(asked["a"], "deny")
        await talk.session.answer(asked["b"], "once")
        await talk.said()

    assert shell.ran == ["c", "b"]


async def test_a_call_that_needs_no_approval_does_not_wait_for_one_that_does() -> None:
    shell = Shell()
    rules = [allow("terminal", command="ls"), *ASKS]

    async with talking(
        shell.agent([run("make"), run("ls")], heard, rules=rules)
    ) as talk:
        await talk.asked()
        await talk.settled()
        assert shell.ran == ["ls"]
        await talk.session.answer(talk.session.open_asks[0].id, "once")


# For how long an approval holds.


async def test_a_session_s_approval_for_this_task_ends_with_the_turn() -> None:
    shell = Shell()

    async with talking(shell.agent(run("a"), run("a"), heard, rules=ASKS)) as talk:
        await talk.answer("task")
        await talk.said()
        assert shell.ran == ["a", "a"]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.session.ask, "again")
            await talk.answer("task")

    assert len(shell.ran) == 4


async def test_an_approval_for_the_session_holds_in_later_turns_and_after_a_restart() -> (
    None
):
    shell = Shell()
    agent = shell.agent(run("a"), heard, rules=ASKS)
    journal = MemoryJournal()

    async with open_orchestrator(journal) as orchestrator:
        async with talking(agent, orchestrator=orchestrator) as talk:
            await talk.answer("session")
            await talk.said()
            await talk.session.ask("again")
    async with open_orchestrator(MemoryJournal(journal.entries)) as orchestrator:
        async with orchestrator.open_session(agent, session=talk.session.id) as session:
            await session.ask("once more")

    assert shell.ran == ["a", "a", "a"]
    assert len(facts(journal.entries, ApprovalAsked)) == 1


async def test_an_approval_for_a_session_is_none_for_another() -> None:
    shell = Shell()
    agent = shell.agent(run("a"), heard, rules=ASKS)

    async with open_orchestrator(":memory:") as orchestrator:
        async with talking(agent, orchestrator=orchestrator) as talk:
            await talk.answer("session")
        async with talking(agent, orchestrator=orchestrator) as talk:
            await talk.answer("deny")

    assert shell.ran == ["a"]


@pytest.mark.parametrize(
    "another",
    [
        run("make x"),
        run("make "),
        run("Make"),
        run("make", workdir="sub"),
        run("make", more=1),
        ToolCall("other", {"command": "make"}),
    ],
    ids=repr,
)
async def test_what_is_approved_is_this_very_call(another: ToolCall) -> None:
    """The same command in another folder, or with more to it, is another one."""
    shell = Shell()
    other = attrs.evolve(shell.tool, name="other")
    agent = shell.agent(run("make"), another, heard, rules=[ask("*")], tools=[other])

    async with talking(agent) as talk:
        await talk.answer("session")
        question = await talk.answer("deny")

    assert shell.ran == ["make"]
    assert question.id


async def test_the_same_command_said_in_another_way_is_the_same() -> None:
    shell = Shell()
    agent = shell.agent(run("make"), run("make", workdir="./x/.."), heard, rules=ASKS)

    async with talking(agent) as talk:
        await talk.answer("session")
        await talk.said()

    assert shell.ran == ["make", "make"]


async def test_a_folder_is_told_as_a_shell_would_be_told() -> None:
    """So nobody can write a command that is taken for another's in another folder."""
    shell = Shell()
    agent = shell.agent(run("rm *", workdir="my build"), heard, rules=ASKS)

    async with talking(agent) as talk:
        question = await talk.answer("deny")

    assert question.subject == "cd 'my build' && (rm *)"


@pytest.mark.realtime
async def test_a_file_is_approved_whatever_is_written_into_it(tmp_path: Path) -> None:
    def write(path: str, content: str) -> ToolCall:
        return ToolCall("write_file", {"path": path, "content": content})

    agent = Agent(
        "main",
        model=stepwise(write("a", "1"), write("./a", "2"), write("b", "3"), "end"),
        tools=FILES,
        approve=[ask("write_file")],
        workspace=tmp_path,
    )
    with trio.fail_after(10):
        async with talking(agent) as talk:
            first = await talk.answer("task")
            second = await talk.answer("deny")

    assert (first.subject, second.subject) == ("a", "b")
    assert '"content":"1"' in first.details
    assert (tmp_path / "a").read_text() == "2"
    assert not (tmp_path / "b").exists()


async def test_of_a_tool_that_we_do_not_know_the_whole_call_is_approved() -> None:
    """Where it goes may matter as much as what it says."""
    sent: list[str] = []

    @tool
    async def remote(host: str, command: str) -> str:
        """Run a command elsewhere."""
        await trio.lowlevel.checkpoint()
        sent.append(host)
        return "done"

    def call(host: str) -> ToolCall:
        return ToolCall("remote", {"host": host, "command": "reboot"})

    agent = Agent(
        "main",
        model=stepwise(call("test"), call("test"), call("prod"), "end"),
        tools=[remote],
        approve=[ask("remote", command="reboot*")],
    )
    async with talking(agent) as talk:
        await talk.answer("session")
        question = await talk.answer("deny")

    assert question.subject == '{"command":"reboot","host":"prod"}'
    assert sent == ["test", "test"]


# Who may be asked.


async def test_in_a_run_nobody_can_be_asked_so_it_is_denied() -> None:
    shell = Shell()
    journal = MemoryJournal()

    async with open_orchestrator(journal) as orchestrator:
        began = trio.current_time()
        done = await orchestrator.run(shell.agent(run("x"), heard, rules=ASKS), "go")

    assert trio.current_time() == began
    assert done.output == (
        "terminal needs an approval, and nobody can be asked here: it was not run. Do"
        " without it, and say in your answer what you were not allowed to do."
    )
    assert shell.ran == []
    assert facts(journal.entries, ApprovalAsked) == []


async def test_a_joined_child_of_a_run_has_nobody_to_ask_either() -> None:
    shell = Shell()
    child = shell.agent(run("x"), heard, rules=ASKS, name="child")
    lead = Agent("main", model=stepwise(hand_on("go"), heard), delegates=[child])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(lead, "go")

    assert "needs an approval, and nobody can be asked here" in done.output
    assert shell.ran == []


@pytest.mark.parametrize("deep", [False, True])
async def test_an_attended_run_asks_also_for_those_who_work_in_it(deep: bool) -> None:
    shell = Shell()
    agent = shell.agent(run("x"), heard, rules=ASKS, name="child")
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
    child = shell.agent(run("x"), heard, name="child")
    lead = Agent(
        "main",
        model=stepwise(hand_on("go", background=background), "end"),
        delegates=[child],
        approve=ASKS,
    )
    async with talking(lead) as talk:
        question = await talk.answer("once")
        await talk.session.wait_idle()

    assert question.path == "/main/child[1]"
    assert shell.ran == ["x"]


async def test_a_child_of_a_detached_task_asks_the_session() -> None:
    shell = Shell()
    child = shell.agent(run("x"), heard, rules=ASKS, name="child")
    middle = Agent("middle", model=stepwise(hand_on("go"), "end"), delegates=[child])
    lead = Agent(
        "main",
        model=stepwise(hand_on("go", background=True), "end"),
        delegates=[middle],
    )
    async with talking(lead) as talk:
        await talk.said()
        question = await talk.answer("once")
        await talk.session.wait_idle()

    assert question.path == "/main/middle[1]/child[1]"
    assert shell.ran == ["x"]


async def test_a_detached_task_waits_for_whoever_opens_the_session_next() -> None:
    """Nobody is at the door when it asks, and somebody may come in time."""
    shell = Shell()
    child = shell.agent(run("x"), heard, rules=ASKS, name="child")
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
            question = await again.asks.receive()
            await again.answer(question.id, "once")
            await again.wait_idle()

    assert shell.ran == ["x"]


# One policy for a whole tree.


def three(
    shell: Shell, command: str, *, top: Any = (), middle: Any = (), leaf: Any = ()
) -> Agent:
    """Return an agent over an agent over an agent that runs a command."""
    low = shell.agent(run(command), heard, rules=leaf, name="leaf")
    mid = Agent(
        "middle",
        model=stepwise(hand_on("go", background=False), heard),
        delegates=[low],
        approve=middle,
    )
    return Agent(
        "main",
        model=stepwise(hand_on("go", background=False), heard),
        delegates=[mid],
        approve=top,
    )


@pytest.mark.parametrize(
    ("top", "middle", "leaf", "denied"),
    [
        ([deny("terminal")], [allow("terminal")], [allow("terminal")], True),
        ([allow("terminal")], [deny("terminal")], [allow("terminal")], True),
        ([allow("terminal")], [allow("terminal")], [deny("terminal")], True),
        ([ask("terminal")], [allow("terminal")], [deny("terminal")], True),
        ([allow("terminal")], [allow("terminal")], [allow("terminal")], False),
        ([deny("terminal", command="rm*")], [], [], False),
    ],
)
async def test_a_child_is_allowed_what_everybody_above_is(
    top: Any, middle: Any, leaf: Any, denied: bool
) -> None:
    shell = Shell()

    agent = three(shell, "x", top=top, middle=middle, leaf=leaf)
    async with talking(agent) as talk:
        said = await talk.said()

    assert ("terminal was denied" in said) is denied
    assert shell.ran == ([] if denied else ["x"])


async def test_what_one_above_wants_to_be_asked_about_is_asked_about() -> None:
    shell = Shell()
    agent = three(shell, "x", top=ASKS, middle=[allow("*")], leaf=[allow("*")])

    async with talking(agent) as talk:
        question = await talk.answer("once")

    assert question.path == "/main/middle[1]/leaf[1]"
    assert shell.ran == ["x"]


async def test_a_copy_has_the_rules_of_the_original() -> None:
    shell = Shell()

    def say(transcript: Transcript) -> Any:
        if "copy" in transcript[0].text:
            return run("x") if len(transcript) == 1 else heard(transcript)
        return hand_on("copy") if len(transcript) == 1 else heard(transcript)

    agent = shell.agent(say, say, rules=[deny("terminal")], copies=True)
    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert "terminal was denied" in done.output
    assert shell.ran == []


async def test_a_detached_child_has_the_rules_of_all_above_after_they_have_ended() -> (
    None
):
    shell = Shell()
    child = shell.agent(run("x"), heard, rules=[allow("*")], name="child")
    lead = Agent(
        "main",
        model=stepwise(hand_on("go", background=True), "end"),
        delegates=[attrs.evolve(child, model=stepwise(run("x"), heard, seconds=9))],
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


async def test_for_this_task_covers_all_below_it_and_none_beside_it() -> None:
    """Approved in `first`, it holds for the leaf of `first`, and neither above nor in `second`."""
    shell = Shell()
    leaf = shell.agent(run("x"), heard, name="leaf")
    first = shell.agent(run("x"), hand_on("go"), heard, name="first", delegates=[leaf])
    second = shell.agent(run("x"), heard, name="second")
    main = shell.agent(
        hand_on("go", agent="first", background=False),
        hand_on("go", agent="second", background=False),
        run("x"),
        "end",
        rules=ASKS,
        delegates=[first, second],
    )
    async with talking(main) as talk:
        questions = [await talk.answer(it) for it in ("task", "deny", "deny")]

    assert [it.path for it in questions] == [
        "/main/first[1]",
        "/main/second[1]",
        "/main",
    ]
    assert shell.ran == ["x", "x"]


async def test_what_a_session_approves_for_its_turn_holds_for_those_below() -> None:
    shell = Shell()
    child = shell.agent(run("x"), heard, name="child")
    main = shell.agent(
        run("x"), hand_on("go", background=False), "end", rules=ASKS, delegates=[child]
    )
    async with talking(main) as talk:
        await talk.answer("task")

    assert shell.ran == ["x", "x"]


async def test_for_this_session_covers_everybody_in_it() -> None:
    shell = Shell()
    child = shell.agent(run("x"), heard, name="child")
    main = shell.agent(
        hand_on("a", background=False),
        hand_on("b", background=False),
        run("x"),
        "end",
        rules=ASKS,
        delegates=[child],
    )
    async with talking(main) as talk:
        question = await talk.answer("session")

    assert question.path == "/main/child[1]"
    assert shell.ran == ["x", "x", "x"]


async def test_handing_work_on_can_be_denied_and_asked_about_like_any_call() -> None:
    shell = Shell()
    child = shell.agent(run("x"), "done", name="child")
    main = Agent(
        "main",
        model=stepwise(hand_on("a", background=False), heard),
        delegates=[child],
        approve=[ask("delegate_task")],
    )
    for answer, says in (
        ("once", '"done"'),
        ("deny", "delegate_task was denied by Ann"),
    ):
        async with talking(main) as talk:
            await talk.answer(answer)
            assert says in await talk.said()
            assert len(talk.session.tree) == (2 if answer == "once" else 1)

    assert shell.ran == ["x"]


# An answer is given once.


async def test_a_second_answer_is_refused() -> None:
    shell = Shell(seconds=5)

    async with talking(shell.agent(run("x"), heard, rules=ASKS)) as talk:
        question = await talk.answer("deny")
        with pytest.raises(UnknownIdError, match="it was answered"):
            await talk.session.answer(question.id, "once")
        with pytest.raises(UnknownIdError):
            await talk.orchestrator.answer(question.id, "session")

    assert shell.ran == []


async def test_of_two_who_answer_at_once_the_first_is_heard() -> None:
    shell = Shell()
    journal = MemoryJournal()
    refused: list[str] = []

    async def answer(orchestrator: Orchestrator, id_: str, answer: str) -> None:
        try:
            await orchestrator.answer(id_, answer)
        except UnknownIdError:
            refused.append(answer)

    async with open_orchestrator(journal) as orchestrator:
        async with talking(
            shell.agent(run("x"), heard, rules=ASKS), orchestrator=orchestrator
        ) as talk:
            question = await talk.asked()
            async with trio.open_nursery() as nursery:
                for word in ("once", "deny", "session"):
                    nursery.start_soon(answer, orchestrator, question.id, word)

    (answered,) = facts(journal.entries, ApprovalAnswered)
    assert {*refused, answered.answer.value} == {"once", "deny", "session"}
    assert len(shell.ran) == (answered.answer is not ApprovalVerdict.DENY)


async def test_another_session_may_not_answer() -> None:
    shell = Shell()

    async with open_orchestrator(":memory:") as orchestrator:
        async with (
            talking(
                shell.agent(run("x"), heard, rules=ASKS), orchestrator=orchestrator
            ) as talk,
            orchestrator.open_session(shell.agent("hm")) as stranger,
        ):
            question = await talk.asked()
            assert stranger.open_asks == []
            with pytest.raises(UnknownIdError, match=f"no approval '{question.id}'"):
                await stranger.answer(question.id, "once")
            await talk.session.answer(question.id, "deny")

    assert shell.ran == []


async def test_an_answer_to_nothing_is_refused() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with pytest.raises(UnknownIdError, match="no approval 'a_0' to answer"):
            await orchestrator.answer("a_0", "once")
        with pytest.raises(
            ValueError, match=r"'yes' is no answer; there are: once, task"
        ):
            await orchestrator.answer("a_0", "yes")


async def test_a_late_answer_is_refused() -> None:
    shell = Shell()
    rules = [ask("terminal", seconds=60)]

    async with talking(shell.agent(run("x"), heard, rules=rules)) as talk:
        question = await talk.asked()
        await talk.said()
        with pytest.raises(UnknownIdError, match="its time is over"):
            await talk.session.answer(question.id, "once")

    assert shell.ran == []


async def test_an_answer_to_a_task_that_has_ended_is_refused() -> None:
    shell = Shell()
    child = shell.agent(run("x"), heard, rules=ASKS, name="child")
    lead = Agent(
        "main",
        model=stepwise(hand_on("go", background=True), "end"),
        delegates=[child],
    )
    async with talking(lead) as talk:
        question = await talk.asked()
        await talk.orchestrator.cancel(question.task)
        assert talk.orchestrator.approvals == []
        with pytest.raises(UnknownIdError, match="its task has ended"):
            await talk.session.answer(question.id, "once")
        await talk.session.wait_idle()

    assert shell.ran == []


async def test_a_door_that_is_closed_answers_nothing() -> None:
    shell = Shell()
    child = shell.agent(run("x"), heard, rules=ASKS, name="child")
    lead = Agent(
        "main",
        model=stepwise(hand_on("go", background=True), "end"),
        delegates=[child],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with talking(lead, orchestrator=orchestrator) as talk:
            question = await talk.asked()
        with pytest.raises(ClosedError):
            await talk.session.answer(question.id, "once")
        assert orchestrator.approvals == [question]

    assert shell.ran == []


async def test_a_reason_that_cannot_be_written_down_is_written_all_the_same() -> None:
    shell = Shell()

    async with talking(shell.agent(run("x"), heard, rules=ASKS)) as talk:
        await talk.answer("deny", "no\ud800")
        assert "denied by Ann: no" in await talk.said()


# What is seen meanwhile.


@pytest.mark.parametrize("background", [False, True])
async def test_who_waits_for_an_approval_is_seen_to_wait(background: bool) -> None:
    shell = Shell(seconds=5)
    child = shell.agent(run("x"), heard, rules=ASKS, name="child")
    lead = Agent(
        "main",
        model=stepwise(hand_on("go", background=background), "end"),
        delegates=[child],
    )
    async with talking(lead) as talk:
        question = await talk.asked()
        await talk.settled()
        above = "waiting" if background else "running"
        assert talk.status("/main/child[1]") == "waiting"
        assert talk.status("/main") == above
        assert talk.session.tree.to_text().count("waiting") == 1 + background

        await talk.session.answer(question.id, "once")
        assert talk.status("/main/child[1]") == "running"
        await talk.session.wait_idle()
        assert talk.status("/main/child[1]") == "succeeded"


async def test_a_session_that_waits_for_an_approval_is_seen_to_wait() -> None:
    shell = Shell(seconds=5)

    async with talking(shell.agent(run("x"), heard, rules=ASKS)) as talk:
        question = await talk.asked()
        assert talk.status("/main") == "waiting"
        await talk.session.answer(question.id, "once")
        assert talk.status("/main") == "running"
        await talk.said()
        assert talk.status("/main") == "succeeded"


async def test_whoever_waits_for_an_approval_is_neither_quiet_nor_stalled() -> None:
    shell = Shell()
    child = shell.agent(
        run("x"),
        "end",
        rules=[ask("terminal", seconds=10_000)],
        name="child",
        patience=Patience(quiet=10, stalled=20, stalled_in_tool=30),
    )
    lead = Agent(
        "main", model=stepwise(hand_on("a", background=False), heard), delegates=[child]
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with talking(lead, orchestrator=orchestrator) as talk:
            question = await talk.asked()
            await trio.sleep(5_000)
            await talk.session.answer(question.id, "once")
            assert '"end"' in await talk.said()

    assert facts(journal.entries, QuietChanged) == []


async def test_an_approval_is_a_sign_of_life() -> None:
    """What runs for 20 seconds after it was approved has not been silent for 30."""
    shell = Shell(seconds=20)
    child = shell.agent(
        run("x"),
        "end",
        rules=ASKS,
        name="child",
        patience=Patience(quiet=None, stalled=30, stalled_in_tool=30),
    )
    lead = Agent(
        "main", model=stepwise(hand_on("a", background=False), heard), delegates=[child]
    )
    async with talking(lead) as talk:
        question = await talk.asked()
        # Just before somebody looks at it again.
        await trio.sleep(59)
        await talk.session.answer(question.id, "once")
        assert '"end"' in await talk.said()


async def test_the_seconds_of_a_task_go_on_while_it_waits() -> None:
    shell = Shell()
    agent = shell.agent(run("x"), heard, rules=ASKS, limits=Limits(seconds=30))

    async with talking(agent) as talk:
        assert "timed_out" in await talk.said()
        assert talk.session.open_asks == []
        assert talk.orchestrator.approvals == []


# Cancelling.


async def test_a_turn_that_is_cancelled_takes_its_question_along() -> None:
    shell = Shell()

    async with talking(shell.agent(run("x"), heard, rules=ASKS)) as talk:
        question = await talk.asked()
        await talk.orchestrator.cancel(talk.session.id)
        assert "cancelled" in await talk.said()
        assert talk.session.open_asks == []
        with pytest.raises(UnknownIdError):
            await talk.session.answer(question.id, "once")

    assert shell.ran == []


async def test_a_joined_child_is_cancelled_with_its_question() -> None:
    shell = Shell()
    child = shell.agent(run("x"), heard, rules=ASKS, name="child")
    lead = Agent(
        "main", model=stepwise(hand_on("a", background=False), heard), delegates=[child]
    )
    async with talking(lead) as talk:
        await talk.asked()
        await talk.orchestrator.cancel(talk.session.id)
        assert talk.orchestrator.approvals == []

    assert shell.ran == []


async def test_a_run_that_is_given_up_takes_its_question_along() -> None:
    shell = Shell()
    agent = shell.agent(run("x"), heard, rules=ASKS)

    async with open_orchestrator(":memory:") as orchestrator:
        with trio.move_on_after(5):
            await orchestrator.run(agent, "go", attended=True)
        assert orchestrator.approvals == []

    assert shell.ran == []


async def test_a_process_that_leaves_in_a_hurry_takes_a_question_of_a_run_along() -> (
    None
):
    """What nobody can take up again is written off while its call still waits."""
    shell = Shell()
    agent = shell.agent(run("x"), heard, rules=ASKS)
    journal = MemoryJournal()

    async with open_orchestrator(journal) as orchestrator:
        async with trio.open_nursery() as nursery:

            async def begin() -> None:
                with pytest.raises(ClosedError):
                    await orchestrator.run(agent, "go", attended=True)

            nursery.start_soon(begin)
            await trio.testing.wait_all_tasks_blocked()
            assert orchestrator.approvals
            await orchestrator.abandon()

    async with open_orchestrator(MemoryJournal(journal.entries)) as orchestrator:
        assert orchestrator.approvals == []
    assert shell.ran == []


# The questions of a session.


async def test_questions_come_one_after_the_other_each_once() -> None:
    shell = Shell()
    agent = shell.agent([run("a"), run("b")], run("c"), heard, rules=ASKS)
    seen: list[str] = []

    async with talking(agent) as talk:
        async with trio.open_nursery() as nursery:

            async def answer_all() -> None:
                async for question in talk.session.asks:
                    seen.append(question.subject)
                    await talk.session.answer(question.id, "once")

            nursery.start_soon(answer_all)
            await talk.said()
            nursery.cancel_scope.cancel()

    assert sorted(seen[:2]) == ["a", "b"]
    assert seen[2:] == ["c"]
    assert sorted(shell.ran) == ["a", "b", "c"]


@pytest.mark.parametrize("closing", ["leave", "close_session", "stop"])
async def test_the_questions_end_with_the_session(closing: str) -> None:
    shell = Shell()
    is_over = trio.Event()

    async def listen(questions: trio.abc.ReceiveChannel[ApprovalQuestion]) -> None:
        async for _ in questions:
            pass
        is_over.set()

    async with trio.open_nursery() as nursery:
        async with open_orchestrator(":memory:") as orchestrator:
            async with orchestrator.open_session(shell.agent("hm")) as session:
                nursery.start_soon(listen, session.asks)
                await trio.testing.wait_all_tasks_blocked()
                if closing == "close_session":
                    await orchestrator.close_session(session.id)
                    await is_over.wait()
                if closing == "stop":
                    await orchestrator.abandon()
            if closing == "leave":
                await is_over.wait()
        await is_over.wait()


async def test_closing_the_questions_closes_nothing_else() -> None:
    shell = Shell()

    async with talking(shell.agent(run("x"), heard, rules=ASKS)) as talk:
        await talk.session.asks.aclose()
        await talk.answer("once")

    assert shell.ran == ["x"]


async def test_what_is_answered_before_anybody_looks_is_no_question_any_more() -> None:
    shell = Shell()

    async with talking(shell.agent(run("a"), run("b"), heard, rules=ASKS)) as talk:
        await talk.settled()
        (question,) = talk.orchestrator.approvals
        await talk.orchestrator.answer(question.id, "once")
        await talk.settled()
        assert (await talk.answer("once")).subject == "b"


async def test_a_session_that_is_closed_for_good_asks_no_more() -> None:
    shell = Shell()
    child = shell.agent(run("x"), heard, rules=ASKS, name="child")
    lead = Agent(
        "main",
        model=stepwise(hand_on("go", background=True), "end"),
        delegates=[child],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with talking(lead, orchestrator=orchestrator) as talk:
            question = await talk.asked()
        await orchestrator.close_session(talk.session.id)
        assert orchestrator.approvals == []
        with pytest.raises(UnknownIdError):
            await orchestrator.answer(question.id, "once")


# What people are shown.


async def test_a_secret_is_not_in_the_question() -> None:
    shell = Shell()
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz123456"
    line = f"curl -H 'Authorization: Bearer {key}' https://example.com"
    journal = MemoryJournal()

    async with open_orchestrator(journal) as orchestrator:
        async with talking(
            shell.agent(run(line), run(line), heard, rules=ASKS),
            orchestrator=orchestrator,
        ) as talk:
            question = await talk.answer("task")
            await talk.said()

    assert "https://example.com" in question.subject
    assert key not in question.subject + question.details
    assert key not in repr(journal.entries)
    # What is run has it, and what looks the same to people is the same.
    assert shell.ran == [line, line]


@pytest.mark.parametrize("at", range(SHOWN - 60, SHOWN + 5, 7))
async def test_a_secret_that_a_cut_goes_through_is_not_in_the_question(at: int) -> None:
    """It is taken out before it is cut: a half would not be known for what it is."""
    shell = Shell()
    secret = "correct-horse-battery-staple"
    line = f"echo {'x' * (at - 5)} {secret} {'y' * 500}"
    journal = MemoryJournal()

    async with open_orchestrator(journal, environ={"DB_PASSWORD": secret}) as opened:
        async with talking(
            shell.agent(run(line), heard, rules=ASKS), orchestrator=opened
        ) as talk:
            question = await talk.answer("deny")

    assert "correct" not in question.subject + question.details
    assert "correct" not in repr(journal.entries)


@pytest.mark.parametrize(
    "line",
    [
        "echo -----BEGIN PRIVATE KEY-----; rm -rf ~/aaaaaaaaaaaaaaaaaaaa; echo"
        " -----END PRIVATE KEY-----",
        "curl -u ann:x;rm${IFS}-rf${IFS}x http://example.com",
        "git clone https://ann:`rm`x@example.com",
        "password='; rm -rf / ;' ls",
    ],
)
async def test_nothing_hides_behind_what_looks_like_a_secret(line: str) -> None:
    """Whoever approves `echo ***` has not approved what is behind it."""
    shell = Shell()

    async with talking(shell.agent(run(line), heard, rules=ASKS)) as talk:
        said = await talk.said()

    assert "nobody can see all of it" in said
    assert shell.ran == []


async def test_nothing_hides_in_a_call_that_says_more_than_a_command() -> None:
    shell = Shell()
    line = "curl -u ann:x;rm${IFS}-rf${IFS}x http://example.com"
    agent = shell.agent(run(line, host="test"), heard, rules=ASKS)

    async with talking(agent) as talk:
        assert "nobody can see all of it" in await talk.said()


async def test_a_huge_command_is_asked_about_in_short_and_is_no_other() -> None:
    shell = Shell()
    begin = "echo " + "x" * 1_000_000
    journal = MemoryJournal()
    agent = shell.agent(
        run(f"{begin}a"), run(f"{begin}a"), run(f"{begin}b"), heard, rules=ASKS
    )
    async with open_orchestrator(journal) as orchestrator:
        async with talking(agent, orchestrator=orchestrator) as talk:
            first = await talk.answer("session")
            second = await talk.answer("deny")

    assert first.subject != second.subject
    assert "(1000006 characters, sha256 " in first.subject
    assert len(first.subject) < SHOWN + 200
    assert len(first.details) <= SHOWN
    assert [len(it) for it in shell.ran] == [1_000_006] * 2


async def test_odd_arguments_are_asked_about_as_they_are() -> None:
    shell = Shell()
    odd = [run(7), run(None), ToolCall("terminal", {}), run("")]  # type: ignore[arg-type]
    agent = shell.agent([*odd], heard, rules=ASKS)

    async with talking(agent) as talk:
        subjects = {(await talk.answer("deny")).subject for _ in odd}

    assert subjects == {'{"command":7}', '{"command":null}', "{}", ""}


# Files by other names.


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "secrets").mkdir(parents=True)
    (work / "secrets" / "key").write_text("TOP")
    (work / "docs").mkdir()
    (work / "docs" / "deep").symlink_to("../secrets")
    (work / "docs" / "key").symlink_to("../secrets/key")
    (tmp_path / "alias").symlink_to("work")
    return work


def reading(workspace: Path, *calls: ToolCall, **options: Any) -> Agent:
    return Agent(
        "main",
        model=stepwise(*calls, heard),
        tools=FILES,
        workspace=workspace,
        **options,
    )


@pytest.mark.parametrize(
    "path",
    [
        "secrets/key",
        "./secrets/key",
        "secrets//key",
        "secrets/./key",
        "docs/../secrets/key",
        "docs/deep/key",
        "docs/deep/../secrets/key",
        "docs/key",
        "{work}/secrets/key",
        "{work}/docs/key",
        "{work}/../alias/secrets/key",
        "../work/secrets/key",
        "secrets/key/",
        "Secrets/KEY",
    ],
)
async def test_a_rule_about_files_is_not_dodged(workspace: Path, path: str) -> None:
    call = ToolCall("read_file", {"path": path.format(work=workspace)})
    agent = reading(workspace, call, approve=[deny("*", path="secrets/*")])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert (
        done.output == "read_file was denied by the rules of this run. Do without it."
    )


@pytest.mark.parametrize("path", ["docs/deep/key", "docs/key", "docs/../secrets/key"])
async def test_a_file_is_not_allowed_for_where_a_link_to_it_lies(
    workspace: Path, path: str
) -> None:
    call = ToolCall("read_file", {"path": path})
    agent = reading(workspace, call, approve=[allow("*", path="docs/*")])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert "needs an approval" in done.output


@pytest.mark.parametrize("path", ["secrets", "secrets/", "docs/deep", "./secrets/."])
async def test_a_folder_that_is_looked_through_is_denied_with_what_is_in_it(
    workspace: Path, path: str
) -> None:
    call = ToolCall("search_files", {"pattern": "TOP", "path": path})
    agent = reading(workspace, call, approve=[deny("*", path="secrets/*")])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert "search_files was denied" in done.output


@pytest.mark.parametrize("arguments", [{}, {"path": "."}, {"path": ""}])
async def test_what_a_call_leaves_out_is_what_its_tool_takes_for_it(
    workspace: Path, arguments: dict[str, str]
) -> None:
    call = ToolCall("list_files", arguments)
    agent = reading(workspace, call, approve=[deny("*", path=".")])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert "list_files was denied" in done.output


@pytest.mark.realtime
@pytest.mark.parametrize("path", ["a\0b", "x" * 10_000, "/" * 5_000])
async def test_a_path_that_leads_nowhere_is_no_reason_to_fail(
    workspace: Path, path: str
) -> None:
    call = ToolCall("read_file", {"path": path})
    agent = reading(workspace, call, approve=[deny("*", path="secrets/*")])

    async with open_orchestrator(":memory:") as orchestrator:
        assert (await orchestrator.run(agent, "go")).outcome.succeeded


async def test_a_link_that_turns_elsewhere_while_somebody_thinks_is_not_followed(
    workspace: Path,
) -> None:
    """Approved was the file that it led to."""
    link = workspace / "link"
    link.symlink_to("notes")
    call = ToolCall("write_file", {"path": "link", "content": "mine"})
    agent = reading(workspace, call, approve=[ask("write_file")])

    async with talking(agent) as talk:
        question = await talk.asked()
        assert question.subject == "notes"
        link.unlink()
        link.symlink_to("secrets/key")
        await talk.session.answer(question.id, "once")
        said = await talk.said()

    assert "approved for 'notes', and is about something else by now" in said
    assert (workspace / "secrets" / "key").read_text() == "TOP"


@pytest.mark.realtime
async def test_rules_look_at_the_workspace_of_the_message(
    workspace: Path, tmp_path: Path
) -> None:
    call = ToolCall("read_file", {"path": "work/secrets/key"})
    agent = Agent(
        "main",
        model=stepwise(call, heard),
        tools=FILES,
        approve=[deny("*", path="secrets/*")],
    )
    async with open_orchestrator(":memory:", workspace=tmp_path) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            above = await session.ask("go")
            call.arguments["path"] = "secrets/key"  # type: ignore[index]
            inside = await session.ask("go", workspace=os.fspath(workspace))

    assert "TOP" in above.text
    assert "denied" in inside.text


# Doing it again.


def recorded(
    agent: Agent, answers: Callable[[ApprovalQuestion], tuple[str, float] | None]
) -> list[Any]:
    """Return the journal of a talk in which somebody answers after a while."""
    journal = MemoryJournal()

    async def talk() -> None:
        async with open_orchestrator(journal) as orchestrator:
            async with talking(agent, orchestrator=orchestrator) as it:
                async with trio.open_nursery() as nursery:

                    async def answer_all() -> None:
                        async for question in it.session.asks:
                            if (answer := answers(question)) is not None:
                                await trio.sleep(answer[1])
                                await it.session.answer(question.id, answer[0])

                    nursery.start_soon(answer_all)
                    await it.said()
                    await it.session.wait_idle()
                    nursery.cancel_scope.cancel()

    on_a_jumping_clock(talk)
    return journal.entries


def mixed() -> Agent:
    shell = Shell(seconds=2)
    child = shell.agent([run("a"), run("b")], run("late"), heard, name="child")
    return shell.agent(
        hand_on("x", "y", background=True),
        run("a"),
        ToolCall("task", {"action": "list"}),
        run("no"),
        hand_on("z", background=False),
        "end",
        rules=[deny("terminal", command="no"), ask("terminal", seconds=900)],
        delegates=[child],
    )


def mixed_answers(question: ApprovalQuestion) -> tuple[str, float] | None:
    if question.subject == "late":
        return None
    return ("session", 3) if question.subject == "a" else ("deny", 30)


def test_a_run_with_approvals_is_the_same_again() -> None:
    """Also what tasks are seen to do meanwhile: one of them waits for an answer."""
    agent = mixed()
    entries = recorded(agent, mixed_answers)

    replayed = replay_sync(entries, muted(agent))

    assert len(facts(entries, ApprovalAsked)) > 3
    assert "waiting" in repr(entries)
    assert replayed.difference is None, replayed.difference


def test_a_run_in_which_handing_on_was_denied_is_the_same_again() -> None:
    child = Agent("child", model=stepwise("done"))
    for rule in (ask("delegate_task"), deny("delegate_task")):
        agent = Agent(
            "main",
            model=stepwise(hand_on("a"), heard),
            delegates=[child],
            approve=[rule],
        )
        entries = recorded(agent, lambda _: ("deny", 5))
        replayed = replay_sync(entries, muted(agent))

        assert replayed.difference is None, replayed.difference


def test_whoever_waited_long_for_an_approval_is_not_stalled_when_it_is_done_again() -> (
    None
):
    shell = Shell(seconds=20)
    child = shell.agent(
        run("x"),
        "end",
        name="child",
        patience=Patience(quiet=5, stalled=30, stalled_in_tool=30),
    )
    agent = Agent(
        "main",
        model=stepwise(hand_on("a", background=False), heard),
        delegates=[child],
        approve=ASKS,
    )
    entries = recorded(agent, lambda _: ("once", 119))
    replayed = replay_sync(entries, muted(agent))

    assert shell.ran == ["x"]
    assert replayed.difference is None, replayed.difference


async def test_in_a_fork_of_an_attended_run_nobody_is_asked() -> None:
    shell = Shell()
    agent = shell.agent(run("x"), heard, rules=ASKS)

    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(orchestrator.run, agent, "go", attended=True))
            await trio.testing.wait_all_tasks_blocked()
            (question,) = orchestrator.approvals
            await orchestrator.answer(question.id, "session", by=ANN)
        (first,) = orchestrator.runs
        fork = await orchestrator.fork(agent, first, task="/main")

    assert "nobody can be asked here" in fork.output
    assert fork.id != SessionId(first)
    assert shell.ran == ["x"]
