"""A journal of version 1 is folded, shown, replayed and resumed as its writer did it."""

import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing

from orchestrator import open_orchestrator
from orchestrator.agents import RefusedBy
from orchestrator.delegation import Cause, Ending, Rules
from orchestrator.delegation.events import (
    Entry,
    JournalOpened,
    ModelFailed,
    ModelFailure,
    SessionOpened,
    Steered,
    SteeringOrigin,
    TaskSettled,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
)
from orchestrator.kernel.journal.journal import fold_entries
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from orchestrator.products.history.replay.run import replay_sync
from tests.golden.version_1 import FILE, ONE_AT_A_TIME, agents, resuming

CAUSES = {
    (Ending.SUCCEEDED, Cause.NONE),
    (Ending.FAILED, Cause.MODEL),
    (Ending.FAILED, Cause.OUTPUT),
    (Ending.FAILED, Cause.ERROR),
    (Ending.FAILED, Cause.CHILD),
    (Ending.TIMED_OUT, Cause.DEADLINE),
    (Ending.TIMED_OUT, Cause.STALLED),
    (Ending.OVER_BUDGET, Cause.BUDGET),
    (Ending.OVER_BUDGET, Cause.LIMIT),
    (Ending.OVER_BUDGET, Cause.CHILD),
    (Ending.REFUSED, Cause.DEPENDENCY),
    (Ending.CANCELLED, Cause.ASKED),
    (Ending.CANCELLED, Cause.BEFORE_START),
    (Ending.CANCELLED, Cause.CALLER_GONE),
}


def copy_to(folder: Path) -> Path:
    """Copy the journal: SQLite writes beside a file that it reads."""
    copied = Path(shutil.copyfile(FILE, folder / "journal.db"))
    copied.chmod(0o600)
    return copied


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Entry]:
    copied = copy_to(tmp_path_factory.mktemp("golden"))
    return trio.run(read_sqlite_journal, copied)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copy_to(tmp_path)


def roots(entries: Sequence[Entry]) -> list[SessionOpened]:
    return [it.event for it in entries if isinstance(it.event, SessionOpened)]


def show(python: list[str], *arguments: object) -> str:
    command = [*python, "-m", "orchestrator", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def test_every_outcome_of_the_journal_has_its_cause(entries: Sequence[Entry]) -> None:
    outcomes = [
        entry.event.outcome for entry in entries if isinstance(entry.event, TaskSettled | TurnEnded)
    ]

    assert {(it.ending, it.cause) for it in outcomes} == CAUSES
    assert all(it.account for it in outcomes if it.cause is Cause.BUDGET)


def test_every_failed_call_has_its_reason(entries: Sequence[Entry]) -> None:
    events = [entry.event for entry in entries]
    failed = {it.reason for it in events if isinstance(it, ModelFailed)}
    refused = {it.message.refused_by for it in events if isinstance(it, ToolAnswered)}
    origins = {it.origin for it in events if isinstance(it, Steered)}

    assert failed == {ModelFailure.FAILED, ModelFailure.BROKEN_OFF}
    assert refused == {None, RefusedBy.APPROVAL, RefusedBy.SHUTDOWN, RefusedBy.UNKNOWN_TOOL}
    assert origins == set(SteeringOrigin)


def test_the_golden_journal_contains_crashes(entries: Sequence[Entry]) -> None:
    kinds = Counter(type(entry.event) for entry in entries)

    assert kinds[JournalOpened] > 3
    assert kinds[TurnResumed] == 3


def test_the_journal_is_folded(entries: Sequence[Entry]) -> None:
    ledger = fold_entries(entries, str(FILE))
    pending = [it for it in ledger.sessions.values() if not it.has_nothing_pending]

    assert {it.root.agent for it in ledger.sessions.values()} == set(agents())
    assert [it.root.agent for it in pending] == ["failures", "resuming"]


def test_every_run_is_replayed(entries: Sequence[Entry]) -> None:
    *runs, interrupted = roots(entries)
    known = agents()
    assert interrupted.agent == "resuming"
    queued, lost = [at for at, run in enumerate(runs) if run.agent in {"queueing", "failures"}][-2:]
    for number, run in enumerate(runs):
        rules: Rules | None = ONE_AT_A_TIME if number == queued else None
        replayed = replay_sync(entries, known[run.agent], run=run.session, rules=rules)

        # The process of one died: it is replayed up to there.
        assert replayed.is_whole is (number != lost)
        assert replayed.difference is None, (run, replayed.difference)


def test_the_journal_is_shown_and_examined(
    copy: Path, entries: Sequence[Entry], python: list[str]
) -> None:
    run = roots(entries)[0].session

    assert "/failures" in show(python, "tree", run, "--journal", copy)
    silent = show(python, "show", "/failures/silent[1]", "--run", run, "--journal", copy)
    assert "stalled: no sign of life" in silent
    checked = show(python, "doctor", "--journal", copy)
    assert "its tables are of version 1" in checked
    assert "its entries are as they were written" in checked


def test_the_journal_is_written_on(copy: Path) -> None:
    async def write_on() -> None:
        async with (
            open_orchestrator(copy) as orchestrator,
            orchestrator.open_session(resuming()) as session,
        ):
            assert (await session.ask("go")).text == "on its way"

    before = trio.run(read_sqlite_journal, copy)
    trio.run(write_on, clock=trio.testing.MockClock(rate=100))
    after = trio.run(read_sqlite_journal, copy)
    with closing(sqlite3.connect(copy)) as connection:
        versions = connection.execute("SELECT DISTINCT version FROM entries").fetchall()

    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert versions == [(1,)]


def test_an_interrupted_session_goes_on(copy: Path) -> None:
    async def go_on() -> set[str]:
        async with open_orchestrator(copy) as orchestrator:
            *_, interrupted = orchestrator.runs
            async with orchestrator.open_session(resuming(), session=interrupted) as session:
                await session.wait_idle()
                tree = await orchestrator.read_tree(session.id)
        return {tree[task].status for task in tree}

    states = trio.run(go_on, clock=trio.testing.MockClock(rate=100))
    assert states == {"succeeded"}
