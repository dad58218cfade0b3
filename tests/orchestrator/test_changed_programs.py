"""A pipeline that is resumed with changed code repeats no finished task without a word."""

import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from orchestrator import (
    Agent,
    MemoryJournal,
    Orchestrator,
    Run,
    ScriptedModel,
    agent,
    delegate,
    map_each,
    open_orchestrator,
)
from orchestrator.agents import Pipeline
from orchestrator.delegation import Cause, Ending
from orchestrator.delegation.events import (
    Entry,
    TaskRequested,
    TaskSettled,
    TurnInterrupted,
    TurnResumed,
)
from orchestrator.ports.errors import ChangedProgramError
from tests.kit import facts

PROGRAM = Path(__file__).with_name("changed_payroll.py")


class Payroll:
    """The program in a process of its own, with a file of its effects."""

    def __init__(self, folder: Path) -> None:
        self._journal = folder / "journal.db"
        self._effects = folder / "effects"

    def start(self, change: str, mode: str) -> Any:
        arguments = [str(self._journal), str(self._effects), change, mode]
        done = subprocess.run(
            [sys.executable, str(PROGRAM), *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if mode == "die":
            assert done.returncode == -signal.SIGKILL, done.stderr
            return None
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def effects(self) -> list[str]:
        return self._effects.read_text().split()


@pytest.fixture
def payroll(tmp_path: Path) -> Payroll:
    return Payroll(tmp_path)


@pytest.mark.parametrize("change", ["", "instructions"])
def test_a_killed_run_with_the_same_requests_pays_everyone_once(
    payroll: Payroll, change: str
) -> None:
    payroll.start("", "die")
    ended = payroll.start(change, "go")

    assert ended == {"output": "paid ann, bob, cyd", "note": ""}
    assert payroll.effects == ["ann", "bob", "cyd"]


def test_an_appended_step_is_no_change_of_the_finished_ones(payroll: Payroll) -> None:
    payroll.start("", "die")

    assert payroll.start("appended", "go")["note"] == ""
    assert payroll.effects == ["ann", "bob", "cyd", "dan"]


@pytest.mark.parametrize(
    ("change", "new", "left"),
    [("goal", "pay Ann", "pay ann"), ("time", "pay ann", "pay ann"), ("inserted", "zoe", "ann")],
)
def test_a_killed_run_with_other_requests_is_refused_before_its_first_effect(
    payroll: Payroll, change: str, new: str, left: str
) -> None:
    payroll.start("time" if change == "time" else "", "die")
    refused = payroll.start(change, "go")["refused"]

    assert payroll.effects == ["ann", "bob"]
    before, _, after = refused.partition("before the crash")
    assert new in before
    assert left in after
    assert "--accept-changes" in refused
    # It stays interrupted: with the earlier code it goes on.
    if change != "time":
        assert payroll.start("", "go")["output"] == "paid ann, bob, cyd"
        assert payroll.effects == ["ann", "bob", "cyd"]


def test_accepted_changes_run_and_are_noted_in_the_outcome(payroll: Payroll) -> None:
    payroll.start("", "die")
    payroll.start("goal", "go")
    ended = payroll.start("goal", "accept")

    assert ended["output"] == "paid Ann, Bob, Cyd"
    assert payroll.effects == ["ann", "bob", "Ann", "Bob", "Cyd"]
    assert "changes accepted" in ended["note"]
    assert "pay Ann" in ended["note"]


def test_a_removed_step_is_refused_while_others_are_new_and_noted_if_none_is(
    payroll: Payroll,
) -> None:
    payroll.start("", "die")

    assert "pay ann" in payroll.start("removed", "go")["refused"]
    assert payroll.effects == ["ann", "bob"]


Ask = Callable[[Any, str], Awaitable[str]]


def worker(name: str = "worker", instructions: str = "") -> Agent[str]:
    return Agent(
        name,
        instructions=instructions,
        model=ScriptedModel.always(lambda said: f"did {said[0].text}", 1),
    )


def program(steps: Callable[[], Awaitable[str]]) -> Pipeline[str, str]:
    @agent(name="brief")
    async def brief(goal: str) -> str:
        return await steps()

    return brief


async def in_order(*goals: str) -> str:
    return "; ".join([await delegate(worker(), goal) for goal in goals])


async def entries_of(pipeline: Agent[Any, Any]) -> list[Entry]:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(pipeline, "go")
    return journal.entries


def cut(entries: list[Entry], settled: int) -> list[Entry]:
    """Return the entries up to the end of so many tasks."""
    seqs = [it.seq for it in entries if isinstance(it.event, TaskSettled)]
    return [it for it in entries if it.seq <= seqs[settled - 1]]


class Resumed:
    """A journal that is opened again after a crash."""

    def __init__(self, entries: list[Entry]) -> None:
        self.journal = MemoryJournal(entries)

    async def resume(self, pipeline: Agent[Any, Any], **options: Any) -> Run[Any]:
        async with open_orchestrator(self.journal) as orchestrator:
            return await resume(orchestrator, pipeline, **options)

    def goals(self) -> list[str]:
        return [it.request.goal for it in facts(self.journal.entries, TaskRequested)]


async def resume(orchestrator: Orchestrator, pipeline: Agent[Any, Any], **options: Any) -> Run[Any]:
    return await orchestrator.resume(pipeline, orchestrator.runs[0], **options)


async def test_a_refused_run_stays_interrupted_and_goes_on_in_the_same_process() -> None:
    entries = await entries_of(program(lambda: in_order("a", "b", "c")))
    changed = program(lambda: in_order("A", "b", "c"))
    journal = MemoryJournal(cut(entries, 2))
    async with open_orchestrator(journal) as orchestrator:
        with pytest.raises(ChangedProgramError, match=r"worker \(A\).*worker\S* \(a\)"):
            await resume(orchestrator, changed)
        with pytest.raises(ChangedProgramError):
            await resume(orchestrator, changed)
        run = await resume(orchestrator, changed, on_change="accept")

    assert run.output == "did A; did b; did c"
    assert run.outcome.note.count("the program of /brief has changed") == 1
    assert "(A)" in run.outcome.note
    assert len(facts(journal.entries, TurnInterrupted)) == 2
    requested = [it.request.goal for it in facts(journal.entries, TaskRequested)]
    assert requested == ["a", "b", "A", "c"]


async def test_shielded_cleanup_of_a_changed_program_does_not_wait_for_ever() -> None:
    async def steps() -> str:
        try:
            return await delegate(worker(), "A")
        finally:
            with trio.CancelScope(shield=True):
                await delegate(worker(), "clean up")

    entries = await entries_of(program(lambda: in_order("a", "b")))
    resumed = Resumed(cut(entries, 1))
    with trio.fail_after(60), pytest.raises(ChangedProgramError, match=r"\(A\)"):
        await resumed.resume(program(steps))
    assert resumed.goals() == ["a"]


async def test_steps_that_a_program_no_longer_has_are_noted_in_its_outcome() -> None:
    entries = await entries_of(program(lambda: in_order("a", "b", "c")))
    resumed = Resumed(cut(entries, 2))
    run = await resumed.resume(program(lambda: in_order("b")))

    assert run.output == "did b"
    assert "(a)" in run.outcome.note
    assert "(b)" not in run.outcome.note
    assert resumed.goals() == ["a", "b"]


async def test_branches_that_fall_behind_are_waited_for() -> None:
    """One branch asks for a new task at once, while another has ten finished ones to find."""
    last = trio.Event()

    async def steps() -> str:
        async def long() -> None:
            for number in range(10):
                await delegate(worker(), f"long {number}")
                await trio.sleep(3)

        async def short() -> None:
            await delegate(worker(), "short 0")
            await last.wait()
            await delegate(worker(), "short 1")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(long)
            nursery.start_soon(short)
            if not entries:
                await trio.sleep(100)
                last.set()
        return "done"

    entries: list[Entry] = []
    entries = await entries_of(program(steps))
    for settled in (5, 11):
        resumed = Resumed(cut(entries, settled))
        run = await resumed.resume(program(steps))

        assert run.output == "done"
        assert run.outcome.note == ""
        assert sorted(resumed.goals()) == sorted({*resumed.goals()})
        assert len(resumed.goals()) == 12


async def test_a_change_in_one_of_several_branches_is_refused() -> None:
    def steps(first: str) -> Callable[[], Awaitable[str]]:
        async def at_once() -> str:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(delegate, worker(), first)
                nursery.start_soon(delegate, worker(), "b")
            return "done"

        return at_once

    entries = cut(await entries_of(program(steps("a"))), 2)
    with pytest.raises(ChangedProgramError, match=r"\(A\)"):
        await Resumed(entries).resume(program(steps("A")))


async def test_agents_of_one_name_get_their_own_results_in_any_order() -> None:
    def steps(order: list[str]) -> Callable[[], Awaitable[str]]:
        async def ask_experts() -> str:
            answers: dict[str, str] = {}

            async def ask(field: str) -> None:
                expert = Agent(
                    "expert",
                    instructions=f"You know {field}.",
                    model=ScriptedModel.always(f"as {field} says"),
                )
                answers[field] = await delegate(expert, "why?")

            async with trio.open_nursery() as nursery:
                for field in order:
                    nursery.start_soon(ask, field)
                    await trio.testing.wait_all_tasks_blocked()
            return "; ".join(answers[it] for it in ("law", "art"))

        return ask_experts

    entries = await entries_of(program(steps(["law", "art"])))
    for settled in (1, 2):
        run = await Resumed(cut(entries, settled)).resume(program(steps(["art", "law"])))
        assert run.output == "as law says; as art says"
        assert run.outcome.note == ""


async def test_reworded_instructions_find_the_results_of_a_fan_out() -> None:
    async def fan_out(instructions: str) -> str:
        each = map_each(worker(instructions=instructions), limit=2)
        return "; ".join(await delegate(each, ["a", "b", "c"]))

    entries = await entries_of(program(lambda: fan_out("Work.")))
    resumed = Resumed(cut(entries, 2))
    began = trio.current_time()
    run = await resumed.resume(program(lambda: fan_out("Work well.")))

    assert run.output == "did a; did b; did c"
    assert resumed.goals().count("a") == 1
    assert trio.current_time() - began < 4, "no request is held back for long"


async def test_a_changed_item_of_a_fan_out_is_refused() -> None:
    async def fan_out(*items: str) -> str:
        return "; ".join(await delegate(map_each(worker()), items))

    async def outer(*items: str) -> str:
        @agent
        async def inner(goal: str) -> str:
            return await fan_out(*items)

        return await delegate(inner, "inner")

    entries = await entries_of(program(lambda: outer("a", "b")))
    resumed = Resumed(cut(entries, 2))
    with pytest.raises(ChangedProgramError, match=r"/brief/inner"):
        await resumed.resume(program(lambda: outer("a", "B")))
    assert "B" not in resumed.goals()


def versioned(version: str, worker_version: str = "", **options: Any) -> Pipeline[str, str]:
    """Return a pipeline that delegates two tasks, one after the other."""
    helper = attrs.evolve(worker(), version=worker_version)

    @agent(name="brief", version=version, **options)
    async def brief(goal: str) -> str:
        return "; ".join([await delegate(helper, it) for it in ("a", "b")])

    return brief


@pytest.mark.parametrize(("before", "now"), [("1", "2"), ("", "2"), ("1", "")])
async def test_another_version_of_an_agent_is_refused_until_it_is_accepted(
    before: str, now: str
) -> None:
    entries = cut(await entries_of(versioned(before)), 1)
    resumed = Resumed(entries)
    with pytest.raises(ChangedProgramError) as refused:
        await resumed.resume(versioned(now))
    for it in (before, now):
        assert (f"version {it!r}" if it else "no version") in str(refused.value)
    assert not facts(resumed.journal.entries, TurnResumed)
    run = await resumed.resume(versioned(now), on_change="accept")

    assert run.output == "did a; did b"
    assert resumed.goals() == ["a", "b"]
    assert "which has" in run.outcome.note


async def test_the_same_version_and_an_agent_that_starts_anew_go_on() -> None:
    same = await Resumed(cut(await entries_of(versioned("1")), 1)).resume(versioned("1"))
    old = versioned("1", on_restart="restart")
    anew = await Resumed(cut(await entries_of(old), 1)).resume(versioned("2", on_restart="restart"))

    assert (same.outcome.note, anew.outcome.note) == ("", "")


async def test_an_interrupted_child_of_another_version_stops_its_run() -> None:
    entries = await entries_of(versioned("", "1"))
    # Each request starts its task.
    started = [it.seq for it in entries if isinstance(it.event, TaskRequested)]
    # The second child has begun; the first one has ended, and keeps its result.
    resumed = Resumed([it for it in entries if it.seq <= started[1]])
    with pytest.raises(ChangedProgramError, match=r"/brief/worker\S* began with version '1'"):
        await resumed.resume(versioned("", "2"))
    run = await resumed.resume(versioned("", "2"), on_change="accept")

    assert run.output == "did a; did b"
    assert len(facts(resumed.journal.entries, TaskSettled)) == 2


async def test_another_version_in_a_session_fails_with_its_cause() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(versioned("1")) as session:
            await session.ask("go")
    again = MemoryJournal(cut(journal.entries, 1))
    async with open_orchestrator(again) as orchestrator:
        async with orchestrator.open_session(versioned("2"), session=session.id) as session:
            reply = await session.replies.receive()

    assert reply.outcome.cause is Cause.CHANGED
    assert "version '1'" in reply.outcome.error


async def test_a_changed_program_of_a_session_fails_with_its_cause() -> None:
    entries: list[Entry] = []
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(program(lambda: in_order("a", "b"))) as session:
            await session.ask("go")
            id_ = session.id
    entries = cut(journal.entries, 1)
    again = MemoryJournal(entries)
    async with open_orchestrator(again) as orchestrator:
        changed = program(lambda: in_order("A", "b"))
        async with orchestrator.open_session(changed, session=id_) as session:
            reply = await session.replies.receive()
            assert reply.outcome.ending is Ending.FAILED
            assert reply.outcome.cause is Cause.CHANGED
            # The next turn is a new one.
            assert (await session.ask("go")).outcome.succeeded
