"""Every journal: one writer, entries in order, and no entry that was durable is lost."""

import os
import platform

import pytest
import trio

from orchestrator import JournalInUseError, Orchestrator, budget, open_orchestrator
from orchestrator.delegation import Rules, SessionId
from orchestrator.delegation.events import Entry, SessionOpened
from orchestrator.kernel.journal.journal import restore_ledger
from orchestrator.kernel.journal.store import JournalStore, Level
from orchestrator.testing import CrashedError, CrashingJournal, assert_laws
from tests.journal.contract.conftest import NewStore
from tests.journal.contract.kit import all_entries, append, editor, message, opened, write
from tests.kit import worker

pytestmark = pytest.mark.realtime


async def test_a_second_writer_is_refused(store: JournalStore) -> None:
    assert store.writer() is None
    async with store.open_writer() as journal:
        writer = store.writer()
        assert writer is not None
        assert (writer.process, writer.host) == (os.getpid(), platform.node())
        with pytest.raises(JournalInUseError, match=f"process {os.getpid()} is writing it"):
            async with store.open_writer():
                pass
        # The refused writer has taken nothing from the first one.
        append(journal, [message("r_one")])
        await journal.wait_durable(1)
    assert store.writer() is None


async def test_the_next_writer_reads_the_entries_of_the_last_one(store: JournalStore) -> None:
    written = await write(store, [message("r_one"), message("r_two")])

    async with store.open_writer() as journal:
        contents = await journal.read(Rules())
        assert list(contents.entries) == written
        assert contents.last_seq == 2
        two = SessionId("r_two")
        assert await journal.read_session(two) == written[1:]
        later = await journal.read_session(two, after=written[1].seq)
        assert later == written[2:]


async def test_closing_makes_every_entry_durable(store: JournalStore) -> None:
    async with store.open_writer() as journal:
        written = append(journal, [message("r_one") for _ in range(100)])

    assert all_entries(store) == written


async def test_entries_are_durable_in_their_order(store: JournalStore) -> None:
    durable: list[int] = []

    async def wait(seq: int) -> None:
        await journal.wait_durable(seq)
        durable.append(seq)
        found = all_entries(store)
        assert [entry.seq for entry in found][:seq] == list(range(1, seq + 1))

    async with store.open_writer() as journal, trio.open_nursery() as nursery:
        for seq in range(1, 201):
            append(journal, [message(f"r_{seq}")], first=seq)
            if seq % 20 == 0:
                nursery.start_soon(wait, seq)
                await trio.lowlevel.checkpoint()

    assert sorted(durable) == list(range(20, 201, 20))


async def test_waiting_for_one_entry_makes_all_before_it_durable(store: JournalStore) -> None:
    async with store.open_writer() as journal:
        written = append(journal, [message("r_one") for _ in range(1_000)])
        await journal.wait_durable(1_000)
        assert all_entries(store) == written


async def test_the_last_time_of_a_session_is_the_time_of_its_last_entry(
    store: JournalStore,
) -> None:
    async with store.open_writer() as journal:
        entries = append(journal, [message("a"), message("a"), message("b"), opened()])
        await journal.wait_durable(entries[-1].seq)

        assert await journal.read_last_time(SessionId("a")) == entries[1].at
        assert await journal.read_last_time(SessionId("b")) == entries[2].at
        assert await journal.read_last_time(SessionId("none")) is None


async def test_idle_sessions_are_known_and_read_back_equal(store: JournalStore) -> None:
    async with store.open_writer() as journal, open_orchestrator(journal) as orchestrator:
        with budget(name="shared", calls=100):
            runs = [await orchestrator.run(editor(), "go") for _ in range(3)]
        async with orchestrator.open_session(worker()) as session:
            await session.ask("hello")
    async with store.open_writer() as journal:
        contents = await journal.read(Rules())
        ledger = restore_ledger(contents, "journal")
        (account,) = ledger.accounts.values()
        assert account.used.calls == 12
        async with open_orchestrator(journal) as later:
            assert later.runs == [*(run.id for run in runs), session.id]
            for run in runs:
                assert (await later.read_tree(run.id)).to_text() == run.tree.to_text()
            async with later.open_session(worker(), session=session.id) as again:
                assert (await again.ask("still there?")).turn == 2


async def test_owners_are_known_without_reading_their_sessions(store: JournalStore) -> None:
    facts = [
        SessionOpened(SessionId("r_one"), "worker", owner="ann", metadata={"owner": "x"}),
        SessionOpened(SessionId("r_two"), "worker"),
        SessionOpened(SessionId("r_three"), "worker", owner='b"ob'),
    ]
    written = await write(
        store,
        [
            message("r_old"),
            *(Entry(0, 0.5, fact.session, fact) for fact in facts),
            message("r_two", '"owner":"eve"'),
        ],
    )

    async with store.open_writer() as journal:
        assert await journal.read_owners() == {"r_one": "ann", "r_three": 'b"ob'}
        assert list(await journal.read_owners()) == [written[1].session, written[3].session]


async def test_a_crash_after_any_entry_keeps_all_entries_before_it(new_store: NewStore) -> None:
    whole = new_store()
    async with whole.open_writer() as journal, open_orchestrator(journal) as orchestrator:
        await orchestrator.run(editor(), "go")
    count = len(all_entries(whole)) + 1  # JournalOpened precedes the session

    for after in range(1, count):
        store = new_store()
        with pytest.raises(CrashedError):
            async with (
                store.open_writer() as journal,
                open_orchestrator(CrashingJournal(journal, after=after)) as dying,
            ):
                await dying.run(editor(), "go")
        async with store.open_writer() as journal:
            assert (await journal.read(Rules())).last_seq == after
            async with open_orchestrator(journal) as later:
                await _wait_idle(later)
                assert (await later.run(worker(), "again")).output == "done"
        assert_laws(all_entries(store))
        assert all(finding.level is not Level.WRONG for finding in store.check())


async def _wait_idle(orchestrator: Orchestrator) -> None:
    while orchestrator.working:
        await orchestrator.wait_changed(after=orchestrator.read.last_seq)
