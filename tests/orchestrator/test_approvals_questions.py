"""The questions of a session: in order, each once, complete and without secrets."""

import pytest
import trio
import trio.testing

from orchestrator import Machine, MemoryJournal, UnknownIdError, open_orchestrator
from orchestrator.agents import Agent, ToolCall
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.kernel.engine.shown_text import SHOWN
from tests.kit import hand_on
from tests.orchestrator.approvals_kit import ASKS, Shell, run, stepwise, tool_texts, turn_of


async def test_questions_come_one_after_the_other_each_once() -> None:
    shell = Shell()
    agent = shell.agent([run("a"), run("b")], run("c"), tool_texts, rules=ASKS)
    seen: list[str] = []

    async with turn_of(agent) as turn:
        async with trio.open_nursery() as nursery:

            async def answer_all() -> None:
                async for question in turn.session.questions:
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
                nursery.start_soon(listen, session.questions)
                await trio.testing.wait_all_tasks_blocked()
                if closing == "close_session":
                    await orchestrator.close_session(session.id)
                    await is_over.wait()
                if closing == "stop":
                    await orchestrator.abandon()
            if closing == "leave":
                await is_over.wait()
        await is_over.wait()


async def test_closing_the_question_stream_leaves_the_session_open() -> None:
    shell = Shell()

    async with turn_of(shell.agent(run("x"), tool_texts, rules=ASKS)) as turn:
        await turn.session.questions.aclose()
        await turn.answer("once")

    assert shell.ran == ["x"]


@pytest.mark.memory_only
async def test_an_answered_question_is_not_delivered_any_more() -> None:
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
    lead = Agent("main", model=stepwise(hand_on("go", background=True), "end"), delegates=[child])
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
            shell.agent(run(line), run(line), tool_texts, rules=ASKS), orchestrator=orchestrator
        ) as turn:
            question = await turn.answer("task")
            await turn.reply()

    assert "https://example.com" in question.subject
    assert key not in question.subject + question.details
    assert key not in repr(journal.entries)
    # What is run has it, and what looks the same to people is the same.
    assert shell.ran == [line, line]


@pytest.mark.parametrize("at", range(SHOWN // 4 * 3 - 60, SHOWN // 4 * 3 + 5, 7))
async def test_a_secret_that_a_cut_goes_through_is_not_in_the_question(at: int) -> None:
    """Redaction comes before the cut: half of a secret would not be found."""
    shell = Shell()
    secret = "correct-horse-battery-staple"
    text = f"echo {'x' * (at - 5)} {secret} {'y' * SHOWN}"
    call = ToolCall("terminal", {"workdir": text})
    journal = MemoryJournal()

    async with open_orchestrator(
        journal, machine=Machine(environ={"DB_PASSWORD": secret})
    ) as opened:
        async with turn_of(shell.agent(call, tool_texts, rules=ASKS), orchestrator=opened) as turn:
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
async def test_a_command_with_a_redacted_secret_cannot_be_approved(line: str) -> None:
    """An approval of `echo ***` says nothing about the hidden text."""
    shell = Shell()

    async with turn_of(shell.agent(run(line), tool_texts, rules=ASKS)) as turn:
        said = await turn.reply()

    assert "people cannot see all of it" in said
    assert shell.ran == []


async def test_a_call_with_redacted_arguments_cannot_be_approved() -> None:
    shell = Shell()
    line = "curl -u ann:x;rm${IFS}-rf${IFS}x http://example.com"
    agent = shell.agent(run(line, host="test"), tool_texts, rules=ASKS)

    async with turn_of(agent) as turn:
        assert "people cannot see all of it" in await turn.reply()


@pytest.mark.parametrize("length", [SHOWN + 1, 1_000_000])
async def test_a_command_that_is_longer_than_is_shown_is_not_asked_about(length: int) -> None:
    shell = Shell()

    async with turn_of(shell.agent(run("x" * length), tool_texts, rules=ASKS)) as turn:
        said = await turn.reply()

    assert f"{length:,}" in said
    assert shell.ran == []


async def test_a_question_shows_the_number_of_blanks() -> None:
    shell = Shell()
    line = f"echo building{' ' * 2_100}; id > PWNED"

    async with turn_of(shell.agent(run(line), tool_texts, rules=ASKS)) as turn:
        question = await turn.answer("deny")

    assert "echo building⟨2100 blanks⟩; id > PWNED" in question.subject
    assert "⟨2100 blanks⟩; id > PWNED" in question.details


async def test_a_command_that_spells_a_mark_is_a_different_command() -> None:
    shell = Shell()
    marked: list[str] = []
    line = f"echo building{' ' * 100}; id"
    agent = shell.agent(run(line), lambda _: run(marked[0]), run(line), tool_texts, rules=ASKS)

    async with turn_of(agent) as turn:
        question = await turn.question()
        marked.append(question.subject)
        await turn.session.answer(question.id, "session")
        second = await turn.answer("deny")
        await turn.reply()

    assert second.subject != question.subject
    assert shell.ran == [line, line]


async def test_a_long_call_is_shown_by_its_beginning_and_its_end() -> None:
    shell = Shell()
    call = ToolCall("terminal", {"note": f"begin{'x' * 1_000_000}end"})

    async with turn_of(shell.agent(call, tool_texts, rules=ASKS)) as turn:
        question = await turn.answer("deny")

    for shown in (question.subject, question.details):
        assert "begin" in shown
        assert "end" in shown
        assert "characters are not shown" in shown
        assert len(shown) < 3 * SHOWN


async def test_odd_arguments_are_asked_about_as_they_are() -> None:
    shell = Shell()
    odd = [run(7), run(None), ToolCall("terminal", {}), run("")]  # type: ignore[arg-type]
    agent = shell.agent([*odd], tool_texts, rules=ASKS)

    async with turn_of(agent) as turn:
        subjects = {(await turn.answer("deny")).subject for _ in odd}

    assert subjects == {'{"command":7}', '{"command":null}', "{}", ""}


async def test_the_questions_of_all_runs_are_a_stream() -> None:
    shell = Shell()
    agent = shell.agent([run("a"), run("b")], tool_texts, rules=ASKS)
    seen: list[str] = []
    is_over = trio.Event()

    async with trio.open_nursery() as nursery:
        async with open_orchestrator(":memory:") as orchestrator:

            async def answer_all() -> None:
                async for question in orchestrator.questions:
                    seen.append(question.subject)
                    await orchestrator.answer(question.id, "once")
                is_over.set()

            nursery.start_soon(answer_all)
            for _ in range(2):
                ended = await orchestrator.run(agent, "go", attended=True)
                assert ended.outcome.succeeded
            await trio.testing.wait_all_tasks_blocked()
            assert not is_over.is_set()

    assert is_over.is_set()
    assert sorted(seen) == ["a", "a", "b", "b"]
    assert sorted(shell.ran) == ["a", "a", "b", "b"]
