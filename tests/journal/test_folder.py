"""A folder of journals: each writer has a file of its own, and readers find what is in any."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from orchestrator import JournalError, JournalInUseError, UnknownIdError, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.backends import journals_at
from orchestrator.cli.app import run_command
from orchestrator.delegation import SessionId
from orchestrator.kernel.journal.audit import AuditEvent
from orchestrator.kernel.journal.journals import Journals, open_journal
from orchestrator.kernel.journal.sqlite import folder as sqlite_folder
from tests.journal.contract.kit import append, message

pytestmark = pytest.mark.realtime

GOLDEN = Path(__file__).parent.parent / "golden" / "version_1.db"
worker = Agent("worker", model=ScriptedModel.always("done"))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return f"{tmp_path / 'runs'}/"


@pytest.fixture
def journals(folder: str) -> Journals:
    return journals_at(folder)


@pytest.fixture
def command(folder: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command([*arguments, "--journal", folder])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


async def write_runs(folder: str, goals: str) -> list[SessionId]:
    """Run an agent once for each goal, each in a journal of its own, and return the ids."""
    ids: list[SessionId] = []
    if goals:
        async with open_orchestrator(folder) as orchestrator:
            ids.append((await orchestrator.run(worker, goals[0])).id)
            ids += await write_runs(folder, goals[1:])
    return ids


async def leave_waiting(journals: Journals, session: str) -> str:
    """Leave a session that is not idle in a free journal, as a process does that is killed."""
    async with journals.open_free() as held:
        append(held.journal, [message(session)])
        await held.journal.wait_durable(1)
        return held.name


async def test_writers_that_begin_at_once_have_a_private_file_each(journals: Journals) -> None:
    names: list[str] = []
    all_open = trio.Event()

    async def hold() -> None:
        async with journals.open_free() as held:
            names.append(held.name)
            if len(names) == 8:
                all_open.set()
            await all_open.wait()

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(hold)

    assert sorted(names) == sorted(journals.names())
    assert journals.names()[:3] == ["journal.db", "journal-2.db", "journal-3.db"]
    for name in names:
        file = journals.store(name).file
        assert file is not None
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


async def test_a_journal_with_only_ended_runs_is_reused(folder: str, journals: Journals) -> None:
    await write_runs(folder, "ab")
    for _ in range(3):
        await write_runs(folder, "ab")

    assert journals.names() == ["journal.db", "journal-2.db"]
    assert journals.sessions().count == 8


async def test_a_journal_with_waiting_runs_is_left_to_their_owner(
    folder: str, journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await leave_waiting(journals, "r_1") == "journal.db"
    assert await leave_waiting(journals, "r_2") == "journal-2.db"

    assert [*journals.waiting()] == ["journal.db", "journal-2.db"]
    async with journals.open_free() as held:
        assert held.name == "journal-3.db"
    async with open_journal(journals, "r_2") as held:
        assert held.name == "journal-2.db"
        assert [*journals.waiting()] == ["journal.db"]
    # But there are not more and more of them, should all of a thousand processes be killed.
    monkeypatch.setattr(sqlite_folder, "MOST_FILES", 3)
    async with journals.open_free() as held:
        assert held.name == "journal.db"


async def test_a_session_in_the_journal_of_another_process_is_refused_with_its_name(
    folder: str, journals: Journals
) -> None:
    async with open_orchestrator(folder) as orchestrator:
        run = await orchestrator.run(worker, "go")

        with pytest.raises(JournalInUseError) as refused:
            async with open_orchestrator(folder, session=run.id):
                pass
        async with open_orchestrator(folder) as other:
            with pytest.raises(UnknownIdError, match=f"session='{run.id}'"):
                await other.resume(worker, run.id)
            with pytest.raises(UnknownIdError, match="there is no run 'r_none'"):
                await other.resume(worker, "r_none")

    assert f"process {os.getpid()} is writing it" in str(refused.value)
    assert f"orchestrator watch {run.id}" in str(refused.value)
    async with open_orchestrator(folder, session=run.id) as orchestrator:
        assert run.id in orchestrator.runs


def test_a_journal_with_unfinished_sessions_is_read_and_not_changed(
    folder: str, journals: Journals, command: Callable[..., tuple[int, str, str]]
) -> None:
    Path(folder).mkdir()
    old = Path(shutil.copyfile(GOLDEN, Path(folder, "journal.db")))
    before = old.read_bytes()
    old_ids = [it.id for it in journals.sessions().sessions]

    # Sessions wait in the old one, so it is left alone.
    (new,) = trio.run(write_runs, folder, "a")
    code, out, err = command("runs")

    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[1:]] == [*old_ids, new]
    assert command("tree", old_ids[0])[0] == 0
    assert old.read_bytes() == before


async def test_the_runs_of_all_journals_are_listed_pruned_and_deleted(
    folder: str, journals: Journals, command: Callable[..., tuple[int, str, str]]
) -> None:
    ids = await write_runs(folder, "abcd")

    def in_another_thread() -> None:
        _, out, _ = command("runs")
        assert [line.split()[0] for line in out.splitlines()[1:]] == ids
        assert "pruned 1 runs" in command("runs", "--delete", ids[2])[1]
        assert "would prune 3 runs" in command("runs", "--prune", "0h", "--dry-run")[1]
        assert "pruned 3 runs" in command("runs", "--prune", "0h")[1]

    await trio.to_thread.run_sync(in_another_thread)
    assert journals.sessions().sessions == []
    assert len(journals.names()) == 4


async def test_a_journal_that_cannot_be_read_keeps_no_other_from_being_read(
    folder: str, journals: Journals, command: Callable[..., tuple[int, str, str]]
) -> None:
    first, second = await write_runs(folder, "ab")
    damaged = journals.store("journal-2.db").file
    assert damaged is not None
    damaged.write_bytes(b"no journal" * 1000)

    def in_another_thread() -> None:
        code, out, err = command("runs")
        assert (code, first in out) == (2, True)
        assert str(damaged) in err
        assert command("tree", first)[0] == 0
        # It may be there.
        code, _, err = command("tree", second)
        assert code == 2
        assert str(damaged) in err
        code, out, _ = command("doctor")
        assert code == 1
        assert f"journal {damaged}" in out

    await trio.to_thread.run_sync(in_another_thread)


async def test_each_journal_has_its_own_audit_and_all_are_shown(
    journals: Journals, command: Callable[..., tuple[int, str, str]]
) -> None:
    async with journals.open_free() as one, journals.open_free() as two:
        for at, (held, target) in enumerate([(one, "x"), (two, "y"), (one, "z")]):
            held.journal.append_audit(at, AuditEvent(actor="me", action="test", target=target))
            await held.journal.wait_audited()

    def in_another_thread() -> None:
        code, out, _ = command("audit")
        assert code == 0
        rows = [line.split() for line in out.splitlines()[1:]]
        assert [row[5] for row in rows] == ["x", "y", "z"]
        assert [row[-1] for row in rows] == ["journal.db", "journal-2.db", "journal.db"]
        heads = command("audit", "--head")[1].split()
        assert [head.rpartition(":")[0] for head in heads] == ["journal.db:2", "journal-2.db:1"]
        anchors = [it for head in heads for it in ("--anchor", head)]
        assert command("audit", *anchors)[0] == 0
        # A head that was kept while there was one journal.
        assert command("audit", "--anchor", heads[0].partition(":")[2])[0] == 0
        wrong = heads[0].replace("journal.db", "journal-2.db")
        code, _, err = command("audit", "--anchor", wrong)
        assert code == 1
        assert "journal-2.db" in err

    await trio.to_thread.run_sync(in_another_thread)


def test_a_folder_that_others_can_write_is_refused(folder: str, journals: Journals) -> None:
    inner = Path(folder, "journals")
    inner.mkdir(parents=True)
    inner.chmod(0o777)

    with pytest.raises(JournalError, match="other users can replace the files in"):
        trio.run(leave_waiting, journals, "r_1")
    assert [*Path(folder).iterdir()] == [inner]


async def test_a_key_that_is_made_beside_runs_is_in_the_audit_once(
    journals: Journals, command: Callable[..., tuple[int, str, str]]
) -> None:
    async with journals.open_free(), journals.open_free():
        for name in ("ann", "ben"):
            code, _, err = await trio.to_thread.run_sync(command, "keys", "add", name)
            assert code == 0, err

    with journals.store("journal-3.db").open_reader() as reader:
        targets = [row.event.target for row in reader.audit().rows]
    assert targets == ["ann", "ben"]
    assert journals.names() == ["journal.db", "journal-2.db", "journal-3.db"]


@pytest.mark.parametrize("arguments", [["runs"], ["tree"], ["doctor"], ["audit"]])
def test_a_folder_without_journals_has_no_runs(
    arguments: list[str], folder: str, command: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, err = command(*arguments)

    assert code == 2
    assert "there are no runs yet" in err
    assert not Path(folder).exists()


@pytest.mark.parametrize("content", [b"no journal" * 1000, b"SQLite format 3\0" * 100])
async def test_a_damaged_free_journal_is_skipped_and_reported_once(
    folder: str, journals: Journals, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await write_runs(folder, "ab")
    damaged = journals.store("journal.db").file
    assert damaged is not None
    damaged.write_bytes(content)

    for _ in range(2):
        async with journals.open_free() as held:
            assert held.name == "journal-2.db"
    assert len(caplog.records) == 1
    assert str(damaged) in caplog.text
    assert damaged.read_bytes() == content
