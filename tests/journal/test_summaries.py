"""A stored summary of a session equals the fold of its facts, at every moment and after a crash."""

import sqlite3
from pathlib import Path

import pytest

from orchestrator import Orchestrator, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool
from orchestrator.backends import journals_at
from orchestrator.cli.journal_queries import read_runs
from orchestrator.delegation import SessionId
from orchestrator.delegation.events import Entry
from orchestrator.kernel.journal import session_cache
from orchestrator.kernel.journal.journal import fold_entries, fold_run
from orchestrator.kernel.journal.session_summary import SessionSummary, summarize
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal
from orchestrator.kernel.journal.sqlite.store import SQLiteStore
from orchestrator.testing import CrashedError, CrashingJournal, hand_on

pytestmark = pytest.mark.realtime
CRASHES = range(3, 40, 2)


@pytest.fixture(autouse=True)
def summary_with_each_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_cache, "MIN_FACTS", 1)
    monkeypatch.setattr(session_cache, "SECONDS", 0)


@tool
def shout(word: str) -> str:
    """Say a word loudly."""
    return word.upper()


def team() -> Agent:
    good = Agent("good", model=ScriptedModel.always("fine"))
    bad = Agent("bad", model=ScriptedModel([ToolCall("shout", {"word": "no"}), RuntimeError("no")]))
    script: list[ToolCall | str] = [
        hand_on("look", agent="good"),
        ToolCall("shout", {"word": "so"}),
        hand_on("one", "two", agent="bad"),
        "done",
    ]
    return Agent("lead", model=ScriptedModel(script), tools=[shout], delegates=[good, bad])


async def work(orchestrator: Orchestrator) -> None:
    await orchestrator.run(team(), "go")
    async with orchestrator.open_session(team()) as session:
        await session.ask("hello")
        await session.wait_idle()


def check_summaries(path: Path, *, at_least: int) -> None:
    """Compare each stored summary with the fold of the facts that it includes."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT session, seq FROM summaries").fetchall()
    assert len(rows) >= at_least
    with SQLiteStore(path).open_reader() as reader:
        for session, seq in rows:
            id_ = SessionId(session)
            entries = reader.entries(id_)
            assert reader.summary(id_, has_writer=True) == _folded(
                id_, [it for it in entries if it.seq <= seq]
            )
            if (exact := reader.summary(id_, has_writer=False)) is not None:
                ledger = fold_run(entries, path, has_writer=False)
                assert exact == summarize(ledger.sessions[id_], ledger)


def _folded(session: SessionId, entries: list[Entry]) -> SessionSummary:
    ledger = fold_entries(entries, "the entries")
    return summarize(ledger.sessions[session], ledger)


async def test_summaries_equal_the_fold_of_the_facts(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        await work(orchestrator)
    check_summaries(path, at_least=2)


@pytest.mark.parametrize("after", CRASHES)
async def test_summaries_equal_the_fold_after_a_crash(tmp_path: Path, after: int) -> None:
    path = tmp_path / "journal.db"
    with pytest.raises(CrashedError):
        async with (
            open_sqlite_journal(path) as journal,
            open_orchestrator(CrashingJournal(journal, after=after)) as orchestrator,
        ):
            await work(orchestrator)
    check_summaries(path, at_least=1)
    async with open_orchestrator(path):
        pass  # what was interrupted is noted
    check_summaries(path, at_least=1)


async def test_a_list_of_runs_reads_a_summary_instead_of_facts(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        run = await orchestrator.run(team(), "go")
    (whole,) = read_runs(journals_at(path)).shown
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entries SET body = 'damaged' WHERE session = ?", (run.id,))
    (listed,) = read_runs(journals_at(path)).shown
    assert listed == whole
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE summaries SET body = 'damaged'")
    # A summary that is damaged is not used: the facts are read, which are damaged, too.
    assert set(read_runs(journals_at(path)).damaged) == {run.id}


async def test_summaries_in_postgres_equal_the_fold_of_the_facts(postgres: str) -> None:
    address = f"{postgres}&journal=one"
    async with open_orchestrator(address) as orchestrator:
        await work(orchestrator)
    store = journals_at(address).store("one")
    with store.open_reader() as reader:
        for session in reader.sessions():
            ledger = fold_run(reader.entries(session), address, has_writer=False)
            expected = summarize(ledger.sessions[session], ledger)
            assert reader.summary(session, has_writer=False) == expected
