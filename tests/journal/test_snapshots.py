"""Snapshots in a file: they save time, and nothing depends on them."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from orchestrator import Orchestrator, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.delegation import Ledger, Rules, SessionId, encode
from orchestrator.delegation.events import Entry, MessageReceived
from orchestrator.delegation.snapshot import MIN_FACTS, MIN_FACTS_LEFT, is_same_state
from orchestrator.delegation.snapshot.capture import take_snapshot
from orchestrator.delegation.snapshot.stored_state import decode_state, encode_state
from orchestrator.kernel.errors import JournalInUseError
from orchestrator.kernel.journal.checksums import snapshot_checksum
from orchestrator.kernel.journal.sqlite.store import SQLiteStore
from orchestrator.kernel.journal.store import Level

pytestmark = pytest.mark.realtime

RULES = Rules()


def agent() -> Agent:
    return Agent("worker", model=ScriptedModel.always("done"))


async def talk(path: Path) -> SessionId:
    """Fill a journal with one session of many facts, and return its id."""
    async with open_orchestrator(path, rules=RULES) as orchestrator:
        async with orchestrator.open_session(agent()) as session:
            await session.ask("first")
            post_letters(orchestrator, session.id, MIN_FACTS)
            await session.wait_idle()
            reply = await session.replies.receive()
            assert reply.text == "done"
    assert count(path) == 0
    # The first reader folds all facts, and leaves a snapshot to the next one.
    await state_of(path, session.id)
    return session.id


@pytest.fixture(scope="module")
def long_session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SessionId]:
    """A journal with one session of many facts, at rest, which tests copy."""
    path = tmp_path_factory.mktemp("long") / "journal.db"
    return path, trio.run(talk, path)


@pytest.fixture
def path(tmp_path: Path, long_session: tuple[Path, SessionId]) -> Path:
    return Path(shutil.copy(long_session[0], tmp_path))


@pytest.fixture
def session(long_session: tuple[Path, SessionId]) -> SessionId:
    return long_session[1]


def post_letters(orchestrator: Orchestrator, session: SessionId, number: int) -> None:
    book = orchestrator._engine.book
    for letter in range(number):
        book.post(MessageReceived(session, f"letter {letter}"))


def change(path: Path, statement: str, *values: object) -> int:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.create_function("row_checksum", -1, lambda *_: 0)
        return connection.execute(statement, values).rowcount


def count(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (number,) = connection.execute("SELECT count(*) FROM snapshots").fetchone()
        return int(number)


async def state_of(path: Path, session: SessionId, rules: Rules = RULES) -> Any:
    """Return the state of a session as a writer reads it."""
    async with SQLiteStore(path).open_writer() as journal:
        ledger = await journal.read_ledger(session, rules)
    return capture(ledger, session)


def capture(ledger: Ledger, session: SessionId) -> Any:
    return take_snapshot(ledger, ledger.sessions[session])


def findings(path: Path, level: Level) -> list[str]:
    return [it.text for it in SQLiteStore(path).check() if it.level is level]


async def test_a_long_session_is_read_from_its_snapshot(path: Path, session: SessionId) -> None:
    whole = await state_of(path, session)
    assert count(path) == 1
    assert findings(path, Level.WRONG) == []

    # Without what the snapshot has, the same is read.
    body = "UPDATE entries SET body = '[]' WHERE session = ? AND seq <= (SELECT seq FROM snapshots)"
    assert change(path, body, session) >= MIN_FACTS
    assert is_same_state(await state_of(path, session), whole)


async def test_without_snapshots_the_same_is_read(path: Path, session: SessionId) -> None:
    with_snapshot = await state_of(path, session)

    assert change(path, "DELETE FROM snapshots") == 1

    assert is_same_state(await state_of(path, session), with_snapshot)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE snapshots SET checksum = checksum + 1",
        "UPDATE snapshots SET seq = seq - 1",
        "UPDATE snapshots SET state = x'00'",
        "UPDATE snapshots SET layout = '0.0 ' || layout",
    ],
)
async def test_a_snapshot_that_does_not_fit_is_not_read(
    path: Path, session: SessionId, damage: str
) -> None:
    before = await state_of(path, session)

    assert change(path, damage) == 1

    (found,) = findings(path, Level.WRONG)
    assert found == f"of its snapshots, the one of run {session} does not match its checksum"
    assert is_same_state(await state_of(path, session), before)
    assert findings(path, Level.WRONG) == [], "the reader has stored another one"


async def test_the_facts_are_folded_instead_of_one_that_contradicts_itself(
    path: Path, session: SessionId
) -> None:
    before = await state_of(path, session)
    state = decode_state(before.state)
    state.tasks.clear()
    wrong = replace(before, state=encode_state(state))
    checksum = snapshot_checksum(session, wrong.seq, wrong.layout, wrong.state)
    update = "UPDATE snapshots SET seq = ?, layout = ?, state = ?, checksum = ?"
    assert change(path, update, wrong.seq, wrong.layout, wrong.state, checksum) == 1

    assert is_same_state(await state_of(path, session), before)


async def test_a_state_that_cannot_be_stored_ends_no_session(
    path: Path, session: SessionId
) -> None:
    assert change(path, "DELETE FROM snapshots") == 1
    async with SQLiteStore(path).open_writer() as journal:
        ledger = await journal.read_ledger(session, RULES)
        assert len(journal.queue.snapshots.take()) == 1
        ledger.sessions[session].metadata = {"lone": "\ud800"}
        journal.store_snapshot(ledger, ledger.sessions[session])
        await journal.queue.snapshots.wait_encoded()

    assert count(path) == 0


async def test_doctor_compares_a_snapshot_with_the_entries(path: Path, session: SessionId) -> None:
    async with SQLiteStore(path).open_writer() as journal:
        ledger = await journal.read_ledger(session, RULES)
        ledger.sessions[session].metadata = {"never": "said"}
        journal.store_snapshot(ledger, ledger.sessions[session])

    (found,) = findings(path, Level.WRONG)
    assert found == (
        f"of its snapshots, the one of run {session} differs from the fold of its entries"
    )


async def test_a_snapshot_of_another_version_is_not_read(path: Path, session: SessionId) -> None:
    before = await state_of(path, session)
    async with SQLiteStore(path).open_writer() as journal:
        ledger = await journal.read_ledger(session, RULES)
        ledger.sessions[session].metadata = {"never": "said"}
        journal.store_snapshot(ledger, ledger.sessions[session])
    with closing(sqlite3.connect(path)) as connection:
        ((seq, state),) = connection.execute("SELECT seq, state FROM snapshots")
    newer = "0.0 newer"
    checksum = snapshot_checksum(session, seq, newer, state)
    assert change(path, "UPDATE snapshots SET layout = ?, checksum = ?", newer, checksum) == 1

    assert findings(path, Level.WRONG) == []
    assert "1 of its snapshots were made by another version, and are not used" in findings(
        path, Level.NOTE
    )
    assert is_same_state(await state_of(path, session), before)


async def test_a_snapshot_is_stored_after_its_entries(path: Path, session: SessionId) -> None:
    """Else a crash between two commits would leave facts that never were durable."""
    assert change(path, "DELETE FROM snapshots") == 1
    async with SQLiteStore(path).open_writer() as journal:
        contents = await journal.read(RULES)
        ledger = await journal.read_ledger(session, RULES)
        assert len(journal.queue.snapshots.take()) == 1
        entries: list[Entry] = []
        for seq in (contents.last_seq + 1, contents.last_seq + 2):
            letter = Entry(seq, 0.0, session, MessageReceived(session, f"{seq}"))
            ledger.fold(letter)
            entries.append(letter)
        journal.store_snapshot(ledger, ledger.sessions[session])
        await journal.queue.snapshots.wait_encoded()
        for entry, stored in zip(entries, (0, 1), strict=True):
            journal.append(entry, encode(entry.event), {session: None})
            await journal.wait_durable(entry.seq)
            assert count(path) == stored


async def test_a_last_snapshot_that_cannot_be_written_does_not_keep_the_journal_open(
    path: Path, session: SessionId
) -> None:
    async def write() -> None:
        async with SQLiteStore(path).open_writer() as journal:
            ledger = await journal.read_ledger(session, RULES)
            journal.store_snapshot(ledger, ledger.sessions[session])
            change(path, "CREATE TABLE of_another_process (it)")

    with pytest.raises(JournalInUseError):
        await write()


async def test_other_rules_fold_the_facts(path: Path, session: SessionId) -> None:
    assert change(path, "UPDATE snapshots SET state = x'00', checksum = 0") == 1

    other = await state_of(path, session, Rules(live_tasks=3))

    assert other.layout.endswith(" 3/None/100")


async def test_an_active_session_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path, rules=RULES) as orchestrator:
        async with orchestrator.open_session(agent()) as session:
            await session.ask("first")
        post_letters(orchestrator, session.id, MIN_FACTS)
    assert count(path) == 0

    for opened in (1, 2):
        async with open_orchestrator(path, rules=RULES) as orchestrator:
            record = orchestrator.read.records.sessions[session.id]
            assert len(record.mail) == MIN_FACTS
            assert record.facts_in_snapshot > MIN_FACTS, opened
        assert count(path) == 1
    async with open_orchestrator(path, rules=RULES) as orchestrator:
        record = orchestrator.read.records.sessions[session.id]
        async with orchestrator.open_session(agent(), session=session.id) as again:
            reply = await again.ask("last")
            assert reply.text == "done"
            assert len(record.root.transcript) > MIN_FACTS


@pytest.mark.parametrize("evicted", [True, False])
async def test_a_conversation_is_stored_when_it_leaves_the_memory_and_never_before(
    tmp_path: Path, evicted: bool
) -> None:
    """A session that goes on pays nothing for the case that its process dies."""
    path = tmp_path / "journal.db"
    async with open_orchestrator(path, rules=RULES) as orchestrator:
        book = orchestrator._engine.book
        async with orchestrator.open_session(agent()) as session:
            await session.ask("first")
            post_letters(orchestrator, session.id, MIN_FACTS_LEFT)
            await session.wait_idle()
            await book.wait_durable()
        stored = book._journal.queue.snapshots  # type: ignore[attr-defined]
        assert stored.take() == []
        if evicted:
            book.cache.evict_resting()
            await stored.wait_encoded()
    assert count(path) == 1
    assert findings(path, Level.WRONG) == []


async def test_a_run_is_stored_by_its_first_reader(tmp_path: Path) -> None:
    """A run that is over pays for no snapshot: no reader may come."""
    path = tmp_path / "journal.db"
    async with open_orchestrator(path, rules=RULES) as orchestrator:
        async with orchestrator.open_session(agent()) as session:
            post_letters(orchestrator, session.id, MIN_FACTS_LEFT)
            await session.wait_idle()
        assert orchestrator.read.records.sessions[session.id].turns == 1
    assert count(path) == 0

    await state_of(path, session.id)
    assert count(path) == 1


async def test_a_snapshot_is_pruned_with_its_session(path: Path) -> None:
    assert count(path) == 1

    pruned = await SQLiteStore(path).prune(before=1e12)

    assert pruned.runs == 1
    assert count(path) == 0
