"""The end of a task reaches the model exactly once, also over crashes."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    tool,
)
from orchestrator.delegation import Ending
from orchestrator.delegation.events import (
    TaskRequested,
    TaskSettled,
    ToolAnswered,
    TurnEnded,
    TurnStarted,
)
from tests.kit import continue_session, dispatched, facts, tool_answers
from tests.orchestrator.task_control_kit import (
    Lead,
    background,
    control,
    hold,
    mail_in,
    mail_read,
    on_each,
    on_the,
    sleeper,
)


async def test_a_result_returned_by_wait_sends_no_notice() -> None:
    journal = MemoryJournal()
    lead = Lead(background("10", "20"), on_each("wait"))
    agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
    await hold(agent, journal)

    assert len(facts(journal.entries, TurnStarted)) == 1
    assert lead.notices == []
    assert mail_read(journal.entries) == mail_in(journal.entries)


async def test_a_result_read_during_the_turn_sends_no_notice() -> None:
    @tool
    async def think() -> str:
        await trio.sleep(100)
        return "thought"

    journal = MemoryJournal()
    lead = Lead(background("10", "20"), ToolCall("think"), on_the(0, "result"))
    lead_agent = Agent("lead", model=lead, delegates=[sleeper("worker")], tools=[think])
    await hold(lead_agent, journal)

    # The other one was not read, and wakes the session.
    assert len(lead.notices) == 1
    assert "done 20" in lead.notices[0]
    assert mail_read(journal.entries) == mail_in(journal.entries)


async def test_a_task_that_was_only_listed_still_sends_its_notice() -> None:
    journal = MemoryJournal()
    lead = Lead(background("10", "20"), on_the(1, "wait"), control("list"), "seen the list")
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]), journal)
    listed = {task["goal"]: task["status"] for task in lead.answers[2]["tasks"]}

    assert listed == {"10": "succeeded", "20": "succeeded"}
    assert len(lead.notices) == 1
    assert "done 10" in lead.notices[0]
    assert mail_read(journal.entries) == mail_in(journal.entries)


async def test_two_calls_at_once_may_ask_for_the_same_result() -> None:
    journal = MemoryJournal()

    def both(transcript: Transcript) -> Any:
        ids = dispatched(transcript)
        return [control("wait", *ids), control("wait", *ids), control("result", *ids)]

    lead = Lead(background("10"), both)
    await hold(Agent("lead", model=lead, delegates=[sleeper("worker")]), journal)

    assert sorted(str(answer["status"]) for answer in lead.answers[1:]) == [
        "completed",
        "completed",
        "still_running",
    ]
    assert lead.notices == []
    assert mail_read(journal.entries) == mail_in(journal.entries)


async def test_a_cancelled_wait_keeps_its_notices() -> None:
    journal = MemoryJournal()
    lead = Lead(background("10", "100"), on_each("wait"), "news")
    agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(50)
                await orchestrator.cancel(session.id)
            await session.wait_idle()

    assert len(lead.notices) == 2
    assert mail_read(journal.entries) == mail_in(journal.entries)


async def test_a_message_during_a_wait_starts_the_next_turn() -> None:
    journal = MemoryJournal()
    lead = Lead(background("10"), on_each("wait"), "there it is", "and hello")
    agent = Agent("lead", model=lead, delegates=[sleeper("worker")])
    replies: list[str] = []
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:

            async def ask(text: str) -> None:
                replies.append((await session.ask(text)).text)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "go")
                await trio.sleep(5)
                nursery.start_soon(ask, "hello?")

    assert replies == ["there it is", "and hello"]
    assert mail_read(journal.entries) == mail_in(journal.entries)


def careful_team() -> Agent:
    """Return a lead that waits for one, reads one, cancels one, and is woken by one.

    It is a function of the transcript, so that it goes on wherever a crash left it.
    """

    def lead(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, UserMessage) and last.text != "go":
            return "woken"
        done = tool_answers(transcript)
        ids = dispatched(transcript)
        steps: list[Callable[[], Any]] = [
            lambda: background("2", "4", "1000", "9"),
            lambda: control("wait", *ids[:2], mode="any"),
            lambda: control("wait", ids[1], seconds=1),
            lambda: control("result", ids[0], ids[1]),
            lambda: control("cancel", ids[2]),
            lambda: control("list"),
            lambda: "on it",
        ]
        return steps[len(done)]()

    middle = sleeper("middle")
    return Agent("lead", model=ScriptedModel.always(lead, 0.5), delegates=[middle])


async def test_a_crash_after_any_entry_reports_each_ending_exactly_once() -> None:
    whole = await continue_session(careful_team(), [], takes_replies=True)
    assert len(whole) > 30
    assert sum(len(fact.mail) for fact in facts(whole, ToolAnswered)) == 3
    for length in range(1, len(whole)):
        entries = await continue_session(careful_team(), whole[:length], takes_replies=True)

        assert mail_read(entries) == mail_in(entries), length
        settled = Counter(fact.task for fact in facts(entries, TaskSettled))
        asked = Counter(fact.request.id for fact in facts(entries, TaskRequested))
        assert settled == asked, length
        assert len(asked) == 4, length
        endings = Counter(fact.outcome.ending for fact in facts(entries, TaskSettled))
        assert endings == {Ending.SUCCEEDED: 3, Ending.CANCELLED: 1}, length
        turns = facts(entries, TurnEnded)
        assert all(turn.outcome.succeeded for turn in turns), length


async def test_repeated_crashes_report_each_ending_exactly_once() -> None:
    entries = await continue_session(careful_team(), [], takes_replies=True)
    for length in range(3, len(entries), 5):
        cut = await continue_session(careful_team(), entries[:length], takes_replies=True)
        entries = await continue_session(careful_team(), cut[: length + 4], takes_replies=True)

        assert mail_read(entries) == mail_in(entries), length


async def test_a_turn_that_starts_afresh_reads_its_results_again() -> None:
    """A result that was read by a forgotten turn has not been read."""

    def lead(shown: list[str]) -> Agent:
        def say(transcript: Transcript) -> Any:
            shown.append("".join(said.text for said in transcript))
            if not isinstance(transcript[-1], ToolMessage):
                return "woken" if len(transcript) > 1 else background("2")
            if len(tool_answers(transcript)) == 2:
                return "done"
            return on_each("wait")(transcript)

        return Agent(
            "lead",
            model=ScriptedModel.always(say, 1),
            delegates=[sleeper("worker")],
            on_restart="restart",
        )

    whole = await continue_session(lead([]), [], takes_replies=True)
    (told,) = (
        index
        for index, entry in enumerate(whole)
        if isinstance(entry.event, ToolAnswered) and entry.event.mail
    )
    (first,) = facts(whole, TaskSettled)
    shown: list[str] = []
    entries = await continue_session(lead(shown), whole[: told + 1], takes_replies=True)

    assert all(turn.outcome.succeeded for turn in facts(entries, TurnEnded))
    assert any(first.task in text for text in shown)
