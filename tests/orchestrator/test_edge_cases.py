"""Edge cases: closed doors, odd values, cancellation at a bad moment."""

import os
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import ClosedError, MemoryJournal, Orchestrator, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    DefinitionError,
    Limits,
    ModelRequest,
    Part,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
    tool,
)
from orchestrator.delegation import Cause, Ending
from orchestrator.delegation.events import (
    DoorClosed,
    ReplyDelivered,
    TaskRequested,
    TaskSettled,
    TurnEnded,
)
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from orchestrator.testing import SpyModel, StreamingModel
from tests.kit import FunctionModel, facts, hand_on, worker


class OddModel:
    """Answers with one thing, whatever it is."""

    name = "odd"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def answer(self, _: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        answer: AssistantMessage = self._answer
        return answer


def sleepy(seconds: float = 1000) -> Agent:
    return Agent("sleepy", model=ScriptedModel.always("late", seconds))


def cancels(scope: trio.CancelScope) -> Agent:
    """Return an agent that is cancelled when its model is asked."""

    async def answer(_: ModelRequest) -> str:
        scope.cancel()
        await trio.sleep_forever()

    return Agent("sleepy", model=FunctionModel(answer))


@pytest.mark.memory_only
@pytest.mark.realtime
async def test_a_run_that_is_cancelled_from_outside_still_writes_how_it_ended(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    with trio.CancelScope() as scope:
        async with open_orchestrator(path) as orchestrator:
            await orchestrator.run(cancels(scope), "go")

    assert scope.cancelled_caught
    (ended,) = facts(await read_sqlite_journal(path), TurnEnded)
    assert ended.outcome.ending is Ending.CANCELLED


@pytest.mark.memory_only
@pytest.mark.realtime
async def test_a_session_that_is_cancelled_from_outside_closes_its_door(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with trio.CancelScope() as scope:
        async with open_orchestrator(path) as orchestrator:
            async with orchestrator.open_session(cancels(scope)) as session:
                await session.ask("go")

    assert len(facts(await read_sqlite_journal(path), DoorClosed)) == 1


@pytest.mark.realtime
async def test_many_replies_at_once_are_handed_over_once_each(tmp_path: Path) -> None:
    """Several turns may end while the disk is slow: each reply has one hand to carry it."""
    model = ScriptedModel([hand_on(*"abcdefghij", background=True), *["news"] * 20])
    agent = Agent("lead", model=model, delegates=[worker()])
    async with open_orchestrator(tmp_path / "journal.db") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
            turns = drained(session)

    assert turns == sorted(set(turns))
    assert turns[-1] == turns[0] + len(turns) - 1


def drained(session: Any) -> list[int]:
    turns: list[int] = []
    while True:
        try:
            turns.append(session.replies.receive_nowait().turn)
        except trio.WouldBlock:
            return turns


@pytest.mark.parametrize("ticks", range(6))
async def test_a_session_reopened_at_the_end_of_a_turn_gets_the_reply_once(ticks: int) -> None:
    agent = Agent("slow", model=ScriptedModel(["at last"], 10))
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            with trio.move_on_after(1):
                await session.ask("go")
        await trio.sleep(9)
        for _ in range(ticks):
            await trio.lowlevel.checkpoint()
        async with orchestrator.open_session(agent, session=session.id) as again:
            assert (await again.replies.receive()).text == "at last"
            await again.wait_idle()
            assert drained(again) == []

    assert len(facts(journal.entries, ReplyDelivered)) == 1


@pytest.mark.parametrize("ticks", range(6))
async def test_a_question_cancelled_as_it_is_answered_is_answered_on_replies(ticks: int) -> None:
    agent = Agent("slow", model=ScriptedModel(["at last"], 10))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            scope = trio.CancelScope()
            got: list[str] = []

            async def ask() -> None:
                with scope:
                    got.append((await session.ask("go")).text)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.sleep(10)
                for _ in range(ticks):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
            await session.wait_idle()
            heard = [reply.text for reply in all_of(session)]

    assert got + heard == ["at last"]


def all_of(session: Any) -> list[Any]:
    replies: list[Any] = []
    while True:
        try:
            replies.append(session.replies.receive_nowait())
        except trio.WouldBlock:
            return replies


async def test_an_unread_reply_is_delivered_when_the_session_is_reopened() -> None:
    model = ScriptedModel([hand_on("a", background=True), "on its way", "news"])
    agent = Agent("lead", model=model, delegates=[worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
        async with orchestrator.open_session(agent, session=session.id) as again:
            assert again.replies.receive_nowait().text == "news"


async def test_two_questions_in_one_turn_get_the_one_reply() -> None:
    agent = Agent("slow", model=ScriptedModel(["first", "both"], 10))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            got: dict[str, str] = {}

            async def ask(text: str) -> None:
                got[text] = (await session.ask(text)).text

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "one")
                await trio.sleep(5)
                nursery.start_soon(ask, "two")
                nursery.start_soon(ask, "three")
            await session.wait_idle()

            assert got == {"one": "first", "two": "both", "three": "both"}
            assert all_of(session) == []


async def test_a_closed_session_raises_closed() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(sleepy()) as session:
            pass
        with pytest.raises(ClosedError, match=f"session '{session.id}' is closed"):
            await session.ask("go")
        with pytest.raises(ClosedError):
            await session.wait_idle()
        assert [reply async for reply in session.replies] == []


async def test_a_closed_orchestrator_raises_closed() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        pass
    with pytest.raises(ClosedError, match="the orchestrator is closed"):
        await orchestrator.run(sleepy(), "go")
    with pytest.raises(ClosedError):
        async with orchestrator.open_session(sleepy()):
            pass


async def test_closing_the_orchestrator_releases_waiting_callers() -> None:
    async with trio.open_nursery() as nursery:
        closed: list[str] = []

        async def talk(orchestrator: Orchestrator) -> None:
            with pytest.raises(ClosedError):
                async with orchestrator.open_session(sleepy()) as session:
                    await session.ask("go")
            closed.append("ask")

        async with open_orchestrator(":memory:") as orchestrator:
            nursery.start_soon(talk, orchestrator)
            await trio.sleep(1)

    assert closed == ["ask"]


async def test_undecodable_bytes_in_a_text_are_replaced() -> None:
    """File names and arguments of programs may hold bytes that stand for no character."""
    broken = os.fsdecode(b"caf\xe9")

    @tool
    async def show() -> str:
        await trio.lowlevel.checkpoint()
        return broken

    def say(transcript: Transcript) -> Any:
        last = transcript[-1]
        return last.text if isinstance(last, ToolMessage) else ToolCall("show")

    agent = Agent("odd", model=ScriptedModel.always(say), tools=[show])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(agent, broken)

    assert run.output == "caf?"


@pytest.mark.parametrize(
    "said",
    [
        "just text",
        None,
        AssistantMessage(None),  # type: ignore[arg-type]
        AssistantMessage("x", usage=Usage(micro_usd=0.5)),  # type: ignore[arg-type]
        AssistantMessage("", calls=("call",)),  # type: ignore[arg-type]
    ],
)
async def test_an_invalid_model_answer_fails_the_task_and_not_the_journal(said: Any) -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(Agent("odd", model=OddModel(said)), "go")
    async with open_orchestrator(journal):
        pass

    assert run.outcome.ending is Ending.FAILED
    assert run.outcome.cause is Cause.ERROR


async def test_arguments_that_json_cannot_carry_fail_the_task_alone() -> None:
    said = AssistantMessage("", (ToolCall("t", {"n": object()}),))
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(Agent("odd", model=OddModel(said)), "go")

    assert run.outcome.ending is Ending.FAILED
    assert run.outcome.cause is Cause.ERROR


@pytest.mark.parametrize("goal", [None, 5, b"go"])
async def test_a_message_is_text(goal: Any) -> None:
    async with (
        open_orchestrator(":memory:") as orchestrator,
        orchestrator.open_session(sleepy()) as session,
    ):
        with pytest.raises(DefinitionError, match="must be text"):
            await session.ask(goal)


@pytest.mark.parametrize(
    ("goal", "read"), [(123, "123"), (["a", 1], '["a",1]'), ("plain", "plain")]
)
async def test_a_goal_is_a_text_or_any_value_as_json(goal: Any, read: str) -> None:
    """As `delegate` takes it."""
    echo = Agent("echo", model=ScriptedModel.always(lambda it: it[0].text))

    async with open_orchestrator(":memory:") as orchestrator:
        assert (await orchestrator.run(echo, goal)).output == read
        with pytest.raises(DefinitionError, match="cannot be written as JSON"):
            await orchestrator.run(echo, object())


async def test_an_id_that_a_model_uses_again_still_means_another_call() -> None:
    def call(goal: str) -> ToolCall:
        return ToolCall("delegate_task", {"goal": goal}, id="call_0")  # type: ignore[arg-type]

    model = ScriptedModel([call("first"), call("second"), "end"])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(Agent("a", model=model, delegates=[worker()]), "go")

    asked = [fact.request.goal for fact in facts(journal.entries, TaskRequested)]
    assert run.output == "end"
    assert asked == ["first", "second"]


async def test_the_request_holds_the_promised_output_schema() -> None:
    model = SpyModel("[1]")
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(Agent("a", model=model, output=list[int]), "go")

    assert run.output == [1]
    assert model.requests[0].output == {"type": "array", "items": {"type": "integer"}}


@tool
async def untidy() -> str:
    """Fail to tidy up, in a nursery of its own."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("untidy")
    return "never"


def untidy_agent(**options: Any) -> Agent:
    model = ScriptedModel.always(ToolCall("untidy"))
    return Agent("untidy", model=model, tools=[untidy], **options)


async def test_an_error_while_a_task_is_cancelled_does_not_make_it_failed() -> None:
    lead = Agent("lead", model=ScriptedModel([hand_on("a"), "end"]), delegates=[untidy_agent()])
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead, "go")
            await trio.sleep(1)
            tree = orchestrator.tree(orchestrator.runs[-1])
            child = next(task for task in tree if tree[task].agent == "untidy")
            await orchestrator.cancel(child)

    assert tree[child].status == "cancelled"
    assert "ValueError: untidy" in tree[child].error
    assert tree[tree.root].status == "succeeded"


async def test_an_error_during_closing_leaves_a_task_interrupted() -> None:
    model = ScriptedModel([hand_on("a", background=True), "on its way"])
    lead = Agent("lead", model=model, delegates=[untidy_agent()])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await trio.testing.wait_all_tasks_blocked()

    assert session.tree.counts() == {"waiting": 1, "running": 1}


async def test_the_partial_text_of_a_child_is_kept_when_its_parent_times_out() -> None:
    @tool
    async def wait() -> str:
        await trio.sleep_forever()
        return "never"

    half = StreamingModel.always("half of the work", ToolCall("wait"))
    child = Agent("child", model=half, tools=[wait])
    lead = Agent(
        "lead",
        model=ScriptedModel([hand_on("a", background=False), "never"]),
        delegates=[child],
        limits=Limits(seconds=5),
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")

    (settled,) = facts(journal.entries, TaskSettled)
    assert settled.outcome.output == "half of the work"


@pytest.mark.parametrize("ticks", range(9))
async def test_a_cancelled_task_delegates_no_more_tasks(ticks: int) -> None:
    """The child would outlive the cancel."""
    model = ScriptedModel([hand_on("a", "b", background=True), *["ok"] * 9])
    lead = Agent("lead", model=model, delegates=[worker(seconds=100)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(lead) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                for _ in range(ticks):
                    await trio.lowlevel.checkpoint()
                await orchestrator.cancel(session.id, tree=True)

                children = session.tree.children(session.tree.root)
                statuses = {session.tree[child].status for child in children}
                assert statuses <= {"cancelled"}


async def test_files_and_the_workspace_go_with_a_message_and_survive_a_restart() -> None:
    picture = Part("image/png", data=b"png", name="map.png")
    journal = MemoryJournal()
    model = SpyModel("seen")
    agent = Agent("a", model=model)
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(agent, "look", picture)
        async with orchestrator.open_session(agent) as session:
            await session.ask("and here?", picture, workspace="/maps")
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session.id) as again:
            await again.ask("again")

    first, second, third = model.requests
    assert first.transcript[0] == UserMessage("look", (picture,))
    told = UserMessage("[Workspace: /maps]\nand here?", (picture,))
    assert second.transcript[0] == third.transcript[0] == told
    assert second.transcript[0].id == third.transcript[0].id


async def test_an_invalid_part_is_refused_before_it_is_recorded() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        before = len(journal.entries)
        with pytest.raises(DefinitionError):
            await orchestrator.run(sleepy(), "look", "map.png")  # type: ignore[call-overload]

        assert len(journal.entries) == before
