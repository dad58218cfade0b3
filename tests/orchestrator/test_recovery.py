"""Crash after every entry of the journal: nothing is lost, nothing is told twice."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import trio

from agents import (
    Agent,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    tool,
)
from delegation import Ending, SessionId, root_of
from delegation.events import (
    Entry,
    MessageReceived,
    ModelAnswered,
    ReplyDelivered,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TurnEnded,
    TurnStarted,
)
from orchestrator import MemoryJournal, open_orchestrator
from tests.kit import facts, hand_on, worker


def team() -> Agent:
    """Return a parent that joins a nested batch, detaches two, and reports what it hears.

    Its models are functions of the transcript, so that they go on wherever a crash left it.
    """

    def lead(transcript: Transcript) -> Any:
        answered = sum(isinstance(message, ToolMessage) for message in transcript)
        news = [
            message.text
            for message in transcript
            if isinstance(message, UserMessage) and message.text.startswith("A task")
        ]
        if news and not isinstance(transcript[-1], ToolMessage):
            return f"heard {len(news)}"
        steps = [
            hand_on("join", "also join", agent="middle", background=False),
            hand_on("apart", "also apart", agent="slow", background=True),
            "on its way",
        ]
        return steps[answered]

    middle = Agent(
        "middle",
        model=ScriptedModel.always(
            lambda transcript: "up" if len(transcript) > 1 else hand_on("leaf")
        ),
        delegates=[worker("leaf", seconds=1)],
    )
    return Agent(
        "lead",
        model=ScriptedModel.always(lead, 0.5),
        delegates=[middle, worker("slow", seconds=7)],
    )


async def finish(entries: Sequence[Entry]) -> list[Entry]:
    """Open a journal, say the message unless it was said, and wait until all is quiet."""
    journal = MemoryJournal(entries)
    opened = facts(entries, SessionOpened)
    session_id = opened[0].session if opened else None
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(team(), session=session_id) as session:
            if not facts(entries, MessageReceived):
                await session.ask("go")
            await session.wait_idle()
            with suppress(trio.WouldBlock):
                while True:
                    session.replies.receive_nowait()
    return journal.entries


async def test_a_crash_after_any_entry_loses_nothing_and_tells_nothing_twice() -> None:
    whole = await finish([])
    expected = Counter(
        (task.request.agent, task.request.goal) for task in facts(whole, TaskRequested)
    )

    assert len(whole) > 40
    for length in range(1, len(whole)):
        entries = await finish(whole[:length])

        requested = facts(entries, TaskRequested)
        asked_for = Counter(
            (task.request.agent, task.request.goal) for task in requested
        )
        settled = Counter(fact.task for fact in facts(entries, TaskSettled))
        read = Counter(seq for turn in facts(entries, TurnStarted) for seq in turn.mail)
        assert asked_for == expected, length
        assert settled == Counter(task.request.id for task in requested), length
        assert {fact.outcome.ending for fact in facts(entries, TaskSettled)} == {
            Ending.SUCCEEDED
        }, length
        mail = [
            entry.seq
            for entry in entries
            if isinstance(entry.event, MessageReceived)
            or (
                isinstance(entry.event, TaskSettled)
                and is_detached(entries, entry.event)
            )
        ]
        assert read == Counter(mail), length
        ended = Counter(turn.turn for turn in facts(entries, TurnEnded))
        assert ended == Counter(turn.turn for turn in facts(entries, ReplyDelivered)), (
            length
        )
        assert set(ended.values()) == {1}, length
        assert final_answer(entries) == "heard 2", length


def is_detached(entries: Sequence[Entry], settled: TaskSettled) -> bool:
    return any(
        fact.request.id == settled.task and fact.mode.value == "detached"
        for fact in facts(entries, TaskRequested)
    )


def final_answer(entries: Sequence[Entry]) -> str:
    return facts(entries, TurnEnded)[-1].outcome.output


async def test_crash_upon_crash_ends_well() -> None:
    """A journal that is cut again after every few entries still comes to its end."""
    entries = await finish([])
    for length in range(3, len(entries), 7):
        cut = await finish(entries[:length])
        entries = await finish(cut[: length + 5])

        assert final_answer(entries) == "heard 2"


async def test_a_call_whose_effect_is_unknown_is_broken_off_and_not_repeated() -> None:
    runs: list[str] = []

    @tool
    async def launch() -> str:
        runs.append("launch")
        await trio.sleep(60)
        return "launched"

    @tool(idempotent=True)
    async def measure() -> str:
        runs.append("measure")
        await trio.sleep(60)
        return "measured"

    def say(transcript: Transcript) -> Any:
        told = [
            message.text for message in transcript if isinstance(message, ToolMessage)
        ]
        return (
            [ToolCall("launch"), ToolCall("measure")] if not told else "; ".join(told)
        )

    agent = Agent("pilot", model=ScriptedModel.always(say), tools=[launch, measure])
    journal = MemoryJournal()
    with trio.move_on_after(10):
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session.id) as again:
            reply = await again.replies.receive()

    assert sorted(runs) == ["launch", "measure", "measure"]
    assert "its effect is unknown" in reply.text
    assert "measured" in reply.text


async def test_a_run_whose_process_died_is_lost_with_all_its_tasks() -> None:
    """Whoever called was waiting inside the turn, and is gone: there is nobody to tell."""
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(team(), "go")
    run = facts(journal.entries, SessionOpened)[0].session
    middle_of_it = next(
        index
        for index, entry in enumerate(journal.entries)
        if isinstance(entry.event, ModelAnswered) and entry.event.task != root_of(run)
    )

    async with open_orchestrator(
        MemoryJournal(journal.entries[:middle_of_it])
    ) as after:
        tree = after.tree(run)

    assert tree.counts() == {"lost": 3}
    assert "process died" in tree[tree.root]["error"]


async def test_a_task_whose_agent_is_gone_from_the_code_fails_and_says_so() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(team()) as session:
            await session.ask("go")
    changed = Agent("lead", model=ScriptedModel.always("ok"), delegates=[worker("new")])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(changed, session=session.id) as again:
            await again.wait_idle()
            tree = again.tree

    errors = {tree[task]["error"] for task in tree.graph}
    assert "agent 'lead' has no delegate 'slow' any more" in errors


async def test_ids_are_never_used_again() -> None:
    journal = MemoryJournal()
    for _ in range(3):
        async with open_orchestrator(journal) as orchestrator:
            await orchestrator.run(team(), "go")

    opened = [fact.session for fact in facts(journal.entries, SessionOpened)]
    tasks = [fact.request.id for fact in facts(journal.entries, TaskRequested)]
    assert len(set(opened)) == len(opened) == 3
    assert len(set(tasks)) == len(tasks)
    assert SessionId("") not in opened
