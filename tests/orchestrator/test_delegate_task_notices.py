"""Notices about detached tasks: complete in themselves, and grouped by turn."""

import re

import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, ModelError, Price, ScriptedModel, Transcript
from orchestrator.delegation.events import TurnStarted
from tests.kit import editor, facts, hand_on, last_text, worker
from tests.orchestrator.delegate_task_kit import handed, long


async def test_news_can_be_understood_without_any_history() -> None:
    told: list[str] = []

    def hear(transcript: Transcript) -> str:
        told.append(last_text(transcript))
        return "thanks"

    price = Price(input=0, output=250_000)
    helper = Agent("helper", model=ScriptedModel(["Found."], 5, price=price))
    call = handed("find the sea", label="sea", background=True)
    agent = editor(call, "wait", hear, delegates=[helper])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
            (task,) = session.tree.children(session.tree.root)

    pattern = (
        r"A task that you delegated in the background has ended: /editor/helper\[1\]"
        rf" \({task}, 'sea'\)\.\n"
        r"Asked: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, in turn 1\.\n"
        r"Goal: find the sea\n"
        r"Outcome: succeeded after 5\.0 s; 5 tokens, \$0\.5000\.\n"
        r"Output:\nFound\."
    )
    assert re.fullmatch(pattern, told[0])


async def test_the_notice_of_a_failure_holds_the_error() -> None:
    helper = Agent("helper", model=ScriptedModel([ModelError("HTTP 401")]))
    agent = editor(hand_on("find the sea", background=True), "wait", last_text, delegates=[helper])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            news = await session.replies.receive()

    assert "Goal: find the sea" in news.text
    assert "Outcome: failed" in news.text
    assert "Error: HTTP 401" in news.text
    assert "Output:" not in news.text


async def test_only_a_cut_notice_says_that_it_is_cut() -> None:
    told: list[str] = []

    def hear(transcript: Transcript) -> str:
        told[:] = [m.text for m in transcript if m.text.startswith("A task")]
        return "thanks"

    def say(transcript: Transcript) -> str:
        return "short" if transcript[0].text == "s" else long(60_000)

    helper = Agent("helper", model=ScriptedModel.always(say, 5))
    # The long one is searched for secrets in a thread, so each may come by itself.
    steps = (hand_on("s", "l", background=True), "wait", hear, hear)
    agent = editor(*steps, delegates=[helper])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    marked = {("Goal: l" in news, "are left out here" in news) for news in told}
    assert marked == {(True, True), (False, False)}


async def test_news_that_is_due_together_makes_one_turn_and_sessions_never_merge() -> None:
    journal = MemoryJournal()
    heard: dict[str, list[str]] = {}
    async with open_orchestrator(journal) as orchestrator:

        async def talk(name: str) -> None:
            def hear(transcript: Transcript) -> str:
                heard.setdefault(name, []).append(
                    "\n".join(m.text for m in transcript if m.text.startswith("A task"))
                )
                return "thanks"

            agent = editor(
                hand_on(f"{name}1", f"{name}2", f"{name}3", background=True),
                "wait",
                hear,
                delegates=[worker(seconds=5)],
            )
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
                await session.wait_idle()

        async with trio.open_nursery() as nursery:
            for name in "abcdefgh":
                nursery.start_soon(talk, name)

    assert len(facts(journal.entries, TurnStarted)) == 2 * 8
    for name, (news,) in heard.items():
        told = sorted(re.findall(r"Goal: (\w+)", news))
        assert told == [f"{name}{number}" for number in (1, 2, 3)]


async def test_news_that_comes_later_makes_a_turn_of_its_own() -> None:
    journal = MemoryJournal()
    agent = editor(
        [hand_on("a", agent="fast", background=True), hand_on("b", agent="slow", background=True)],
        "wait",
        "first",
        "second",
        delegates=[worker("fast", seconds=5), worker("slow", seconds=50)],
    )
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            assert (await session.replies.receive()).text == "first"
            assert trio.current_time() == 5
            assert (await session.replies.receive()).text == "second"
            assert trio.current_time() == 50
