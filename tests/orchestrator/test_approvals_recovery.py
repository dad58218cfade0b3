"""Questions survive a crash, and nothing that was approved is ever run twice."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs
import msgspec
import pytest
import trio
import trio.testing
from msgspec.structs import replace

from orchestrator import MemoryJournal, Session, UnknownIdError, open_orchestrator
from orchestrator.agents import Agent, allow, confirm, deny
from orchestrator.agents.approval import ApprovalRule
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.delegation import SessionId
from orchestrator.delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Entry,
    MessageReceived,
    ModelAnswered,
    SessionOpened,
    TaskStarted,
    ToolAnswered,
    TurnResumed,
)
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalVerdict
from tests.kit import facts, hand_on
from tests.orchestrator.approvals_kit import Shell, run, stepwise, tool_texts, turn_of

ASKS = (confirm("terminal"),)
BROKEN_OFF = "broken off"


class Machine:
    """A shell that knows how long the journal was when it ran a command."""

    def __init__(self, entries: Sequence[Entry] = (), *, idempotent: bool = False) -> None:
        self.journal = MemoryJournal(entries)
        self.shell = Shell(seconds=1, idempotent=idempotent)
        self.ran: list[tuple[str, int]] = []
        run = self.shell.tool.run

        async def noted(call: Any) -> str | ToolResult:
            self.ran.append((call.arguments["command"], len(self.journal.entries)))
            return await run(call)

        self.tool = attrs.evolve(self.shell.tool, run=noted)

    def team(self) -> Agent:
        """Return an agent that asks itself, and whose joined and detached children do."""

        def one(name: str, command: str) -> Agent:
            return Agent(name, model=stepwise(run(command), tool_texts), tools=[self.tool])

        return Agent(
            "main",
            model=stepwise(
                [
                    hand_on("go", agent="joined", background=False),
                    hand_on("go", agent="apart", background=True),
                    run("root"),
                ],
                tool_texts,
            ),
            tools=[self.tool],
            delegates=[one("joined", "joined"), one("apart", "apart")],
            approve=ASKS,
        )

    async def finish(self, answer: str = "once") -> list[Entry]:
        """Go on with what the journal says until nothing is left to do, and answer all."""
        opened = facts(self.journal.entries, SessionOpened)
        is_said = bool(facts(self.journal.entries, MessageReceived))
        async with open_orchestrator(self.journal) as orchestrator:
            async with orchestrator.open_session(
                self.team(), session=opened[0].session if opened else None
            ) as session:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(partial(answer_all, session, answer))
                    if not is_said:
                        await session.ask("go")
                    await session.wait_idle()
                    nursery.cancel_scope.cancel()
                assert session.open_questions == []
        return self.journal.entries


async def answer_all(session: Session, answer: str) -> None:
    async for question in session.questions:
        # Time passes, so that each answer comes after all questions.
        await trio.sleep(1)
        await session.answer(question.id, answer, reason="so be it", by="Ann")


def asked_of(entries: Sequence[Entry]) -> dict[str, ApprovalId]:
    return {it.subject: it.id for it in facts(entries, ApprovalAsked)}


def answered(entries: Sequence[Entry]) -> set[ApprovalId]:
    return {it.id for it in facts(entries, ApprovalAnswered)}


def called(entries: Sequence[Entry]) -> set[str]:
    return {
        call.arguments["command"]
        for it in facts(entries, ModelAnswered)
        for call in it.message.calls
        if call.name == "terminal"
    }


def said_by_tools(entries: Sequence[Entry]) -> str:
    return " ".join(it.message.text for it in facts(entries, ToolAnswered))


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_crash_after_any_entry_loses_no_question_and_repeats_no_command(
    idempotent: bool,
) -> None:
    """Of each command is known whether it was asked about, approved, or run by then."""
    whole = Machine(idempotent=idempotent)
    await whole.finish()
    entries = whole.journal.entries
    assert sorted(command for command, _ in whole.ran) == ["apart", "joined", "root"]

    for length in range(1, len(entries)):
        again = Machine(entries[:length], idempotent=idempotent)
        await again.finish()

        before, after = asked_of(entries[:length]), asked_of(again.journal.entries)
        ran_before = {command for command, at in whole.ran if at <= length}
        ran_after = [command for command, _ in again.ran]
        assert after.items() >= before.items(), length
        for command in ("apart", "joined", "root"):
            runs = ran_after.count(command)
            if command not in called(entries[:length]):
                expected = 1
            elif command not in before:
                # It was called; whether it had to wait is not recorded.
                expected = int(idempotent)
            elif before[command] not in answered(entries[:length]):
                expected = 1
            else:
                is_answered = f"ran {command}" in said_by_tools(entries[:length])
                expected = int(idempotent and not is_answered)
            assert runs == expected, (length, command)
            assert idempotent or runs + (command in ran_before) <= 1, (length, command)
        # Each question is answered once, before or after.
        ids = [it.id for it in facts(again.journal.entries, ApprovalAnswered)]
        assert len(ids) == len(set(ids)) == len(after), length


async def test_a_crash_after_any_entry_forgets_no_denial() -> None:
    whole = Machine()
    await whole.finish("deny")
    entries = whole.journal.entries
    assert whole.ran == []

    for length in range(1, len(entries)):
        again = Machine(entries[:length])
        await again.finish("deny")

        assert again.ran == []
        asked = asked_of(again.journal.entries)
        denied = said_by_tools(again.journal.entries).count("denied by Ann: so be it")
        # Two of them are told by their children as well.
        assert denied >= len(asked), length
        assert answered(again.journal.entries) == {*asked.values()}, length


async def waiting(agent: Agent) -> MemoryJournal:
    """Return the journal of a process that died while a question was open."""
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(session.ask, "go")
                    await session.questions.receive()
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
            entries = list(journal.entries)
    return MemoryJournal(entries)


def aged(journal: MemoryJournal, seconds: float) -> MemoryJournal:
    """Return a journal that was written so long before."""

    def before(entry: Entry) -> Entry:
        event = entry.event
        if isinstance(event, ApprovalAsked):
            event = replace(event, deadline=event.deadline - seconds)
        return msgspec.structs.replace(entry, at=entry.at - seconds, event=event)

    return MemoryJournal(map(before, journal.entries))


def session_of(journal: MemoryJournal) -> SessionId:
    return facts(journal.entries, SessionOpened)[0].session


Depth = Literal["root", "joined", "detached"]


def lead(depth: Depth, shell: Shell, **options: Any) -> Agent:
    """Return an agent that runs `x`, itself or through another."""
    rules = options.pop("rules", ASKS)
    tools = options.pop("tools", [shell.tool])
    child = Agent(
        "main" if depth == "root" else "child",
        model=stepwise(run("x"), tool_texts),
        tools=tools,
        approve=rules,
        **options,
    )
    if depth == "root":
        return child
    return Agent(
        "main",
        model=stepwise(hand_on("go", background=depth == "detached"), tool_texts),
        delegates=[child],
    )


DEPTHS = pytest.mark.parametrize("depth", ["root", "joined", "detached"])


@DEPTHS
async def test_a_question_is_asked_again_when_its_session_is_opened_again(depth: Depth) -> None:
    """It is the same one: its id from the first time still answers it."""
    shell = Shell()
    agent = lead(depth, shell)
    journal = await waiting(agent)
    (first,) = facts(journal.entries, ApprovalAsked)

    async with open_orchestrator(journal) as orchestrator:
        assert [it.id for it in orchestrator.approvals] == [first.id]
        tree = orchestrator.tree(session_of(journal))
        assert "interrupted" in tree.to_text()
        async with orchestrator.open_session(agent, session=session_of(journal)) as session:
            question = await session.questions.receive()
            await trio.testing.wait_all_tasks_blocked()
            assert session.tree[question.task].status == "waiting"
            await session.answer(first.id, "once")
            await session.wait_idle()

    assert question.id == first.id
    assert shell.ran == ["x"]


@DEPTHS
@pytest.mark.parametrize("answer", ["once", "task", "session", "deny"])
async def test_a_question_can_be_answered_before_its_session_is_opened_again(
    depth: Depth, answer: str
) -> None:
    """The answer is recorded, and the call runs when its session is opened."""
    shell = Shell()
    agent = lead(depth, shell)
    journal = await waiting(agent)

    async with open_orchestrator(journal) as orchestrator:
        (question,) = orchestrator.approvals
        await orchestrator.answer(question.id, answer, reason="hm", by="Ann")
        assert orchestrator.approvals == []
        assert shell.ran == []
        with pytest.raises(UnknownIdError):
            await orchestrator.answer(question.id, "deny")
    # Another crash, before any task ran.
    journal = MemoryJournal(journal.entries)
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session_of(journal)) as session:
            await session.wait_idle()

    assert shell.ran == ([] if answer == "deny" else ["x"])
    assert ("denied by Ann: hm" in said_by_tools(journal.entries)) is (answer == "deny")
    assert len(facts(journal.entries, ApprovalAsked)) == 1


@DEPTHS
async def test_a_call_approved_during_an_interruption_is_not_run_twice(depth: Depth) -> None:
    """A second crash comes while the call runs, so its effect is unknown."""
    shell = Shell(seconds=1_000)
    agent = lead(depth, shell)
    journal = await waiting(agent)

    async with open_orchestrator(journal) as orchestrator:
        (question,) = orchestrator.approvals
        await orchestrator.answer(question.id, "once")
        async with orchestrator.open_session(agent, session=session_of(journal)):
            await trio.sleep(10)
            assert shell.ran == ["x"]
            entries = list(journal.entries)
    assert facts(entries, TurnResumed) or facts(entries, TaskStarted)[1:]

    journal = MemoryJournal(entries)
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session_of(journal)) as session:
            await session.wait_idle()

    assert shell.ran == ["x"]
    assert BROKEN_OFF in said_by_tools(journal.entries)


@DEPTHS
@pytest.mark.parametrize("down", [10, 70])
async def test_the_deadline_of_a_question_continues_during_an_interruption(
    depth: Depth, down: float
) -> None:
    shell = Shell()
    agent = lead(depth, shell, rules=[confirm("terminal", seconds=60)])
    journal = aged(await waiting(agent), down)
    began = trio.current_time()

    async with open_orchestrator(journal) as orchestrator:
        assert len(orchestrator.approvals) == (down < 60)
        if down > 60:
            (asked,) = facts(journal.entries, ApprovalAsked)
            with pytest.raises(UnknownIdError, match="its time is over"):
                await orchestrator.answer(asked.id, "once")
        async with orchestrator.open_session(agent, session=session_of(journal)) as session:
            await session.wait_idle()
            took = trio.current_time() - began
            assert took == pytest.approx(max(0, 60 - down), abs=5)

    assert shell.ran == []
    assert "it was not answered within 60 seconds" in said_by_tools(journal.entries)


async def test_an_expired_question_does_not_block_the_next_one() -> None:
    """Its task does not run, so no fact says that it is over."""
    shell = Shell()
    agent = lead("detached", shell, rules=[confirm("terminal", seconds=60)])
    journal = aged(await waiting(agent), 100)

    async with open_orchestrator(journal) as orchestrator:
        agent = lead("root", shell)
        async with turn_of(agent, orchestrator=orchestrator) as turn:
            question = await turn.question()
            assert orchestrator.approvals == [question]
            await turn.session.answer(question.id, "once")


@DEPTHS
@pytest.mark.parametrize("on_restart", ["restart", "lose"])
async def test_a_task_that_starts_afresh_asks_again(
    depth: Depth, on_restart: Literal["restart", "lose"]
) -> None:
    """The call that was asked about will never be made, so it cannot be approved."""
    shell = Shell()
    agent = lead(depth, shell, on_restart=on_restart)
    journal = await waiting(agent)
    (old,) = facts(journal.entries, ApprovalAsked)

    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session_of(journal)) as session:
            await trio.testing.wait_all_tasks_blocked()
            assert old.id not in [it.id for it in orchestrator.approvals]
            with pytest.raises(UnknownIdError):
                await session.answer(old.id, "once")
            if on_restart == "restart":
                question = await session.questions.receive()
                await session.answer(question.id, "once")
            await session.wait_idle()
            assert orchestrator.approvals == []

    assert shell.ran == (["x"] if on_restart == "restart" else [])


@DEPTHS
@pytest.mark.parametrize(
    ("rules", "runs", "says"),
    [
        ([allow("terminal")], True, "ran x"),
        ([deny("terminal", reason="no more")], False, "denied: no more"),
        ([], False, BROKEN_OFF),
        ([confirm("other")], True, "ran x"),
    ],
)
async def test_rules_that_were_changed_meanwhile_hold(
    depth: Depth, rules: list[ApprovalRule], runs: bool, says: str
) -> None:
    """The rules answer the question, and it is closed."""
    shell = Shell(seconds=1)
    journal = await waiting(lead(depth, shell))

    agent = lead(depth, shell, rules=rules)
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session_of(journal)) as session:
            await session.wait_idle()
            assert orchestrator.approvals == []
            assert "waiting" not in session.tree.to_text()

    assert shell.ran == (["x"] if runs else [])
    assert says in said_by_tools(journal.entries)
    async with open_orchestrator(MemoryJournal(journal.entries)) as orchestrator:
        assert orchestrator.approvals == []


@DEPTHS
async def test_a_question_about_a_removed_tool_is_gone(depth: Depth) -> None:
    shell = Shell()
    journal = await waiting(lead(depth, shell))

    agent = lead(depth, shell, tools=[])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session_of(journal)) as session:
            await session.wait_idle()
            assert orchestrator.approvals == []

    assert BROKEN_OFF in said_by_tools(journal.entries)


async def test_a_run_that_dies_takes_its_question_along() -> None:
    """The caller that could have answered died with it."""
    shell = Shell()
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with trio.move_on_after(5):
            await orchestrator.run(lead("joined", shell), "go", attended=True)
            raise AssertionError("it waits")
        entries = [
            entry
            for entry in journal.entries
            if entry.seq <= max(it.seq for it in journal.entries if is_question(it))
        ]

    journal = MemoryJournal(entries)
    async with open_orchestrator(journal) as orchestrator:
        assert orchestrator.approvals == []


def is_question(entry: Entry) -> bool:
    return isinstance(entry.event, ApprovalAsked)


async def test_a_question_of_a_closed_session_is_gone() -> None:
    shell = Shell()
    journal = await waiting(lead("detached", shell))
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.close_session(session_of(journal))
        assert orchestrator.approvals == []

    assert shell.ran == []


@DEPTHS
async def test_an_orderly_end_keeps_the_question_for_the_next_time(depth: Depth) -> None:
    """The task is neither denied nor cancelled: an answer may come later."""
    shell = Shell()
    agent = lead(depth, shell)
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await session.questions.receive()
                assert not await orchestrator.drain(5)
                nursery.cancel_scope.cancel()

    journal = MemoryJournal(journal.entries)
    async with open_orchestrator(journal) as orchestrator:
        (question,) = orchestrator.approvals
        await orchestrator.answer(question.id, "once")
        async with orchestrator.open_session(agent, session=session.id) as again:
            await again.wait_idle()

    assert shell.ran == ["x"]
    assert [it.answer for it in facts(journal.entries, ApprovalAnswered)] == [ApprovalVerdict.ONCE]


@pytest.mark.realtime
async def test_a_question_survives_in_a_file(tmp_path: Path) -> None:
    shell = Shell()
    agent = lead("root", shell)
    with trio.fail_after(20):
        async with open_orchestrator(tmp_path / "j.db") as orchestrator:
            async with orchestrator.open_session(agent) as session:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(session.ask, "go")
                    first = await session.questions.receive()
                    nursery.cancel_scope.cancel()
        async with open_orchestrator(tmp_path / "j.db") as orchestrator:
            (question,) = orchestrator.approvals
            async with orchestrator.open_session(agent, session=session.id) as again:
                await again.answer(question.id, "session")
                await again.wait_idle()
        async with open_orchestrator(tmp_path / "j.db") as orchestrator:
            async with orchestrator.open_session(agent, session=session.id) as again:
                await again.ask("again")

    assert question == first
    assert shell.ran == ["x", "x"]
