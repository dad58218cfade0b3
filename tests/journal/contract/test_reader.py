"""Every journal: a reader returns what is durable, to the letter, at one moment."""

import pytest

from orchestrator import JournalError, open_orchestrator
from orchestrator.delegation import SessionId, TaskId
from orchestrator.delegation.events import Entry, TaskRequested
from orchestrator.kernel.journal.store import JournalStore
from tests.journal.contract.kit import LONG, all_entries, append, editor, message, opened, write

pytestmark = pytest.mark.realtime

ONE, TWO = SessionId("r_one"), SessionId("r_two")


async def test_entries_are_read_back_to_the_letter(store: JournalStore) -> None:
    written = await write(
        store, [message("r_one"), message("r_one", LONG), message("r_one", "\x00ü")]
    )

    with store.open_reader() as reader:
        assert reader.entries(ONE) == written


async def test_a_session_is_read_without_the_others(store: JournalStore) -> None:
    written = await write(store, [message("r_one"), message("r_two"), message("r_one", "again")])

    with store.open_reader() as reader:
        assert reader.entries(ONE) == [written[0], written[2]]
        assert reader.entries(TWO) == [written[1]]
        assert reader.entries(SessionId("r_none")) == []


async def test_entries_of_no_session_are_read_up_to_the_first_after_the_end(
    store: JournalStore,
) -> None:
    facts = [opened(), message("r_one"), opened(), message("r_one"), opened(), opened()]
    written = await write(store, facts)

    with store.open_reader() as reader:
        assert reader.entries(ONE) == written[1:5]


async def test_only_entries_after_a_number_are_read(store: JournalStore) -> None:
    facts = [message("r_one"), opened(), message("r_one"), message("r_two")]
    written = await write(store, facts)

    with store.open_reader() as reader:
        assert reader.entries(ONE, after=1) == written[1:3]
        assert reader.entries(ONE, after=3) == []


async def test_sessions_are_listed_oldest_first(store: JournalStore) -> None:
    await write(store, [opened(), message("r_b"), message("r_a"), message("r_b"), message("s_c")])

    with store.open_reader() as reader:
        assert reader.sessions() == ["r_b", "r_a", "s_c"]
        assert reader.sessions(prefix="r_") == ["r_b", "r_a"]
        assert reader.sessions(newest=2) == ["r_a", "s_c"]
        assert reader.sessions(prefix="r_", newest=1) == ["r_a"]
        assert reader.sessions(prefix="%") == []
        assert reader.sessions(newest=0) == []
        assert reader.count() == 3


async def test_entries_are_found_by_an_id_in_their_body(store: JournalStore) -> None:
    async with store.open_writer() as journal, open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(editor(), "go")
        other = await orchestrator.run(editor(), "go")
        await orchestrator.read.wait_durable()
        child = next(task for task in run.tree if task != run.tree.root)
        with store.open_reader() as reader:
            naming = reader.naming(child)
            requested = reader.naming(child, kind="TaskRequested")
            elsewhere = reader.naming(child, session=SessionId(other.id))
            own = reader.naming(child, session=SessionId(run.id), kind="TaskSettled")
            with_task = reader.sessions_with_task(child[:6])
        by_journal = await journal.read_naming("TaskRequested", child)
        in_run = await journal.read_naming("", child, session=SessionId(run.id))
        in_other = await journal.read_naming("", child, session=SessionId(other.id))

    assert requested == by_journal
    assert (in_run, in_other) == (naming, [])
    assert [_requested_id(entry) for entry in requested] == [child]
    assert {entry.session for entry in naming} == {run.id}
    assert len(naming) > len(requested)
    assert [entry.event.task for entry in own] == [child]  # type: ignore[union-attr]
    assert elsewhere == []
    assert run.id in with_task


def _requested_id(entry: Entry) -> TaskId:
    assert isinstance(entry.event, TaskRequested)
    return entry.event.request.id


async def test_a_reader_sees_durable_entries(store: JournalStore) -> None:
    async with store.open_writer() as journal:
        first = append(journal, [message("r_one")])
        await journal.wait_durable(1)
        assert all_entries(store) == first

        more = append(journal, [message("r_one")], first=2)
        await journal.wait_durable(2)
        assert all_entries(store) == first + more


async def test_a_reader_sees_one_moment(store: JournalStore) -> None:
    async with store.open_writer() as journal:
        before = append(journal, [message("r_one")])
        await journal.wait_durable(1)
        with store.open_reader() as reader:
            append(journal, [message("r_one"), message("r_two")], first=2)
            await journal.wait_durable(3)
            assert reader.entries(ONE) == before
            assert reader.sessions() == [ONE]
            assert reader.count() == 1


def test_a_store_without_a_journal_has_no_reader(store: JournalStore) -> None:
    assert not store.exists()
    with pytest.raises(JournalError), store.open_reader():
        pass
    assert not store.exists()


async def test_a_reader_dates_sessions_and_finds_one_by_its_id(store: JournalStore) -> None:
    await write(store, [message("r_a"), message("r_b"), message("r_a"), opened()])

    with store.open_reader(verify=False) as reader:
        dated = [(it.id, it.began) for it in reader.dated_sessions()]
        newest = [it.id for it in reader.dated_sessions(prefix="r_", newest=1)]
        known = [reader.has_session(SessionId(it)) for it in ("r_a", "r_", "")]

    assert dated == [("r_a", 1.5), ("r_b", 2.5)]
    assert newest == ["r_b"]
    assert known == [True, False, False]
