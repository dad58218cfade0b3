"""Crash after every entry of the journal: nothing is lost, nothing is told twice."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    CallKey,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    tool,
)
from orchestrator.delegation import Ending, SessionId, root_of
from orchestrator.delegation.events import (
    Entry,
    MessageReceived,
    ModelAnswered,
    ReplyDelivered,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from tests.kit import continue_session, facts, hand_on, worker
from tests.orchestrator import every_kind_kit, every_kind_laws


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
        "lead", model=ScriptedModel.always(lead, 0.5), delegates=[middle, worker("slow", seconds=7)]
    )


async def test_a_crash_after_any_entry_loses_no_task_and_repeats_no_notice() -> None:
    whole = await continue_session(team(), [], takes_replies=True)
    expected = Counter(
        (task.request.agent, task.request.goal) for task in facts(whole, TaskRequested)
    )

    assert len(whole) > 30
    for length in range(1, len(whole)):
        entries = await continue_session(team(), whole[:length], takes_replies=True)

        requested = facts(entries, TaskRequested)
        asked_for = Counter((task.request.agent, task.request.goal) for task in requested)
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
            or (isinstance(entry.event, TaskSettled) and is_detached(entries, entry.event))
        ]
        assert read == Counter(mail), length
        ended = Counter(turn.turn for turn in facts(entries, TurnEnded))
        assert ended == Counter(turn.turn for turn in facts(entries, ReplyDelivered)), length
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
    entries = await continue_session(team(), [], takes_replies=True)
    for length in range(3, len(entries), 7):
        cut = await continue_session(team(), entries[:length], takes_replies=True)
        entries = await continue_session(team(), cut[: length + 5], takes_replies=True)

        assert final_answer(entries) == "heard 2"


def imagined_tools(done: list[str]) -> Sequence[Tool]:
    """Return the tools of the team that is killed for real, without anything real."""

    @tool
    async def launch(tag: str) -> str:
        done.append(tag)
        await trio.sleep(0.001)
        return "launched"

    @tool(idempotent=True)
    async def measure(tag: str) -> str:
        await trio.sleep(0.001)
        return f"measured {tag}"

    @tool
    async def pay(tag: str, key: CallKey) -> str:
        done.append(f"{tag} {key}")
        await trio.sleep(0.001)
        return "paid"

    return launch, measure, pay


async def finish_all_kinds(entries: Sequence[Entry], done: list[str]) -> list[Entry]:
    """Go on with tasks of every kind until nothing is left to be done."""
    journal = MemoryJournal(entries)
    agent = every_kind_kit.team(imagined_tools(done))
    async with open_orchestrator(journal) as orchestrator:
        await every_kind_kit.converse(orchestrator, agent, entries)
    return journal.entries


async def test_a_crash_after_any_entry_harms_no_kind_of_task() -> None:
    """Joined, detached, nested, failing, cancelled, dependent, steered, limited and budgeted ones.

    The same work as that of the process that is really killed, and the same is demanded of it.
    """
    whole = await finish_all_kinds([], [])

    assert len(whole) > 100
    for length in range(1, len(whole)):
        done: list[str] = []
        entries = await finish_all_kinds(whole[:length], done)

        every_kind_laws.check_journal(entries)
        begun_before = {
            call.arguments["tag"]
            for _, call, _ in every_kind_laws.calls_of(whole[:length])
            if call.name == "launch"
        }
        assert begun_before.isdisjoint(done), length
        assert len(done) == len(set(done)), length


async def test_crash_upon_crash_harms_no_kind_of_task() -> None:
    whole = await finish_all_kinds([], [])
    for length in range(3, len(whole), 11):
        cut = await finish_all_kinds(whole[:length], [])
        entries = await finish_all_kinds(cut[: length + 9], [])

        every_kind_laws.check_journal(entries)


OnRestart: TypeAlias = Literal["resume", "restart", "lose"]


def surveyor(on_restart: OnRestart, runs: list[str]) -> Agent:
    """Return an agent that measures, has a leaf look for a minute, and reports."""

    @tool(idempotent=True)
    async def measure() -> str:
        runs.append("measure")
        await trio.sleep(1)
        return "measured"

    def survey(transcript: Transcript) -> Any:
        answered = sum(isinstance(message, ToolMessage) for message in transcript)
        return [ToolCall("measure"), hand_on("look", background=False), "surveyed"][answered]

    return Agent(
        "surveyor",
        model=ScriptedModel.always(survey),
        tools=[measure],
        delegates=[worker("leaf", seconds=60)],
        on_restart=on_restart,
    )


def says_what_it_hears(transcript: Transcript) -> Any:
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return "on its way"
    if last.text.startswith("A task"):
        return next(line for line in last.text.splitlines() if line.startswith("Outcome"))
    return hand_on("survey it", background=True)


@pytest.mark.parametrize(
    ("on_restart", "measured", "endings"),
    [
        ("resume", 1, {"surveyor": ["succeeded"], "leaf": ["succeeded"]}),
        ("restart", 2, {"surveyor": ["succeeded"], "leaf": ["lost", "succeeded"]}),
        ("lose", 1, {"surveyor": ["lost"], "leaf": ["lost"]}),
    ],
)
async def test_on_restart_decides_the_fate_of_an_interrupted_task(
    on_restart: OnRestart, measured: int, endings: dict[str, list[str]]
) -> None:
    """It goes on from its last step, begins anew and asks again, or ends as lost."""
    runs: list[str] = []
    lead = Agent(
        "lead",
        model=ScriptedModel.always(says_what_it_hears),
        delegates=[surveyor(on_restart, runs)],
    )
    journal = MemoryJournal()
    with trio.move_on_after(10):
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(lead) as session:
                await session.ask("go")
                await session.wait_idle()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(lead, session=session.id) as again:
            heard = (await again.replies.receive()).text

    agents = {fact.request.id: fact.request.agent for fact in facts(journal.entries, TaskRequested)}
    settled: dict[str, list[str]] = {}
    for fact in facts(journal.entries, TaskSettled):
        settled.setdefault(agents[fact.task], []).append(fact.outcome.ending.value)
    assert settled == endings
    assert len(runs) == measured
    assert heard.startswith(f"Outcome: {endings['surveyor'][0]}")
    afresh = [fact.afresh for fact in facts(journal.entries, TaskStarted)]
    assert any(afresh) == (on_restart == "restart")


@pytest.mark.parametrize(
    ("on_restart", "measured", "reply"),
    [
        ("resume", 1, "surveyed"),
        ("restart", 2, "surveyed"),
        ("lose", 1, "lost: its process died before it had ended"),
    ],
)
async def test_on_restart_decides_the_fate_of_an_interrupted_turn(
    on_restart: OnRestart, measured: int, reply: str
) -> None:
    runs: list[str] = []
    agent = surveyor(on_restart, runs)
    journal = MemoryJournal()
    with trio.move_on_after(10):
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session.id) as again:
            assert (await again.replies.receive()).text == reply

    assert len(runs) == measured
    assert len(facts(journal.entries, TurnEnded)) == 1
    afresh = [fact.afresh for fact in facts(journal.entries, TurnResumed)]
    assert any(afresh) == (on_restart == "restart")


async def test_a_call_with_an_unknown_effect_is_broken_off_and_not_repeated() -> None:
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
        told = [message.text for message in transcript if isinstance(message, ToolMessage)]
        return [ToolCall("launch"), ToolCall("measure")] if not told else "; ".join(told)

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


class SlowJournal(MemoryJournal):
    """A journal that takes a second to keep what it is given."""

    durable = 0

    async def wait_durable(self, seq: int) -> None:
        await trio.sleep(1)
        self.durable = max(self.durable, seq)


async def test_a_tool_with_a_key_runs_when_its_call_is_known_for_ever() -> None:
    """A model that is asked again after a crash may call something else.

    What was done under a key that no journal has is done, and not recorded.
    """
    journal = SlowJournal()
    is_known: list[bool] = []

    @tool
    async def pay(key: CallKey) -> str:
        calls = [
            entry.seq
            for entry in journal.entries
            if isinstance(entry.event, ModelAnswered)
            and any(key.endswith(f"/{call.id}") for call in entry.event.message.calls)
        ]
        is_known.append(calls[0] <= journal.durable)
        await trio.lowlevel.checkpoint()
        return "paid"

    agent = Agent("payer", model=ScriptedModel([ToolCall("pay"), "done"]), tools=[pay])
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(agent, "go")

    assert is_known == [True]


async def test_a_run_of_a_killed_process_is_interrupted_with_all_its_tasks() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(team(), "go")
    run = facts(journal.entries, SessionOpened)[0].session
    middle_of_it = next(
        index
        for index, entry in enumerate(journal.entries)
        if isinstance(entry.event, ModelAnswered) and entry.event.task != root_of(run)
    )

    left = MemoryJournal(journal.entries[:middle_of_it])
    async with open_orchestrator(left) as after:
        tree = after.tree(run)

    assert tree.counts() == {"interrupted": 3}
    assert facts(left.entries, TurnEnded) == []


async def test_a_task_fails_if_its_agent_is_gone_from_the_code() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(team()) as session:
            await session.ask("go")
    changed = Agent("lead", model=ScriptedModel.always("ok"), delegates=[worker("new")])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(changed, session=session.id) as again:
            await again.wait_idle()
            tree = again.tree

    errors = {tree[task].error for task in tree}
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
