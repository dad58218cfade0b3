"""The kit for tests: faults come when they are ordered, and what is wrong is found and shown."""

import math
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import trio
from msgspec.structs import replace

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    DefinitionError,
    ScriptedModel,
    ToolCall,
    Transcript,
    UserMessage,
    tool,
)
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.delegation import Ending, Mode, Outcome, Rules
from orchestrator.delegation.events import (
    DeliveryFailed,
    Entry,
    Event,
    ModelAnswered,
    ReplyDelivered,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TurnEnded,
    TurnStarted,
)
from orchestrator.testing import (
    CrashedError,
    CrashingJournal,
    Harness,
    assert_laws,
    assert_tree,
    drop_deliveries,
    facts,
    faulty,
    hand_on,
    laws_of,
    recorded,
    slow,
)
from orchestrator.testing.fixtures import harness as harness_fixture

harness = harness_fixture
"""As a conftest has it: `from orchestrator.testing.fixtures import harness`."""


def team(seconds: float = 1) -> Agent:
    """Return an editor that goes on from wherever a crash left it."""

    def lead(transcript: Transcript) -> str | ToolCall:
        is_new = isinstance(transcript[-1], UserMessage)
        return hand_on("a", "b", background=False) if is_new else "both are there"

    helper = Agent("helper", model=ScriptedModel.always("done", seconds))
    return Agent("editor", model=ScriptedModel.always(lead), delegates=[helper])


def test_the_kit_needs_no_pytest() -> None:
    """A demonstration with scripted models has no provider installed."""
    code = "import sys, orchestrator.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


# Faults


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (429, "rate_limit"),
        (500, "overloaded"),
        (401, "auth"),
        ("timeout", "timeout"),
        ("malformed", "malformed"),
    ],
)
async def test_a_fault_ends_a_task_as_the_provider_s_would(
    fault: int, kind: str, harness: Harness
) -> None:
    model = faulty(ScriptedModel.always("fine"), [fault])
    run = await harness.run(Agent("a", model=model), "go")
    again = await harness.run(Agent("a", model=model), "go")

    assert (run.outcome.ending, run.outcome.kind) == (Ending.FAILED, kind)
    assert again.output == "fine"


async def test_injected_faults_are_retried(harness: Harness) -> None:
    model = faulty(ScriptedModel(["fine"]), [429, None, 500, "timeout"], retry_after=100)
    run = await harness.run(Agent("a", model=with_retries(model)), "go")

    assert run.output == "fine"
    # What the 429 asked for.
    assert 100 <= trio.current_time() < 101


async def test_garbage_is_repaired_once_and_then_a_failure(harness: Harness) -> None:
    once = faulty(ScriptedModel(["[1]"]), ["garbage"])
    twice = faulty(ScriptedModel([]), ["garbage", "garbage"])

    assert (await harness.run(Agent("a", model=once, output=list[int]), "go")).output == [1]
    run = await harness.run(Agent("a", model=twice, output=list[int]), "go")
    assert run.outcome.ending is Ending.FAILED
    assert run.outcome.schema_errors


async def test_an_error_instance_can_be_a_fault(harness: Harness) -> None:
    model = faulty(ScriptedModel([]), [RuntimeError("out of cheese")])
    run = await harness.run(Agent("a", model=model), "go")

    assert "out of cheese" in run.outcome.error


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'explosion' is not a fault"):
        faulty(ScriptedModel([]), ["explosion"])  # type: ignore[list-item]


async def test_a_slow_tool_takes_its_time(harness: Harness) -> None:
    @tool
    async def look() -> str:
        await trio.lowlevel.checkpoint()
        return "seen"

    model = ScriptedModel([ToolCall("look"), "done"])
    await harness.run(Agent("a", model=model, tools=[slow(look, 30)]), "go")

    assert trio.current_time() == pytest.approx(30)


async def test_deliveries_that_are_dropped_are_made_again(harness: Harness) -> None:
    worker = Agent("worker", model=ScriptedModel.always("done", 10))
    model = ScriptedModel([hand_on("a", background=True), "on its way", "it is done"])
    lead = Agent("lead", model=model, delegates=[worker])
    async with harness.open() as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            door = drop_deliveries(session, 2)
            reply = await session.replies.receive()

    assert reply.text == "it is done"
    assert door.attempts == pytest.approx([10, 11, 13])
    assert len(harness.facts(DeliveryFailed)) == 2
    assert len(harness.facts(ReplyDelivered)) == 2


async def test_a_reply_that_is_always_dropped_goes_to_the_next_door(harness: Harness) -> None:
    agent = Agent("a", model=ScriptedModel(["hello"]))
    async with harness.open() as orchestrator:
        async with orchestrator.open_session(agent) as session:
            drop_deliveries(session, math.inf)
            with trio.move_on_after(1_000):
                await session.ask("go")
        async with orchestrator.open_session(agent, session=session.id) as again:
            assert (await again.replies.receive()).text == "hello"


# Recorded models


@pytest.mark.realtime
async def test_a_recorded_model_asks_the_first_time_only(tmp_path: Path) -> None:
    """A cassette is read in a thread, so this runs on the real clock."""
    harness, file = Harness(), tmp_path / "cassettes" / "hello.jsonl"
    first = Agent("a", model=recorded(file, ScriptedModel(["hello"])))
    assert (await harness.run(first, "go")).output == "hello"
    later = Agent("a", model=recorded(file, ScriptedModel([])))
    assert (await harness.run(later, "go")).output == "hello"
    other = await harness.run(Agent("a", model=recorded(file)), "something else")

    assert other.outcome.ending is Ending.FAILED
    assert "this request was not recorded" in other.outcome.error


# Crashes


async def test_a_crashed_run_does_not_block_the_next_one() -> None:
    whole = Harness()
    await whole.run(team(), "go")

    for length in range(1, len(whole.entries)):
        harness = Harness()
        async with harness.open(crash_after=length) as orchestrator:
            await orchestrator.run(team(), "go")
        assert len(harness.entries) == length
        assert (await harness.run(team(), "again")).output == "both are there"
        endings = [turn.outcome.ending for turn in harness.facts(TurnEnded)]
        assert endings == [Ending.SUCCEEDED], length
        harness.assert_laws()


async def test_a_session_that_crashes_goes_on(harness: Harness) -> None:
    async with harness.open(crash_after=8) as orchestrator:
        async with orchestrator.open_session(team()) as session:
            await session.ask("go")
    async with harness.open() as orchestrator:
        async with orchestrator.open_session(team(), session=session.id) as session:
            await session.wait_idle()
            replies = [session.replies.receive_nowait()]

    assert replies[-1].outcome.succeeded
    assert len(harness.facts(TaskRequested)) == 2


async def test_a_crash_that_never_comes_fails_the_test() -> None:
    harness = Harness()
    with pytest.raises(AssertionError, match="did not crash: the journal has"):
        async with harness.open(crash_after=1_000) as orchestrator:
            await orchestrator.run(team(), "go")


async def test_a_crashing_journal_raises_crashed() -> None:
    journal = CrashingJournal(MemoryJournal(), after=6)
    with pytest.raises(CrashedError, match="it crashed after entry 6"):
        async with open_orchestrator(journal) as orchestrator:
            await orchestrator.run(team(), "go")

    assert journal.crashed


KILLED = """
import sys, trio
from pathlib import Path
from orchestrator.agents import Agent, ScriptedModel
from orchestrator import open_orchestrator
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal
from orchestrator.testing import CrashingJournal

async def main():
    async with open_sqlite_journal(Path(sys.argv[1])) as kept:
        journal = CrashingJournal(kept, after=5, kill=True)
        async with open_orchestrator(journal) as orchestrator:
            await orchestrator.run(Agent("a", model=ScriptedModel(["hello"])), "go")

trio.run(main)
"""


@pytest.mark.memory_only
@pytest.mark.realtime
async def test_a_process_can_really_be_killed_after_an_entry(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    done = await trio.run_process([sys.executable, "-c", KILLED, str(journal)], check=False)

    assert done.returncode == -signal.SIGKILL
    async with open_orchestrator(journal) as orchestrator:
        (run,) = orchestrator.runs
        tree = await orchestrator.read_tree(run)
    assert_tree(tree, "a interrupted")


# Trees


async def test_assert_tree_compares_only_the_given_fields(harness: Harness) -> None:
    run = await harness.run(team(), "go")

    for expected in (
        """
        editor succeeded
          helper[1] succeeded joined
          helper[2] succeeded joined: b
        """,
        "editor\n  helper[1]\n  helper[2]",
        "editor\n  ...",
        "... succeeded\n  ...\n  helper[2] ... joined",
        "editor\n  ...\n  helper[...] succ...\n  ...",
    ):
        assert_tree(run, expected)


@pytest.mark.parametrize(
    "expected",
    [
        "editor",
        "editor failed\n  ...",
        "editor\n  helper[1]",
        "editor\n  helper[2]\n  helper[1]",
        "editor\n  helper[1] succeeded detached\n  ...",
        "editor\n  helper[1]: something else\n  ...",
        "editor\n  ...\n  helper[3]",
        "editor\n  helper[1]\n    helper[1]\n  helper[2]",
        "editor succeeded root: go and more\n  ...",
        "editor succeeded root extra\n  ...",
        "...\neditor\n  ...\neditor",
    ],
)
async def test_a_tree_that_is_another_one_is_noticed(expected: str, harness: Harness) -> None:
    run = await harness.run(team(), "go")

    with pytest.raises(AssertionError, match="the trees differ"):
        assert_tree(run.tree, expected)


async def test_a_tree_difference_shows_only_the_differing_lines(harness: Harness) -> None:
    run = await harness.run(team(), "go")

    with pytest.raises(AssertionError) as raised:
        assert_tree(run, "editor succeeded\n  helper[1] failed\n  helper[2] succeeded")
    assert str(raised.value).splitlines()[1:] == [
        "  editor succeeded",
        "-   helper[1] failed",
        "+   helper[1] succeeded joined: a",
        "    helper[2] succeeded",
    ]


@pytest.mark.parametrize("text", ["", "editor\n   helper[1]", "editor\n    helper[1]"])
async def test_an_invalid_expected_tree_is_refused(text: str, harness: Harness) -> None:
    run = await harness.run(team(), "go")
    with pytest.raises(DefinitionError):
        assert_tree(run, text)


# Laws


async def entries_of(agent: Agent, rules: Rules | None = None) -> list[Entry]:
    journal = MemoryJournal()
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        await orchestrator.run(agent, "go")
    return journal.entries


def place(entries: list[Entry], kind: type[Event]) -> int:
    return next(at for at, entry in enumerate(entries) if isinstance(entry.event, kind))


async def test_the_facts_of_a_run_break_no_law() -> None:
    assert_laws(await entries_of(team()))


async def test_facts_in_a_wrong_order_are_found() -> None:
    entries = await entries_of(team())
    (first, *_), last = entries, entries[-1]

    assert "comes after a later one" in laws_of([last, first])[0]
    early = replace(last, at=first.at - 1)
    assert any("is dated before" in law for law in laws_of([*entries[:-1], early]))


async def test_a_task_that_is_settled_twice_or_never_is_found() -> None:
    entries = await entries_of(team())
    at = place(entries, TaskSettled)
    twice = replace(entries[-1], seq=99, event=entries[at].event)

    assert any("is settled 2 times" in law for law in laws_of([*entries, twice]))
    never = laws_of([*entries[:at], *entries[at + 1 :]])
    assert any("ends before its joined children" in law for law in never)


async def test_a_child_that_outlives_its_parent_is_found() -> None:
    entries = await entries_of(team())
    settled = [entry for entry in entries if isinstance(entry.event, TaskSettled)]
    others = [entry for entry in entries if entry not in settled]

    laws = laws_of([*others, *settled])
    assert any("TurnEnded" in law and "joined children" in law for law in laws)


async def test_laws_report_a_task_that_acts_without_running() -> None:
    entries = await entries_of(team())
    at = place(entries, TaskRequested)
    request = entries[at].event
    assert isinstance(request, TaskRequested)
    queued = replace(entries[at], event=replace(request, started=False))

    laws = laws_of([*entries[:at], queued, *entries[at + 1 :]])
    assert any("acts while it does not run" in law for law in laws)


async def test_more_tasks_than_may_work_are_found() -> None:
    entries = await entries_of(team())

    for rules, problem in (
        (Rules(live_tasks=1), "2 tasks work, of 1 that may"),
        (Rules(live_children=1), "2 tasks of one parent run, of 1 that may"),
        (Rules(depth=0), "is 1 levels deep"),
    ):
        assert any(problem in law for law in laws_of(entries, rules)), problem


async def test_usage_that_does_not_add_up_and_a_budget_that_is_passed_are_found() -> None:
    entries = await entries_of(attrs.evolve(team(), budget=Budget(calls=4, tasks=2)))
    assert_laws(entries)
    at = place(entries, SessionOpened)
    opened = entries[at].event
    assert isinstance(opened, SessionOpened)

    for budget, problem in (
        (Budget(calls=3), "4 calls of 3"),
        (Budget(tasks=1), "2 tasks of 1"),
        (Budget(tokens=2), "tokens of 2"),
        (Budget(depth=0), "is too deep for"),
    ):
        tight = replace(entries[at], event=replace(opened, budget=budget))
        laws = laws_of([*entries[:at], tight, *entries[at + 1 :]])
        assert any(problem in law for law in laws), problem


async def test_mail_that_is_read_twice_and_a_turn_that_ends_twice_are_found() -> None:
    entries = await entries_of(team())
    for kind, problem in ((TurnStarted, "reads mail again"), (TurnEnded, "a turn again")):
        again = replace(entries[-1], seq=99, event=entries[place(entries, kind)].event)
        assert any(problem in law for law in laws_of([*entries, again]))


async def test_a_house_with_a_broken_law_fails_its_test() -> None:
    harness = Harness(rules=Rules(live_tasks=1))
    await harness.run(team(), "go")
    harness.assert_laws()
    harness.rules = Rules(live_tasks=0)

    with pytest.raises(AssertionError, match="the journal breaks a law"):
        harness.assert_laws()


async def test_facts_are_found_by_their_kind(harness: Harness) -> None:
    await harness.run(team(), "go")

    assert facts(harness.entries, ModelAnswered) == harness.facts(ModelAnswered)
    assert isinstance(harness.facts(ModelAnswered)[0].message, AssistantMessage)
    assert {it.mode for it in harness.facts(TaskRequested)} == {Mode.JOINED}
    assert harness.facts(TurnEnded)[0].outcome == Outcome(Ending.SUCCEEDED, "both are there")
