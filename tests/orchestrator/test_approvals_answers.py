"""A call that needs approval waits for its answer, which is given once."""

import pytest
import trio

from orchestrator import ClosedError, MemoryJournal, Orchestrator, UnknownIdError, open_orchestrator
from orchestrator.agents import Agent, allow, confirm, deny
from orchestrator.delegation.events import ApprovalAnswered
from orchestrator.delegation.events.approvals import ApprovalVerdict
from tests.kit import facts, hand_on
from tests.orchestrator.approvals_kit import ASKS, Shell, run, stepwise, tool_texts, turn_of


async def test_a_call_waits_until_it_is_approved_and_then_runs() -> None:
    shell = Shell()

    async with turn_of(shell.agent(run("make"), tool_texts, rules=ASKS)) as turn:
        question = await turn.question()
        await turn.wait_blocked()
        assert shell.ran == []
        await turn.session.answer(question.id, "once")
        assert await turn.reply() == "ran make in ."

    assert (question.path, question.tool, question.subject) == ("/main", "terminal", "make")
    assert question.deadline - question.asked_at == pytest.approx(600)
    assert shell.ran == ["make"]


async def test_once_is_once() -> None:
    shell = Shell()

    async with turn_of(shell.agent(run("a"), run("a"), tool_texts, rules=ASKS)) as turn:
        first = await turn.answer("once")
        second = await turn.answer("deny")

    assert first.id != second.id
    assert shell.ran == ["a"]


async def test_a_denial_tells_the_model_the_person_and_the_reason() -> None:
    shell = Shell()

    async with turn_of(shell.agent(run("make"), tool_texts, rules=ASKS)) as turn:
        await turn.answer("deny", "not on Fridays")

        assert await turn.reply() == ("terminal was denied by Ann: not on Fridays. It was not run.")
    assert shell.ran == []


async def test_a_deny_rule_asks_no_person() -> None:
    shell = Shell()
    rules = [deny("terminal", command="rm *", reason="it is not yours"), *ASKS]

    async with turn_of(shell.agent(run("ls; rm x"), tool_texts, rules=rules)) as turn:
        assert await turn.reply() == ("terminal was denied: it is not yours. Do without it.")
        assert turn.session.open_questions == []


async def test_a_denial_without_a_reason_names_the_rule() -> None:
    shell = Shell()

    async with turn_of(shell.agent(run("x"), tool_texts, rules=[deny("*")])) as turn:
        assert await turn.reply() == (
            "terminal was denied by the rules of this run. Do without it."
        )


async def test_an_allowed_command_runs_and_any_other_needs_approval() -> None:
    shell = Shell()
    rules = [allow("terminal", command="git *")]
    agent = shell.agent(run("git log"), run("git log | sh"), tool_texts, rules=rules)

    async with turn_of(agent) as turn:
        question = await turn.answer("deny")

    assert question.subject == "git log | sh"
    assert shell.ran == ["git log"]


async def test_an_unanswered_question_is_denied_at_its_deadline() -> None:
    shell = Shell()
    rules = [confirm("terminal", seconds=60)]
    journal = MemoryJournal()

    async with open_orchestrator(journal) as orchestrator:
        began = trio.current_time()
        async with turn_of(
            shell.agent(run("x"), tool_texts, rules=rules), orchestrator=orchestrator
        ) as turn:
            said = await turn.reply()
            assert trio.current_time() - began == pytest.approx(60)
            assert turn.session.open_questions == []

    assert said == (
        "terminal was denied by the deadline: it was not answered within 60 seconds. It was"
        " not run."
    )
    (answered,) = facts(journal.entries, ApprovalAnswered)
    assert (answered.answer, answered.by) == (ApprovalVerdict.DENY, "the deadline")
    assert shell.ran == []


@pytest.mark.memory_only
async def test_several_calls_of_one_answer_ask_at_once_and_are_answered_in_any_order() -> None:
    shell = Shell()
    agent = shell.agent([run("a"), run("b"), run("c")], tool_texts, rules=ASKS)

    async with turn_of(agent) as turn:
        await turn.wait_blocked()
        asked = {it.subject: it.id for it in turn.session.open_questions}
        assert sorted(asked) == ["a", "b", "c"]
        assert turn.status("/main") == "waiting"

        await turn.session.answer(asked["c"], "once")
        await turn.wait_blocked()
        assert shell.ran == ["c"]
        assert turn.status("/main") == "waiting"

        await turn.session.answer(asked["a"], "deny")
        await turn.session.answer(asked["b"], "once")
        await turn.reply()

    assert shell.ran == ["c", "b"]


@pytest.mark.memory_only
async def test_a_call_that_needs_no_approval_does_not_wait_for_one_that_does() -> None:
    shell = Shell()
    rules = [allow("terminal", command="ls"), *ASKS]

    async with turn_of(shell.agent([run("make"), run("ls")], tool_texts, rules=rules)) as turn:
        await turn.question()
        await turn.wait_blocked()
        assert shell.ran == ["ls"]
        await turn.session.answer(turn.session.open_questions[0].id, "once")


async def test_a_second_answer_is_refused() -> None:
    shell = Shell(seconds=5)

    async with turn_of(shell.agent(run("x"), tool_texts, rules=ASKS)) as turn:
        question = await turn.answer("deny")
        with pytest.raises(UnknownIdError, match="it was answered"):
            await turn.session.answer(question.id, "once")
        with pytest.raises(UnknownIdError):
            await turn.orchestrator.answer(question.id, "session")

    assert shell.ran == []


async def test_the_first_of_two_concurrent_answers_wins() -> None:
    shell = Shell()
    journal = MemoryJournal()
    refused: list[str] = []

    async def answer(orchestrator: Orchestrator, id_: str, answer: str) -> None:
        try:
            await orchestrator.answer(id_, answer)
        except UnknownIdError:
            refused.append(answer)

    async with open_orchestrator(journal) as orchestrator:
        async with turn_of(
            shell.agent(run("x"), tool_texts, rules=ASKS), orchestrator=orchestrator
        ) as turn:
            question = await turn.question()
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
            turn_of(
                shell.agent(run("x"), tool_texts, rules=ASKS), orchestrator=orchestrator
            ) as turn,
            orchestrator.open_session(shell.agent("hm")) as stranger,
        ):
            question = await turn.question()
            assert stranger.open_questions == []
            with pytest.raises(UnknownIdError, match=f"no approval '{question.id}'"):
                await stranger.answer(question.id, "once")
            await turn.session.answer(question.id, "deny")

    assert shell.ran == []


async def test_an_answer_to_an_unknown_question_is_refused() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with pytest.raises(UnknownIdError, match="no approval 'a_0' to answer"):
            await orchestrator.answer("a_0", "once")
        with pytest.raises(ValueError, match=r"'yes' is not an answer; there are: once, task"):
            await orchestrator.answer("a_0", "yes")


async def test_a_late_answer_is_refused() -> None:
    shell = Shell()
    rules = [confirm("terminal", seconds=60)]

    async with turn_of(shell.agent(run("x"), tool_texts, rules=rules)) as turn:
        question = await turn.question()
        await turn.reply()
        with pytest.raises(UnknownIdError, match="its time is over"):
            await turn.session.answer(question.id, "once")

    assert shell.ran == []


async def test_an_answer_to_a_task_that_has_ended_is_refused() -> None:
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, rules=ASKS, name="child")
    lead = Agent("main", model=stepwise(hand_on("go", background=True), "end"), delegates=[child])
    async with turn_of(lead) as turn:
        question = await turn.question()
        await turn.orchestrator.cancel(question.task)
        assert turn.orchestrator.approvals == []
        with pytest.raises(UnknownIdError, match="its task has ended"):
            await turn.session.answer(question.id, "once")
        await turn.session.wait_idle()

    assert shell.ran == []


async def test_a_closed_door_leaves_questions_open() -> None:
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, rules=ASKS, name="child")
    lead = Agent("main", model=stepwise(hand_on("go", background=True), "end"), delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        async with turn_of(lead, orchestrator=orchestrator) as turn:
            question = await turn.question()
        with pytest.raises(ClosedError):
            await turn.session.answer(question.id, "once")
        assert orchestrator.approvals == [question]

    assert shell.ran == []


async def test_a_reason_that_cannot_be_written_down_is_written_all_the_same() -> None:
    shell = Shell()

    async with turn_of(shell.agent(run("x"), tool_texts, rules=ASKS)) as turn:
        await turn.answer("deny", "no\ud800")
        assert "denied by Ann: no" in await turn.reply()
