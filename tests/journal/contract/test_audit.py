"""Every journal: the audit is durable with the facts, in order, and chained."""

import pytest
from msgspec.structs import replace

from orchestrator.kernel.journal.audit import AuditEvent, AuditHead, AuditLog
from orchestrator.kernel.journal.store import JournalStore
from tests.journal.contract.kit import append, message

pytestmark = pytest.mark.realtime

ADD = AuditEvent(actor="key:ann", owner="ann", action="create_run", target="r_1", peer="::1")


def read(store: JournalStore) -> AuditLog:
    with store.open_reader() as reader:
        log = reader.audit()
        return replace(log, rows=list(log.rows))


async def test_audit_events_are_read_in_order_and_chained(store: JournalStore) -> None:
    again = replace(ADD, target="r_2", count=7)
    async with store.open_writer() as journal:
        append(journal, [message("r_one")])
        journal.append_audit(1.0, ADD)
        await journal.wait_durable(1)
        journal.append_audit(2.0, again)
        await journal.wait_audited()
        assert [it.event for it in read(store).rows] == [ADD, again]
    async with store.open_writer() as journal:
        journal.append_audit(3.5, ADD)
        await journal.wait_audited()

    log = read(store)
    assert [(it.seq, it.at) for it in log.rows] == [(1, 1.0), (2, 2.0), (3, 3.5)]
    assert log.find_break() is None
    assert log.find_break(anchor=log.head) is None
    assert log.head.seq == 3
    assert log.head.hash not in {it.hash for it in [*log.rows][:2]}


async def test_a_journal_without_audit_rows_has_an_empty_audit(store: JournalStore) -> None:
    async with store.open_writer() as journal:
        append(journal, [message("r_one")])
    log = read(store)
    assert (list(log.rows), log.head, log.find_break()) == ([], AuditHead(), None)


async def test_a_store_that_no_process_writes_takes_a_row(store: JournalStore) -> None:
    await store.append_audit(1.0, ADD)
    await store.append_audit(2.0, ADD)
    assert [it.seq for it in read(store).rows] == [1, 2]
