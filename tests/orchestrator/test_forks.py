"""Forks: a child continues the conversation of its parent, with the same bytes up to its goal."""

import json
from collections import Counter
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from msgspec.structs import replace

from orchestrator import MemoryJournal, Orchestrator, delegate, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    Compaction,
    Message,
    ModelRequest,
    ModelSettings,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    agent,
    deny,
    tool,
)
from orchestrator.delegation import Cause, Ending, ImpossibleEventError, Ledger
from orchestrator.delegation.events import SessionOpened, TaskRequested, TaskSettled
from orchestrator.delegation.ledger.forks import FORK, FORKED
from orchestrator.delegation.snapshot import is_same_state
from orchestrator.delegation.snapshot.capture import take_snapshot
from orchestrator.delegation.snapshot.restore import restore_snapshot
from orchestrator.delegation.snapshot.stored_state import decode_state
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.testing import Harness, SpyModel
from tests.caching_provider import ALL, ANTHROPIC, CacheRules, CachingProvider, wire_request
from tests.kit import FunctionModel, facts, last_text, run, worker
from tests.orchestrator.test_replay import recorded, run_of


def fork(*goals: str, **arguments: Any) -> ToolCall:
    tasks = [{"goal": goal} for goal in goals]
    return ToolCall("delegate_task", {"tasks": tasks, "conversation": "fork"} | arguments)


@tool
async def look(name: str) -> str:
    """Look something up."""
    await trio.lowlevel.checkpoint()
    return f"{name} is blue"


def is_fork(transcript: Transcript | tuple[Message, ...]) -> bool:
    return any(it.text.startswith(FORK) for it in transcript)


def thinker(*steps: Any, answer: Any = "seen", **options: Any) -> Agent:
    """Return an agent that follows its steps, and whose forks answer at once."""

    def step(transcript: Transcript) -> Any:
        if is_fork(transcript):
            return answer(transcript) if callable(answer) else answer
        said = steps[sum(isinstance(it, AssistantMessage) for it in transcript)]
        return said(transcript) if callable(said) else said

    model = SpyModel(ScriptedModel.always(step))
    return Agent("thinker", model=model, forks=True, tools=[look], **options)


def requests_of(it: Agent) -> list[ModelRequest]:
    model: Any = it.model
    requests: list[ModelRequest] = model.requests
    return requests


async def test_fork_has_read_the_conversation_and_gets_its_own_goal() -> None:
    lead = thinker(ToolCall("look", {"name": "sky"}), fork("a", "b"), "done")

    ended = await run(lead, "Think.")

    forks = [it.transcript for it in requests_of(lead) if is_fork(it.transcript)]
    assert {it[-1].text for it in forks} == {f"{FORK}a", f"{FORK}b"}
    for transcript in forks:
        assert [it.text for it in transcript[:3]] == ["Think.", "", "sky is blue"]
        call, answer = transcript[3:5]
        assert isinstance(call, AssistantMessage)
        assert isinstance(answer, ToolMessage)
        assert (answer.call, answer.text) == (call.calls[0].id, FORKED)
    assert [ended.tree[it].chosen for it in ended.tree.children(ended.tree.root)] == [
        "fork of the conversation"
    ] * 2
    assert "seen" in requests_of(lead)[-1].transcript[-1].text


def plain(value: Any) -> Any:
    """Return the wire format without the marks of a cache, which move on."""
    if isinstance(value, dict):
        return {key: plain(it) for key, it in value.items() if key != "cache_control"}
    return [plain(it) for it in value] if isinstance(value, list) else value


@pytest.mark.parametrize("rules", ALL, ids=lambda rules: rules.model)
@pytest.mark.parametrize("depth", [1, 2])
async def test_request_of_a_fork_is_identical_up_to_the_fork(rules: CacheRules, depth: int) -> None:
    """Also the fork of a fork, and of an agent that may delegate, schedule and hand off."""

    def again(transcript: Transcript) -> Any:
        forks = sum(it.text.startswith(FORK) for it in transcript)
        return fork("deeper") if forks < depth and last_text(transcript) == f"{FORK}a" else "seen"

    lead = thinker(
        ToolCall("look", {"name": "sky"}),
        fork("a"),
        "done",
        answer=again,
        instructions=lambda _: "Be brief.",
        delegates=[worker()],
        handoff=True,
        schedules=True,
        settings=ModelSettings(prompt_caching=True, temperature=0.5),
    )
    await run(lead, "Think.")

    requests = requests_of(lead)
    (forked,) = [it for it in requests if last_text(it.transcript) == f"{FORK}a"]
    before = requests[1]
    theirs, ours = (plain(wire_request(rules, it)) for it in (before, forked))
    for body in (theirs, ours):
        body["conversation"] = body.pop("messages", None) or body.pop("input")
    length = len(theirs["conversation"])
    assert json.dumps(ours["conversation"][:length]) == json.dumps(theirs["conversation"])
    rest = [
        {key: it for key, it in body.items() if key != "conversation"} for body in (ours, theirs)
    ]
    assert json.dumps(rest[0]) == json.dumps(rest[1])
    if depth == 2:
        (deeper,) = [it for it in requests if last_text(it.transcript) == f"{FORK}deeper"]
        assert [it.description for it in deeper.tools] == [it.description for it in before.tools]
        assert deeper.transcript[: len(forked.transcript)] == forked.transcript


class ForkingProvider(CachingProvider):
    """The caching provider, which forks its first answer."""

    def __init__(self, rules: CacheRules, call: ToolCall) -> None:
        super().__init__(rules)
        self._call = call

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        said = await super().answer(request)
        is_first = len(request.transcript) == 1
        return AssistantMessage("", (self._call,), said.usage, said.model) if is_first else said


@pytest.mark.parametrize("rules", ALL, ids=lambda rules: rules.model)
async def test_ten_forks_of_a_long_conversation_cost_at_most_twice_one_input(
    rules: CacheRules,
) -> None:
    goals = [f"part {number}" for number in range(10)]
    provider = ForkingProvider(rules, fork(*goals))
    settings = ModelSettings(prompt_caching=True if rules is ANTHROPIC else None)
    lead = Agent("lead", model=provider, forks=True, settings=settings)

    await run(lead, "All of it is in the minutes of the meeting.\n" * 4_600)

    first, *forks = provider.answered[:11]
    assert first.input_tokens > 50_000
    once = rules.price.cost_of(input_tokens=first.input_tokens, output_tokens=0)
    paid = sum(provider.price.applied_to(usage).micro_usd for usage in forks)
    assert len(forks) == 10
    assert paid <= 2 * once


async def test_fork_needs_no_delegates_and_names_no_agent() -> None:
    wrong = fork("a", agent="worker")
    lead = thinker(wrong, last_text, delegates=[worker(), worker("other")])

    assert "leave out agent" in (await run(lead)).output


async def test_fork_leaves_out_the_only_delegate() -> None:
    lead = thinker(fork("a"), "done", delegates=[worker()])

    ended = await run(lead)

    assert [ended.tree[it].agent for it in ended.tree] == ["thinker", "thinker"]


async def test_fork_obeys_the_rules_and_budgets_of_its_parent() -> None:
    def use(transcript: Transcript) -> Any:
        return (
            ToolCall("look", {"name": "sea"})
            if last_text(transcript).startswith(FORK)
            else last_text(transcript)
        )

    lead = thinker(fork("a"), last_text, answer=use, approve=[deny("look", reason="not now")])
    assert "not now" in (await run(lead)).output

    poor = thinker(fork("a", "b", "c"), last_text, budget=Budget(calls=2))
    assert (await run(poor)).outcome.cause is Cause.BUDGET


async def test_fork_is_cancelled_with_its_parent() -> None:
    async def think(request: ModelRequest) -> str | AssistantMessage:
        if is_fork(request.transcript):
            await trio.sleep_forever()
        return AssistantMessage("", (fork("a"),))

    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with trio.move_on_after(5):
            await orchestrator.run(Agent("lead", model=FunctionModel(think), forks=True), "go")

    (settled,) = facts(journal.entries, TaskSettled)
    assert settled.outcome.ending is Ending.CANCELLED


async def test_request_has_the_length_and_not_the_text_of_the_conversation() -> None:
    journal = MemoryJournal()
    long = "minutes " * 5_000
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(thinker(fork(*"abcdefghij"), "done"), long)

    requests = [it.request for it in facts(journal.entries, TaskRequested)]
    assert [it.fork for it in requests] == [2] * 10
    assert all(long not in str(it) for it in requests)


def forking_team(asked: Counter[str]) -> Agent:
    def lead(transcript: Transcript) -> Any:
        asked["fork" if is_fork(transcript) else "lead"] += 1
        if is_fork(transcript):
            assert [it.text for it in transcript] == [
                "go",
                "",
                "sky is blue",
                "",
                FORKED,
                transcript[-1].text,
            ]
            return f"{last_text(transcript)[-1]} seen"
        answers = sum(isinstance(it, AssistantMessage) for it in transcript)
        steps = [ToolCall("look", {"name": "sky"}), fork("a", "b")]
        return (
            steps[answers] if answers < 2 else " ".join(sorted(last_text(transcript).split("seen")))
        )

    return Agent(
        "lead", model=ScriptedModel.always(lead), forks=True, tools=[look], budget=Budget(calls=50)
    )


async def test_crash_after_any_fact_continues_the_forks() -> None:
    whole = Harness()
    expected = await whole.run(forking_team(Counter()), "go")
    assert expected.outcome.succeeded
    first = next(it.seq for it in whole.entries if isinstance(it.event, SessionOpened)) + 2
    for length in range(first, len(whole.entries)):
        harness, asked = Harness(), Counter[str]()
        async with harness.open(crash_after=length) as orchestrator:
            await orchestrator.run(forking_team(Counter()), "go")
        (opened,) = harness.facts(SessionOpened)
        async with harness.open() as orchestrator:
            again = await orchestrator.resume(forking_team(asked), opened.session)

        assert again.outcome.succeeded, length
        assert len(harness.facts(TaskRequested)) == 2
        harness.assert_laws()


def test_replay_repeats_forks() -> None:
    assert replay_sync(run_of(forking_team(Counter())), forking_team(Counter())).is_same


@pytest.mark.realtime
async def test_transcript_of_a_fork_that_ended_has_the_conversation() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        ended = await orchestrator.run(thinker(fork("a"), "done"), "Think.")
        (task,) = ended.tree.children(ended.tree.root)
        transcript = await orchestrator.read.transcript(task)

    assert [it.text for it in transcript] == ["Think.", "", FORKED, f"{FORK}a", "seen"]


async def test_detached_fork_goes_on_while_its_session_does() -> None:
    lead = thinker(fork("a", background=True), "later", "told", "again", "again")
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("Think.")
            await session.wait_idle()
            (task,) = session.tree.children(session.tree.root)

            assert session.tree[task].status is Ending.SUCCEEDED


async def test_fork_is_shortened_to_the_window_of_its_agent() -> None:
    read: list[int] = []

    def step(transcript: Transcript) -> Any:
        said = last_text(transcript)
        if is_fork(transcript):
            read.append(sum(len(it.text) for it in transcript))
            return "seen"
        if said == "Think.":
            return ToolCall("look", {"name": "sky " * 4_000})
        return fork("a") if said.endswith("blue") else "done"

    summarizer = ScriptedModel.always("It is blue.")
    compaction = Compaction(window=8_000, summarizer=summarizer, keep_last=2)
    model = ScriptedModel.always(step)
    lead = Agent("lead", model=model, forks=True, tools=[look], compaction=compaction)

    ended = await run(lead, "Think.")

    assert ended.outcome.succeeded
    assert read[0] < 12_000


def test_snapshot_stores_a_forked_conversation_once() -> None:
    long = "minutes " * 5_000
    sizes: list[int] = []
    for goals in ("a", "abcdefghij"):
        lead = thinker(fork(*goals), "done")
        entries = recorded(partial(Orchestrator.run, agent=lead, goal=long))
        ledger = Ledger()
        for entry in entries:
            if isinstance(entry.event, TaskSettled):
                break
            ledger.fold(entry)
        (session,) = ledger.sessions.values()
        snapshot = take_snapshot(ledger, session)
        restored = restore_snapshot(snapshot)
        assert is_same_state(take_snapshot(restored, restored.sessions[session.id]), snapshot)
        for id_, task in ledger.tasks.items():
            assert restored.tasks[id_].transcript == task.transcript
            assert restored.tasks[id_].first_step == task.first_step
        sizes.append(len(msgspec.json.encode(decode_state(snapshot.state))))

    assert sizes[1] < 2 * sizes[0]


async def test_program_puts_its_conversation_before_the_goal() -> None:
    model = SpyModel("so")
    child = Agent("writer", model=model)

    @agent
    async def chat(goal: str) -> str:
        return await delegate(child, f"Answer: {goal}", conversation="fork")

    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(chat) as session:
            await session.ask("Hello")
            await session.ask("And now?")

    assert model.texts[-1][0] == "Hello"
    assert model.texts[-1][-2:] == ["And now?", "Answer: And now?"]


def test_agent_without_forks_has_no_such_argument() -> None:
    assert Agent("a", model="m:x", delegates=[worker()]).plan.task_options == ()
    assert Agent("a", model="m:x", forks=True).plan.task_options == ("conversation",)


async def test_handoff_passes_the_conversation_anyway() -> None:
    call = ToolCall("delegate_task", {"goal": "a", "handoff": True, "conversation": "fork"})
    lead = thinker(call, last_text, delegates=[worker(), worker("other")], handoff=True)

    assert "leave out conversation" in (await run(lead)).output


def test_snapshot_of_a_fork_whose_parent_began_anew_has_its_own_messages() -> None:
    ledger = Ledger()
    for entry in run_of(thinker(fork("a"), "done")):
        if isinstance(entry.event, TaskSettled):
            break
        ledger.fold(entry)
    (session,) = ledger.sessions.values()
    session.root.transcript = session.root.transcript[:1]

    restored = restore_snapshot(take_snapshot(ledger, session))

    for id_, task in ledger.tasks.items():
        assert restored.tasks[id_].transcript == task.transcript


def test_request_that_continues_unknown_messages_is_impossible() -> None:
    ledger = Ledger()
    for entry in run_of(thinker(fork("a"), "done")):
        if not isinstance(entry.event, TaskRequested):
            ledger.fold(entry)
            continue
        asked = replace(entry.event, request=replace(entry.event.request, fork=99))
        with pytest.raises(ImpossibleEventError, match="messages that its parent does not have"):
            ledger.fold(replace(entry, event=asked))
        break
