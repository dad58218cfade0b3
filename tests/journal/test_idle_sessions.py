"""Idle sessions are evicted from memory, read back equal from the journal, and continued."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from orchestrator import MemoryJournal, Orchestrator, UnknownIdError, budget, open_orchestrator
from orchestrator.agents import Agent, Budget, Part, ScriptedModel, ToolCall, Transcript
from orchestrator.delegation import Ending, Rules
from orchestrator.delegation.events import Entry
from orchestrator.kernel.journal import session_cache
from orchestrator.kernel.journal.sqlite import entries as sqlite_entries
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal
from orchestrator.testing import GatedModel
from tests.kit import hand_on, worker

pytestmark = pytest.mark.realtime

BOUND = 30


@pytest.fixture(autouse=True)
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_cache, "MAX_RESTING_TASKS", BOUND)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Entry]]:
    """All entries that are read from a file."""
    entries: list[Entry] = []
    from_row = sqlite_entries.from_row

    def counted(*args: object) -> Entry:
        entry = from_row(*args)  # type: ignore[arg-type]
        entries.append(entry)
        return entry

    monkeypatch.setattr(sqlite_entries, "from_row", counted)
    return iter([entries])


def lead(**options: object) -> Agent:
    """Return an agent that hands two tasks on, whatever it is told."""

    def say(transcript: Transcript) -> str | ToolCall:
        call = hand_on("a", "b", background=False)
        return call if len(transcript) % 4 == 1 else f"done {len(transcript)}"

    model = ScriptedModel.always(say)
    return Agent("lead", model=model, delegates=[worker()], **options)  # type: ignore[arg-type]


def tasks_in_memory(orchestrator: Orchestrator) -> int:
    ledger = orchestrator.read.records
    in_sessions = sum(len(session.tree) for session in ledger.sessions.values())
    assert len(ledger.tasks) == in_sessions
    return len(ledger.tasks)


async def test_few_runs_with_large_files_keep_memory_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they were said in this process, or read back from the journal."""
    monkeypatch.setattr(session_cache, "MAX_RESTING_BYTES", 300_000)
    image = Part("image/png", data=bytes(100_000))
    async with open_orchestrator(tmp_path / "journal.db") as orchestrator:
        ledger = orchestrator.read.records
        for _ in range(6):
            async with orchestrator.open_session(worker()) as it:
                await it.ask("look", image)
            assert len(ledger.sessions) <= 3
        first = orchestrator.runs[0]
        assert ledger.is_evicted(first)
        async with orchestrator.open_session(worker(), session=first) as it:
            await it.ask("and now?")
        assert not ledger.is_evicted(first)
        assert len(ledger.sessions) <= 3


async def test_thousands_of_runs_keep_memory_bounded() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        for number in range(1000):
            await orchestrator.run(worker(), "go")
            if number % 100 == 0:
                assert tasks_in_memory(orchestrator) <= BOUND + 1
        ledger = orchestrator.read.records
        assert tasks_in_memory(orchestrator) <= BOUND + 1
        assert len(ledger.sessions) <= BOUND + 1
        assert len(orchestrator.runs) == 1000
        assert not ledger.accounts


async def test_many_runs_at_once_all_stay_in_memory_until_they_are_idle() -> None:
    gate = GatedModel()
    held = Agent("held", model=gate)
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(orchestrator.run, held, "go")
            await gate.wait_called(100)
            assert tasks_in_memory(orchestrator) == 100
            gate.release()
        assert tasks_in_memory(orchestrator) <= BOUND


async def test_a_run_larger_than_memory_is_there_until_the_next_one_ends() -> None:
    model = ScriptedModel([hand_on(*"abcdefgh" * 5), "x"])
    large = Agent("large", model=model, delegates=[worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(large, "go")
        assert orchestrator.tree(run.id) is run.tree
        await orchestrator.run(worker(), "go")
        with pytest.raises(UnknownIdError, match=r"await read_tree\(...\) reads it"):
            orchestrator.tree(run.id)
        again = await orchestrator.read_tree(run.id)

    assert again.to_text() == run.tree.to_text()


async def test_evicted_runs_are_read_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        runs = [await orchestrator.run(lead(), f"goal {n}") for n in range(30)]
        for run in runs:
            tree = await orchestrator.read_tree(run.id)
            assert tree.to_text() == run.tree.to_text()
            assert tree.to_mermaid() == run.tree.to_mermaid()
        assert tasks_in_memory(orchestrator) <= BOUND + 3
    async with open_orchestrator(path) as later:
        assert later.runs == [run.id for run in runs]
        assert tasks_in_memory(later) == 0
        tree = await later.read_tree(runs[7].id)

    assert tree.to_text() == runs[7].tree.to_text()


@pytest.mark.parametrize("restart", [False, True])
async def test_an_idle_session_is_opened_again_and_goes_on(tmp_path: Path, restart: bool) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(lead()) as session:
            assert (await session.ask("one")).text == "done 3"
        if not restart:
            for _ in range(BOUND):
                await orchestrator.run(worker(), "go")
            assert session.id not in orchestrator.read.records.sessions
            await go_on(orchestrator, session.id)
    if restart:
        async with open_orchestrator(path) as later:
            assert tasks_in_memory(later) == 0
            await go_on(later, session.id)
    async with open_orchestrator(path) as last:
        assert len(await last.read_tree(session.id)) == 5


async def go_on(orchestrator: Orchestrator, session: str) -> None:
    async with orchestrator.open_session(lead(), session=session) as again:
        reply = await again.ask("two")
        assert (reply.turn, reply.text) == (2, "done 7")
        assert len(again.tree) == 5
    for _ in range(BOUND):
        await orchestrator.run(worker(), "go")
    assert session not in orchestrator.read.records.sessions
    assert len(await orchestrator.read_tree(session)) == 5


async def test_opening_reads_only_active_sessions(
    tmp_path: Path, decoded: Iterator[list[Entry]]
) -> None:
    path = tmp_path / "journal.db"
    entries = next(decoded)
    slow = Agent(
        "slow",
        model=ScriptedModel([hand_on("look", background=True), "on its way"]),
        delegates=[worker(seconds=1000)],
    )
    async with open_orchestrator(path) as orchestrator:
        for _ in range(20):
            await orchestrator.run(lead(), "go")
        async with orchestrator.open_session(slow) as session:
            await session.ask("go")
    entries.clear()
    async with open_orchestrator(path) as later:
        assert {entry.session for entry in entries} == {session.id}
        assert len(entries) < 15
        assert len(later.runs) == 21
        entries.clear()
        await later.read_tree(later.runs[3])
        assert {entry.session for entry in entries} == {later.runs[3], ""}


async def test_shared_budgets_count_the_use_of_idle_sessions(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        with budget(calls=10, name="all"):
            async with orchestrator.open_session(worker("talker")) as session:
                await session.ask("one")
                for _ in range(3):
                    await orchestrator.run(worker(), "go")
        for _ in range(BOUND + 2):
            await orchestrator.run(worker(), "not under it")
        assert session.id not in orchestrator.read.records.sessions
        assert await asked_until_it_runs_out(orchestrator, session.id, 3) == 3
    async with open_orchestrator(path) as later:
        assert tasks_in_memory(later) == 0
        assert await asked_until_it_runs_out(later, session.id, 99) == 3


async def asked_until_it_runs_out(orchestrator: Orchestrator, session: str, most: int) -> int:
    agent = worker("talker")
    async with orchestrator.open_session(agent, session=session) as opened:
        for count in range(most):
            reply = await opened.ask("more")
            if not reply.outcome.succeeded:
                assert reply.outcome.ending is Ending.OVER_BUDGET
                assert "10 model calls" in reply.text
                return count
    return most


async def test_a_budget_of_its_own_goes_on_counting_after_a_session_was_idle(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    agent = Agent("talker", model=ScriptedModel.always("x"), budget=Budget(calls=2, name="own"))
    endings: list[Ending] = []
    for turn in (1, 2, 3):
        async with open_orchestrator(path) as orchestrator:
            id_ = orchestrator.runs[0] if turn > 1 else None
            async with orchestrator.open_session(agent, session=id_) as session:
                endings.append((await session.ask("go")).outcome.ending)

    assert endings == [Ending.SUCCEEDED, Ending.SUCCEEDED, Ending.OVER_BUDGET]


async def test_a_session_becomes_idle_with_its_last_fact(tmp_path: Path) -> None:
    """A reader never sees an ended run that is listed as active, or the other way round."""
    path = tmp_path / "journal.db"
    async with open_sqlite_journal(path) as journal:
        async with open_orchestrator(journal) as orchestrator:
            run = await orchestrator.run(worker(), "go")
            await journal.group.wait_all_durable()
            assert (await journal.read(Rules())).sessions == {run.id: ""}
            async with orchestrator.open_session(worker(), session=run.id):
                await journal.group.wait_all_durable()
                assert (await journal.read(Rules())).sessions == {run.id: None}
            await journal.group.wait_all_durable()
            assert (await journal.read(Rules())).sessions == {run.id: ""}


async def leave_reply(orchestrator: Orchestrator) -> str:
    """Ask a session, leave before the reply comes, and return the session's id."""
    gate = GatedModel()
    async with orchestrator.open_session(Agent("left", model=gate)) as session:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.ask, "hello")
            await gate.wait_called(1)
            nursery.cancel_scope.cancel()
        gate.release()
        await session.wait_idle()
    return session.id


async def test_replies_that_are_not_taken_wait_in_the_journal_and_not_in_memory(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        left = [await leave_reply(orchestrator) for _ in range(3 * BOUND)]
        assert tasks_in_memory(orchestrator) <= BOUND + 1
        assert left[0] not in orchestrator.read.records.sessions
        agent = Agent("left", model=ScriptedModel([]))
        async with orchestrator.open_session(agent, session=left[0]) as session:
            first = await session.replies.receive()
    async with open_orchestrator(path) as later:
        assert tasks_in_memory(later) <= BOUND + 1
        async with later.open_session(agent, session=left[0]) as session:
            with pytest.raises(trio.WouldBlock):
                session.replies.receive_nowait()
        async with later.open_session(agent, session=left[1]) as session:
            second = await session.replies.receive()
    assert (first.turn, first.outcome.ending) == (1, Ending.SUCCEEDED)
    assert (second.turn, second.outcome.ending) == (1, Ending.SUCCEEDED)


async def test_a_session_with_undelivered_replies_is_not_listed_as_idle(tmp_path: Path) -> None:
    """Or pruning would delete them."""
    async with open_sqlite_journal(tmp_path / "journal.db") as journal:
        async with open_orchestrator(journal) as orchestrator:
            left = await leave_reply(orchestrator)
            orchestrator._engine.book.cache.evict_resting()
            await journal.group.wait_all_durable()
            assert (await journal.read(Rules())).sessions == {left: None}
            agent = Agent("left", model=ScriptedModel([]))
            async with orchestrator.open_session(agent, session=left) as session:
                await session.replies.receive()
            await journal.group.wait_all_durable()
            assert (await journal.read(Rules())).sessions == {left: ""}
