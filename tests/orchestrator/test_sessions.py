"""`orchestrator.open_session`: a conversation that can be told things later."""

import json
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, SessionOpenError, UnknownIdError, open_orchestrator
from orchestrator.agents import (
    Agent,
    ModelError,
    ScriptedModel,
    ToolMessage,
    Transcript,
    UserMessage,
)
from orchestrator.delegation import Cause, DeliveryCapability, Ending
from orchestrator.delegation.events import TaskSettled, TurnStarted
from tests.kit import facts, hand_on, worker


def chatty(seconds: float = 10, **options: Any) -> Agent:
    """Return an agent that hands everything on in the background, and reports the news."""

    def say(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, ToolMessage):
            return "on its way"
        if last.text.startswith("A task that you delegated"):
            return "news: " + last.text.partition("Output:\n")[2]
        return hand_on(last.text, background=True)

    helper = worker(seconds=seconds, says="found")
    return Agent("chatty", model=ScriptedModel.always(say), delegates=[helper], **options)


async def test_a_detached_child_wakes_a_fresh_turn_of_its_parent() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(chatty(seconds=60)) as session:
            before = trio.current_time()
            reply = await session.ask("look it up")
            answered = trio.current_time()
            news = await session.replies.receive()

    assert reply.text == "on its way"
    assert answered == before
    assert (news.text, news.turn) == ("news: found", 2)
    assert trio.current_time() - before == pytest.approx(60)
    assert [session.tree[task].mode for task in session.tree] == ["root", "detached"]


async def test_the_receipt_of_a_background_batch_names_its_tasks() -> None:
    receipts: list[Any] = []

    def say(transcript: Transcript) -> str:
        receipts.append(json.loads(transcript[-1].text))
        return "ok"

    model = ScriptedModel([hand_on("a", "b", background=True), say, "x", "y"])
    editor = Agent("editor", model=model, delegates=[worker(seconds=5)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(editor) as session:
            await session.ask("go")

    assert receipts[0]["status"] == "dispatched"
    assert [task["path"] for task in receipts[0]["tasks"]] == [
        "/editor/worker[1]",
        "/editor/worker[2]",
    ]


async def test_without_a_wish_a_session_that_can_be_told_later_detaches() -> None:
    model = ScriptedModel([hand_on("a"), "on its way", "news"])
    editor = Agent("editor", model=model, delegates=[worker(seconds=5)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(editor) as session:
            await session.ask("go")

            assert session.tree.counts() == {"waiting": 1, "running": 1}


async def test_a_child_of_a_detached_task_is_joined() -> None:
    """A child ends with its one turn, so nothing can be delivered to it later."""
    middle = Agent(
        "middle",
        model=ScriptedModel([hand_on("leaf", background=True), "up"]),
        delegates=[worker("leaf")],
    )
    model = ScriptedModel([hand_on("a", background=True), "on its way", "news"])
    top = Agent("top", model=model, delegates=[middle])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(top) as session:
            await session.ask("go")
            await session.wait_idle()

    modes = {session.tree[task].path: session.tree[task].mode for task in session.tree}
    assert modes["/top/middle[1]"] == "detached"
    assert modes["/top/middle[1]/leaf[1]"] == "joined"


async def test_wait_idle_returns_after_all_tasks_and_replies() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(chatty()) as session:
            await session.wait_idle()
            await session.ask("look it up")
            await session.wait_idle()

            assert session.replies.receive_nowait().text == "news: found"


async def test_completions_that_are_due_together_make_one_turn() -> None:
    told: list[list[str]] = []

    def report(transcript: Transcript) -> str:
        told.append([m.text for m in transcript if isinstance(m, UserMessage)][1:])
        return "thanks"

    model = ScriptedModel([hand_on("a", "b", "c", background=True), "wait", report])
    editor = Agent("editor", model=model, delegates=[worker(seconds=5)])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(editor) as session:
            await session.ask("go")
            await session.wait_idle()

    assert [len(news) for news in told] == [3]
    assert len(facts(journal.entries, TurnStarted)) == 2


async def test_a_completion_can_be_understood_without_any_history() -> None:
    told: list[str] = []

    def report(transcript: Transcript) -> str:
        told.append(transcript[-1].text)
        return "thanks"

    model = ScriptedModel([hand_on("find the sea", background=True), "wait", report])
    editor = Agent("editor", model=model, delegates=[worker(seconds=5, says="Found.")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(editor) as session:
            await session.ask("go")
            await session.wait_idle()

    for part in (
        "/editor/worker[1]",
        "Goal: find the sea",
        "Outcome: succeeded after 5.0 s",
        "in turn 1",
        "Output:\nFound.",
    ):
        assert part in told[0]


async def test_a_message_during_a_turn_starts_the_next_one() -> None:
    model = ScriptedModel(["first", "second"], seconds=10)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(Agent("a", model=model)) as session:
            replies: dict[str, str] = {}

            async def ask(text: str) -> None:
                replies[text] = (await session.ask(text)).text

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "one")
                await trio.sleep(5)
                nursery.start_soon(ask, "two")

    assert replies == {"one": "first", "two": "second"}


async def test_a_question_is_answered_after_its_caller_gave_up() -> None:
    model = ScriptedModel(["late"], seconds=10)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(Agent("a", model=model)) as session:
            with trio.move_on_after(1):
                await session.ask("go")

            assert (await session.replies.receive()).text == "late"


async def test_a_failed_turn_is_a_reply_and_the_session_goes_on() -> None:
    model = ScriptedModel([ModelError("HTTP 500"), "better"])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(Agent("a", model=model)) as session:
            failed = await session.ask("go")
            better = await session.ask("again")

    assert failed.outcome.ending is Ending.FAILED
    assert failed.outcome.cause is Cause.MODEL
    assert better.text == "better"


async def test_sessions_are_notified_only_of_their_own_tasks() -> None:
    async with open_orchestrator(":memory:") as orchestrator:

        async def talk(number: int) -> None:
            helper = worker(seconds=number % 7, says=f"for {number}")
            agent = Agent("chatty", model=chatty().model, delegates=[helper])
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
                await session.wait_idle()
                assert session.replies.receive_nowait().text == f"news: for {number}"

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(talk, number)


async def test_leaving_a_session_keeps_its_tasks_and_delivers_later() -> None:
    agent = chatty(seconds=60)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("look it up")
        await trio.sleep(100)
        async with orchestrator.open_session(agent, session=session.id) as again:
            news = await again.replies.receive()

    assert news.text == "news: found"


async def test_a_turn_that_ends_behind_a_closed_door_is_delivered_at_the_next() -> None:
    agent = Agent("slow", model=ScriptedModel(["at last"], seconds=60))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            with trio.move_on_after(1):
                await session.ask("go")
        await trio.sleep(100)
        async with orchestrator.open_session(agent, session=session.id) as again:
            assert again.replies.receive_nowait().text == "at last"


async def test_every_turn_records_the_capability_of_its_door() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(chatty()) as session:
            await session.ask("go")
        await orchestrator.run(Agent("solo", model=ScriptedModel(["x"])), "go")

    assert [turn.capability for turn in facts(journal.entries, TurnStarted)] == [
        DeliveryCapability.PUSH,
        DeliveryCapability.NONE,
    ]


async def test_a_session_is_open_once() -> None:
    agent = chatty()
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            with pytest.raises(SessionOpenError, match=session.id):
                async with orchestrator.open_session(agent, session=session.id):
                    pass


@pytest.mark.realtime
async def test_an_unknown_session_cannot_be_opened() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with pytest.raises(UnknownIdError, match="there is no session 'r_none'"):
            async with orchestrator.open_session(chatty(), session="r_none"):
                pass


async def test_a_session_goes_on_with_the_agent_it_began_with() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(chatty()) as session:
            pass
        with pytest.raises(UnknownIdError, match="talks to agent 'chatty'"):
            async with orchestrator.open_session(worker(), session=session.id):
                pass


async def test_closing_the_orchestrator_interrupts_and_does_not_end() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(chatty(seconds=60)) as session:
            await session.ask("look it up")

    assert facts(journal.entries, TaskSettled) == []
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(chatty(), session=session.id) as again:
            assert (await again.replies.receive()).text == "news: found"
