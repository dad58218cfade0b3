"""A journal of version 2 is opened, folded, shown, replayed and resumed as its writer did it."""

import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing

from agents import RefusedBy
from delegation import Cause, Ending, Rules
from delegation.events import (
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
from orchestrator import open_orchestrator
from orchestrator.journal.journal import fold_entries
from orchestrator.journal.sqlite.journal import read_sqlite_journal
from orchestrator.replay.record import ReplayError
from orchestrator.replay.run import replay_sync
from tests.golden.version_2 import FILE, ONE_AT_A_TIME, agents

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
    (Ending.CANCELLED, Cause.STOPPED),
    (Ending.CANCELLED, Cause.BEFORE_START),
    (Ending.LOST, Cause.ENDED_FIRST),
    (Ending.LOST, Cause.PROCESS_DIED),
}


def copy_to(folder: Path) -> Path:
    """Copy the journal: SQLite writes beside a file that it reads."""
    copied = Path(shutil.copyfile(FILE, folder / "journal.db"))
    copied.chmod(0o600)
    return copied


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Entry]:
    return trio.run(read_sqlite_journal, copy_to(tmp_path_factory.mktemp("golden")))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copy_to(tmp_path)


def show(*arguments: object) -> str:
    command = [sys.executable, "-m", "orchestrator", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def test_every_sentence_of_the_journal_has_its_cause(entries: Sequence[Entry]) -> None:
    outcomes = [
        entry.event.outcome
        for entry in entries
        if isinstance(entry.event, TaskSettled | TurnEnded)
    ]

    assert {(it.ending, it.cause) for it in outcomes} == CAUSES
    assert all(it.account for it in outcomes if it.cause is Cause.BUDGET)


def test_every_failed_call_has_its_reason(entries: Sequence[Entry]) -> None:
    events = [entry.event for entry in entries]
    failed = {it.reason for it in events if isinstance(it, ModelFailed)}
    refused = {it.message.refused_by for it in events if isinstance(it, ToolAnswered)}
    origins = {it.origin for it in events if isinstance(it, Steered)}

    assert failed == {ModelFailure.FAILED, ModelFailure.BROKEN_OFF}
    assert refused == {
        None,
        RefusedBy.APPROVAL,
        RefusedBy.SHUTDOWN,
        RefusedBy.UNKNOWN_TOOL,
    }
    assert origins == set(SteeringOrigin)


def test_the_journal_has_crashes_in_it(entries: Sequence[Entry]) -> None:
    kinds = Counter(type(entry.event) for entry in entries)

    assert kinds[JournalOpened] > 3
    assert kinds[TurnResumed] == 3


def test_the_journal_is_folded(entries: Sequence[Entry]) -> None:
    ledger = fold_entries(entries, str(FILE))

    assert {it.root.agent for it in ledger.sessions.values()} == set(agents())
    assert all(it.has_nothing_pending for it in ledger.sessions.values())


def test_every_run_is_replayed(entries: Sequence[Entry]) -> None:
    runs = [it.event for it in entries if isinstance(it.event, SessionOpened)]
    known = agents()
    for number, run in enumerate(runs, start=1):
        is_last = number == len(runs)
        rules: Rules | None = ONE_AT_A_TIME if number == len(runs) - 1 else None
        if is_last:
            with pytest.raises(ReplayError, match="died in the midst of it"):
                replay_sync(entries, known[run.agent], run=run.session)
            continue
        replayed = replay_sync(entries, known[run.agent], run=run.session, rules=rules)

        assert replayed.difference is None, (run, replayed.difference)


def test_the_journal_is_shown_and_examined(
    copy: Path, entries: Sequence[Entry]
) -> None:
    run = next(
        it.event.session for it in entries if isinstance(it.event, SessionOpened)
    )

    assert "/failures" in show("tree", run, "--journal", copy)
    silent = show("show", "/failures/silent[1]", "--run", run, "--journal", copy)
    assert "stalled: no sign of life" in silent
    assert "are of version 2" in show("doctor", "--journal", copy)


def test_the_journal_is_written_on_in_the_new_version(copy: Path) -> None:
    """Nothing that it says is rewritten."""

    async def write_on() -> None:
        async with (
            open_orchestrator(copy) as orchestrator,
            orchestrator.open_session(agents()["resuming"]) as session,
        ):
            assert (await session.ask("go")).text == "on its way"

    before = trio.run(read_sqlite_journal, copy)
    trio.run(write_on, clock=trio.testing.MockClock(rate=100))
    after = trio.run(read_sqlite_journal, copy)
    with closing(sqlite3.connect(copy)) as connection:
        versions = connection.execute("SELECT version FROM entries ORDER BY seq")
        counted = Counter(version for (version,) in versions)

    assert after[: len(before)] == before
    assert counted == {2: len(before), 3: len(after) - len(before)}
