"""The audit of a journal: what was done to it is seen, and `orchestrator audit` shows it."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from orchestrator import JournalInUseError, open_orchestrator
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.cli.app import run_command
from orchestrator.kernel.journal.audit import CHECKPOINT, AuditEvent, AuditHead, AuditLog
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal
from orchestrator.kernel.journal.sqlite.store import SQLiteStore
from tests.journal.contract.kit import append, message
from tests.journal.kit import change
from tests.kit import worker

pytestmark = pytest.mark.realtime

DAY = 24 * 3600
ADD = AuditEvent(actor="key:ann", owner="ann", action="create_run", peer="::1")


def events(count: int) -> list[AuditEvent]:
    return [replace(ADD, target=f"r_{number}") for number in range(count)]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal whose audit has ten rows, one a day from the first day on."""
    path = tmp_path / "journal.db"

    async def write() -> None:
        async with open_orchestrator(path) as orchestrator:
            await orchestrator.run(worker(), "go")
        async with open_sqlite_journal(path) as opened:
            for day, event in enumerate(events(10), 1):
                opened.append_audit(day * DAY, event)

    trio.run(write)
    return path


def read(path: Path) -> AuditLog:
    with SQLiteStore(path).open_reader() as reader:
        log = reader.audit()
        return replace(log, rows=list(log.rows))


def doctor(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run_command(["doctor", "--journal", str(path)])
    return code, capsys.readouterr().out


def test_doctor_follows_the_chain_and_prints_its_head(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = doctor(journal, capsys)
    head = read(journal).head
    assert code == 0
    assert f"✓ its audit of 10 rows is as it was written; its head is {head}" in out.splitlines()


MOVED = "UPDATE audit SET seq = -4 WHERE seq = 4"
TAMPERED = {
    "changed": (["UPDATE audit SET actor = 'key:bob' WHERE seq = 4"], 4),
    "changed count": (["UPDATE audit SET count = 9 WHERE seq = 10"], 10),
    "changed hash": (["UPDATE audit SET hash = lower(hex(zeroblob(32)))"], 1),
    "no text": (["UPDATE audit SET target = CAST(x'ff' AS TEXT) WHERE seq = 7"], 7),
    "removed": (["DELETE FROM audit WHERE seq = 4"], 4),
    "removed at the front": (["DELETE FROM audit WHERE seq < 4"], 1),
    "renumbered": (
        ["DELETE FROM audit WHERE seq = 4", "UPDATE audit SET seq = seq - 1 WHERE seq > 4"],
        4,
    ),
    "reordered": (
        [
            MOVED,
            "UPDATE audit SET seq = 4 WHERE seq = 5",
            "UPDATE audit SET seq = 5 WHERE seq = -4",
        ],
        4,
    ),
    "cut": (["DELETE FROM audit WHERE seq > 8"], 9),
    "added": (
        [
            "INSERT INTO audit SELECT 11, at, actor, owner, action, target, outcome, peer,"
            " count, hash FROM audit WHERE seq = 10"
        ],
        11,
    ),
    "pruned without a checkpoint": (
        [
            "UPDATE audit_head SET (pruned_seq, pruned_hash) ="
            " (SELECT seq, hash FROM audit WHERE seq = 3)",
            "DELETE FROM audit WHERE seq < 4",
        ],
        1,
    ),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_doctor_names_the_first_row_that_does_not_fit(
    journal: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    statements, row = TAMPERED[how]
    change(journal, *statements)
    code, out = doctor(journal, capsys)
    assert code == 1
    assert f"✗ row {row} of its audit" in out
    assert run_command(["audit", "--journal", str(journal)]) == 1
    assert f"row {row} of the audit" in capsys.readouterr().err


def test_an_audit_without_a_head_is_wrong(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(journal, "DELETE FROM audit_head")
    code, out = doctor(journal, capsys)
    assert code == 1
    assert "the head of its audit is missing" in out


def test_a_kept_head_detects_a_rewritten_chain(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["audit", "--head", "--journal", str(journal)]) == 0
    kept = capsys.readouterr().out.strip()
    anchored = ["audit", "--head", "--anchor", kept, "--journal", str(journal)]
    assert run_command(anchored) == 0
    log = read(journal)
    whole = list(log.rows)

    with closing(sqlite3.connect(journal)) as connection, connection:
        connection.execute("DELETE FROM audit WHERE seq > 8")
        connection.execute("UPDATE audit_head SET seq = 8, hash = ?", (whole[7].hash,))
    # Cut with care: the journal alone cannot tell, the head that was kept can.
    assert doctor(journal, capsys)[0] == 0
    assert run_command(anchored) == 1
    assert "row 9 of the audit is missing" in capsys.readouterr().err

    row = whole[7].head.next_row(9 * DAY, ADD)
    forged = [*whole[:8], row, row.head.next_row(10 * DAY, ADD)]
    anew = AuditLog(rows=forged, head=forged[-1].head)
    assert anew.find_break() is None
    broken = anew.find_break(anchor=AuditHead.parse(kept))
    assert broken is not None
    assert broken.seq == 10


@pytest.mark.parametrize("text", ["", "7", "x:" + "0" * 64, "1:" + "z" * 64, "1:00"])
def test_an_invalid_audit_head_is_refused(
    journal: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert run_command(["audit", "--anchor", text, "--journal", str(journal)]) == 2
    assert "is not the head of an audit" in capsys.readouterr().err


def test_the_audit_is_shown_as_a_table_as_json_and_as_lines(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def add() -> None:
        async with open_sqlite_journal(journal) as opened:
            odd = AuditEvent(actor="uid:1000", action="cancel\x1b[31m", count=3)
            opened.append_audit(11 * DAY, odd)

    trio.run(add)
    where = ("--journal", str(journal))
    assert run_command(["audit", *where]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "accepted (3 times)" in out
    assert "1970-01-02 00:00:00Z" in out

    assert run_command(["audit", "--json", *where]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [it["seq"] for it in rows] == list(range(1, 12))
    assert rows[1]["target"] == "r_1"
    assert rows[1]["hash"] == list(read(journal).rows)[1].hash

    assert run_command(["audit", "--ndjson", "--key", "ann", *where]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(it)["actor"] for it in lines] == ["key:ann"] * 10

    assert run_command(["audit", "--ndjson", "--since", "12h", *where]) == 0
    assert not capsys.readouterr().out


def test_pruned_rows_leave_a_checkpoint_that_vouches_for_them(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = list(read(journal).rows)
    now = 20 * DAY

    def prune(day: int) -> int:
        store = SQLiteStore(journal)
        return trio.run(lambda: store.prune_audit(before=day * DAY, at=now, event=ADD))

    assert prune(4) == 3
    log = read(journal)
    rows = list(log.rows)
    assert [it.seq for it in rows] == [4, 5, 6, 7, 8, 9, 10, 11]
    assert rows[:7] == before[3:]
    assert rows[-1].event.action == CHECKPOINT
    assert rows[-1].event.target == str(before[2].head)
    assert rows[-1].event.count == 3
    assert prune(4) == 0
    assert prune(7) == 3
    assert prune(99) == 6
    assert [it.event.action for it in read(journal).rows] == [CHECKPOINT]
    assert doctor(journal, capsys)[0] == 0
    change(journal, "UPDATE audit_head SET pruned_seq = pruned_seq - 1")
    assert doctor(journal, capsys)[0] == 1


def test_a_broken_chain_is_not_pruned(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(journal, "UPDATE audit SET actor = 'key:bob' WHERE seq = 4")
    where = ("--journal", str(journal))
    assert run_command(["audit", "--prune", "1d", *where]) == 2
    assert "row 4 of its audit was changed" in capsys.readouterr().err
    change(journal, "UPDATE audit SET actor = 'key:ann' WHERE seq = 4")
    assert run_command(["audit", "--prune", "1d", *where]) == 0
    assert "deleted 10 rows" in capsys.readouterr().out
    assert run_command(["audit", "--prune", "1d", *where]) == 0
    assert "no rows that are older" in capsys.readouterr().out


async def test_pruning_runs_keeps_the_audit_and_is_audited(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    store = SQLiteStore(path)
    async with open_orchestrator(path) as orchestrator:
        await orchestrator.run(worker(), "go")
        run = await orchestrator.run(worker(), "go")
        orchestrator.facts.audit(ADD)
        by = AuditEvent(actor="server", action="prune")
        book = orchestrator._engine.book
        assert (await book.prune(before=0, by=by)).runs == 0
        assert (await book.prune(before=0, only=run.id, by=by)).runs == 1
    by = AuditEvent(actor="uid:1000", action="prune")
    assert (await store.prune(before=1e12, audit=(1.0, by))).runs == 1

    rows = list(read(path).rows)
    assert [(it.event.actor, it.event.count) for it in rows] == [
        ("key:ann", 1),
        ("server", 1),
        ("uid:1000", 1),
    ]
    assert rows[1].event.target == run.id
    assert read(path).find_break() is None


async def test_a_journal_in_use_takes_no_row_from_another_process(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_sqlite_journal(path):
        with pytest.raises(JournalInUseError):
            await SQLiteStore(path).append_audit(1.0, ADD)


CRASH = """
import os, sys, trio
from pathlib import Path
from orchestrator.delegation import SessionId, encode
from orchestrator.delegation.events import Entry, MessageReceived
from orchestrator.kernel.journal.audit import AuditEvent
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal

ADD = AuditEvent(actor="key:ann", action="create_run")
ONE = SessionId("r_one")

async def main():
    async with open_sqlite_journal(Path(sys.argv[1])) as journal:
        for seq in range(1, 100_000):
            entry = Entry(seq, 1.0, ONE, MessageReceived(ONE, "hello"))
            journal.append(entry, encode(entry.event), {ONE: None})
            journal.append_audit(float(seq), ADD)
            await journal.wait_durable(seq)
            os.write(1, b"%d\\n" % seq)

trio.run(main)
"""


def test_a_killed_process_leaves_a_row_for_each_fact_and_a_whole_chain(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with subprocess.Popen(
        [sys.executable, "-c", CRASH, str(path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(20)]
        process.kill()

    log = read(path)
    with closing(sqlite3.connect(path)) as connection:
        (facts,) = connection.execute("SELECT count(*) FROM entries").fetchone()
    assert acknowledged[-1] <= log.head.seq == facts
    assert log.find_break() is None


def test_a_recorded_audit_event_is_redacted_and_bounded() -> None:
    secret = "sk-" + "a1b2c3d4" * 5
    event = AuditEvent(actor="key:ann", action="steer", target=f"x{secret}", peer="\ud800" * 900)
    clean = event.redacted(Redactor([secret]))
    assert secret not in clean.target
    assert len(clean.peer) == 200
    AuditHead().next_row(1.0, clean)


async def test_rows_that_are_appended_with_a_fact_share_its_commit(tmp_path: Path) -> None:
    async with open_sqlite_journal(tmp_path / "journal.db") as journal:
        for seq in range(1, 6):
            append(journal, [message("r_one")], first=seq)
            journal.append_audit(1.0, ADD)
            await journal.wait_durable(seq)
            await journal.wait_audited()
        assert journal.group.commits == 5
