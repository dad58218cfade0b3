"""The questions of a session: in order, each once, complete and without secrets."""

import pytest
import trio
import trio.testing

from agents import (
    Agent,
    ToolCall,
)
from delegation.events.approvals import ApprovalQuestion
from orchestrator import (
    MemoryJournal,
    UnknownIdError,
    open_orchestrator,
)
from orchestrator.engine.approvals import SHOWN
from tests.kit import hand_on
from tests.orchestrator.approvals_kit import (
    ASKS,
    Shell,
    run,
    stepwise,
    tool_texts,
    turn_of,
)


async def test_questions_come_one_after_the_other_each_once() -> None:
    shell = Shell()
    agent = shell.agent([run("a"), run("b")], run("c"), tool_texts, rules=ASKS)
    seen: list[str] = []

    async with turn_of(agent) as turn:
        async with trio.open_nursery() as nursery:

            async def answer_all() -> None:
                async for question in turn.session.asks:
                    seen.append(question.subject)
                    await turn.session.answer(question.id, "once")

            nursery.start_soon(answer_all)
            await turn.reply()
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

    async with turn_of(shell.agent(run("x"), tool_texts, rules=ASKS)) as turn:
        await turn.session.asks.aclose()
        await turn.answer("once")

    assert shell.ran == ["x"]


async def test_what_is_answered_before_anybody_looks_is_no_question_any_more() -> None:
    shell = Shell()

    async with turn_of(shell.agent(run("a"), run("b"), tool_texts, rules=ASKS)) as turn:
        await turn.wait_blocked()
        (question,) = turn.orchestrator.approvals
        await turn.orchestrator.answer(question.id, "once")
        await turn.wait_blocked()
        assert (await turn.answer("once")).subject == "b"


async def test_a_session_that_is_closed_for_good_asks_no_more() -> None:
    shell = Shell()
    child = shell.agent(run("x"), tool_texts, rules=ASKS, name="child")
    lead = Agent(
        "main",
        model=stepwise(hand_on("go", background=True), "end"),
        delegates=[child],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with turn_of(lead, orchestrator=orchestrator) as turn:
            question = await turn.question()
        await orchestrator.close_session(turn.session.id)
        assert orchestrator.approvals == []
        with pytest.raises(UnknownIdError):
            await orchestrator.answer(question.id, "once")


async def test_a_secret_is_not_in_the_question() -> None:
    shell = Shell()
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz123456"
    line = f"curl -H 'Authorization: Bearer {key}' https://example.com"
    journal = MemoryJournal()

    async with open_orchestrator(journal) as orchestrator:
        async with turn_of(
            shell.agent(run(line), run(line), tool_texts, rules=ASKS),
            orchestrator=orchestrator,
        ) as turn:
            question = await turn.answer("task")
            await turn.reply()

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
        async with turn_of(
            shell.agent(run(line), tool_texts, rules=ASKS), orchestrator=opened
        ) as turn:
            question = await turn.answer("deny")

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
    """An approval of `echo ***` does not approve what is behind it."""
    shell = Shell()

    async with turn_of(shell.agent(run(line), tool_texts, rules=ASKS)) as turn:
        said = await turn.reply()

    assert "people cannot see all of it" in said
    assert shell.ran == []


async def test_nothing_hides_in_a_call_that_says_more_than_a_command() -> None:
    shell = Shell()
    line = "curl -u ann:x;rm${IFS}-rf${IFS}x http://example.com"
    agent = shell.agent(run(line, host="test"), tool_texts, rules=ASKS)

    async with turn_of(agent) as turn:
        assert "people cannot see all of it" in await turn.reply()


async def test_a_huge_command_is_asked_about_in_short_and_is_no_other() -> None:
    shell = Shell()
    begin = "echo " + "x" * 1_000_000
    journal = MemoryJournal()
    agent = shell.agent(
        run(f"{begin}a"), run(f"{begin}a"), run(f"{begin}b"), tool_texts, rules=ASKS
    )
    async with open_orchestrator(journal) as orchestrator:
        async with turn_of(agent, orchestrator=orchestrator) as turn:
            first = await turn.answer("session")
            second = await turn.answer("deny")

    assert first.subject != second.subject
    assert "(1000006 characters, sha256 " in first.subject
    assert len(first.subject) < SHOWN + 200
    assert len(first.details) <= SHOWN
    assert [len(it) for it in shell.ran] == [1_000_006] * 2


async def test_odd_arguments_are_asked_about_as_they_are() -> None:
    shell = Shell()
    odd = [run(7), run(None), ToolCall("terminal", {}), run("")]  # type: ignore[arg-type]
    agent = shell.agent([*odd], tool_texts, rules=ASKS)

    async with turn_of(agent) as turn:
        subjects = {(await turn.answer("deny")).subject for _ in odd}

    assert subjects == {'{"command":7}', '{"command":null}', "{}", ""}
