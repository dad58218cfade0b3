"""The journal in Postgres: pruned in steps, read by snapshots, and honest about damage."""

import pytest
import trio

from orchestrator import JournalError, budget, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.backends import journals_at, store_at
from orchestrator.delegation import Rules, SessionId
from orchestrator.kernel.journal.audit import AuditEvent
from orchestrator.kernel.journal.journal import restore_ledger
from orchestrator.kernel.journal.store import JournalStore, Level
from tests.journal.contract.kit import LONG, all_entries, append, editor, message
from tests.kit import worker
from tests.postgres import PostgresServer

pytestmark = pytest.mark.realtime

WHO = AuditEvent(actor="uid:1", action="prune")


@pytest.fixture
def address(postgres: str) -> str:
    return f"{postgres}&journal=one"


def wrong(store: JournalStore) -> list[str]:
    return [it.text for it in store.check() if it.level is Level.WRONG]


async def test_pruned_sessions_are_gone_and_their_use_stays_booked(
    address: str, postgres: str, postgres_server: PostgresServer
) -> None:
    talker = Agent("talker", model=ScriptedModel.always(LONG))
    async with open_orchestrator(address) as orchestrator:
        with budget(name="shared", calls=100):
            for _ in range(3):
                await orchestrator.run(talker, "go")
        async with orchestrator.open_session(worker()) as session:
            await session.ask("stay")
            pruned = await orchestrator.prune(before=1e11)
            assert (pruned.runs, pruned.active) == (3, 1)
            assert (await session.ask("still there?")).turn == 2
    store = store_at(address)
    assert wrong(store) == []
    with store.open_reader() as reader:
        assert reader.sessions() == [session.id]
    database = postgres.partition("@/")[2].partition("?")[0]
    strings = postgres_server.execute(
        "SELECT count(*) FROM orchestrator.payloads", database=database
    )
    assert strings == [(0,)]
    async with store.open_writer() as journal:
        ledger = restore_ledger(await journal.read(Rules()), "journal")
        (account,) = ledger.accounts.values()
        assert account.used.calls == 3

    preview = store.preview_prune(before=1e11)
    done = await store.prune(before=1e11, audit=(5.0, WHO))
    assert (preview.runs, preview.entries) == (done.runs, done.entries) == (1, 13)
    with store.open_reader() as reader:
        assert reader.count() == 0
        (row,) = reader.audit().rows
        assert (row.event.target, row.event.count) == (session.id, 1)
    # A number is never used twice, though no entry of a session is left.
    assert await store.prune_audit(before=6.0, at=7.0, event=WHO) == 1
    assert wrong(store) == []


async def test_a_damaged_entry_is_named_and_hides_no_other_session(
    address: str, postgres: str, postgres_server: PostgresServer
) -> None:
    async with open_orchestrator(address) as orchestrator:
        bad = (await orchestrator.run(editor(), "go")).id
        good = (await orchestrator.run(editor(), "go")).id
    database = postgres.partition("@/")[2].partition("?")[0]
    postgres_server.execute(
        "UPDATE orchestrator.entries SET body = replace(body, '\"go\"', '\"no\"')"
        f" WHERE session = '{bad}' AND kind = 'MessageReceived'",
        database=database,
    )
    store = store_at(address)
    with store.open_reader() as reader:
        assert reader.entries(SessionId(good))
        with pytest.raises(JournalError, match="is damaged: it does not match its checksum"):
            reader.entries(SessionId(bad))
    assert any(bad in text for text in wrong(store))
    async with open_orchestrator(address) as later:
        assert (await later.run(worker(), "go")).output == "done"

    postgres_server.execute(
        f"DELETE FROM orchestrator.entries WHERE session = '{good}' AND seq ="
        f" (SELECT max(seq) FROM orchestrator.entries WHERE session = '{good}')",
        database=database,
    )
    with pytest.raises(JournalError, match="1 of its entries are missing"):
        async with open_orchestrator(address):
            pass
    assert any("1 of its entries are missing" in text for text in wrong(store))


async def test_a_session_is_read_from_its_snapshot(
    address: str, postgres: str, postgres_server: PostgresServer
) -> None:
    store = store_at(address)
    async with open_orchestrator(address) as orchestrator:
        async with orchestrator.open_session(worker()) as session:
            await session.ask("one")
            await session.ask("two")
    async with store.open_writer() as journal:
        ledger = await journal.read_ledger(session.id, Rules())
        journal.store_snapshot(ledger, ledger.sessions[session.id])
    assert wrong(store) == []
    findings = [it.text for it in store.check()]
    assert "all of its 1 snapshots match their entries" in findings
    async with store.open_writer() as journal:
        again = await journal.read_ledger(session.id, Rules())
        assert again.sessions[session.id].tree.to_text() == (
            ledger.sessions[session.id].tree.to_text()
        )
    # One that was changed is not read: the entries are the truth.
    database = postgres.partition("@/")[2].partition("?")[0]
    postgres_server.execute(
        "UPDATE orchestrator.snapshots SET state = 'rubbish'", database=database
    )
    async with open_orchestrator(address) as orchestrator:
        tree = await orchestrator.read_tree(session.id)
        assert tree.to_text() == ledger.sessions[session.id].tree.to_text()
    assert any("does not match its checksum" in text for text in wrong(store))


async def test_processes_without_a_session_in_mind_have_journals_of_their_own(
    postgres: str,
) -> None:
    journals = journals_at(postgres)
    assert journals.names() == []
    assert journals.sessions().count == 0
    async with open_orchestrator(postgres) as first, open_orchestrator(postgres) as other:
        one = await first.run(editor(), "go")
        two = await other.run(worker(), "go")
        assert journals.names() == ["run-1", "run-2"]
        assert await trio.to_thread.run_sync(journals.waiting) == {}
    assert (journals.find(SessionId(one.id)), journals.find(SessionId("r_"))) == ("run-1", None)
    listed = journals.sessions()
    assert [(it.journal, it.id) for it in listed.sessions] == [("run-1", one.id), ("run-2", two.id)]
    assert (listed.count, journals.sessions(newest=1).sessions[0].id) == (2, two.id)
    child = next(task for task in one.tree if task != one.tree.root)
    assert [it.id for it in journals.sessions_with_task(child).sessions] == [one.id]
    # One that is free is used again; one in which something waits is left alone.
    async with store_at(f"{postgres}&journal=run-1").open_writer() as journal:
        last = (await journal.read(Rules())).last_seq
        append(journal, [message("r_waits")], first=last + 1)
    assert journals.waiting() == {"run-1": ["r_waits"]}
    async with journals.open_free() as held:
        assert held.name == "run-2"
    assert all_entries(store_at(f"{postgres}&journal=run-1"))[-1].session == "r_waits"
