"""Full disks, damaged files, clocks and signals; all with real files.

In each case: one clear error, no traceback, no hang, and whatever was acknowledged is in the file.
"""

import errno
import fcntl
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from orchestrator import JournalError, JournalInUseError, open_orchestrator
from orchestrator.delegation.events import ReplyDelivered, TurnEnded
from orchestrator.kernel.journal.group_commit import GroupCommit
from orchestrator.kernel.journal.sqlite.check import check_journal
from orchestrator.kernel.journal.sqlite.journal import (
    open_sqlite_journal,
    read_sqlite_journal,
    writer_of,
)
from orchestrator.kernel.journal.sqlite.lock import lock_path
from orchestrator.kernel.journal.store import Level
from tests.kit import facts, worker

pytestmark = pytest.mark.realtime

TALKER = """
import ctypes, os, platform, resource, struct, sys
from pathlib import Path
import trio
from orchestrator.agents import Agent, ScriptedModel
from orchestrator import OrchestratorError, open_orchestrator
from orchestrator.kernel.journal.sqlite.check import check_journal

libc = ctypes.CDLL(None, use_errno=True)

def fill(path):
    size = os.stat(f"{path}-wal").st_size + 50_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def break_fsync(path):
    # The kernel answers EIO to fsync and fdatasync from now on, in all threads.
    calls = {"x86_64": (317, 74, 75), "aarch64": (277, 82, 83)}
    seccomp, fsync, fdatasync = calls[platform.machine()]
    load, jump, answer = 0x20, 0x15, 0x06
    lines = [(load, 0, 0, 0), (jump, 1, 0, fsync), (jump, 0, 1, fdatasync),
             (answer, 0, 0, 0x00050005), (answer, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    buffer = ctypes.create_string_buffer(program)
    packed = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(buffer))
    header = ctypes.create_string_buffer(packed)
    if libc.prctl(38, 1, 0, 0, 0) or libc.syscall(seccomp, 1, 1, header):
        print("impossible: this kernel lets nobody filter system calls", flush=True)
        sys.exit(3)

def drop_privileges():
    # Root may write anything; root without capabilities is anybody.
    header = struct.pack("Ii", 0x20080522, 0)
    libc.capset(header, bytes(24))

FAULTS = {
    "none": lambda path: None,
    "full": fill,
    "fsync": break_fsync,
    "deleted": os.unlink,
    "replaced": lambda path: (os.rename(path, f"{path}.old"), Path(path).touch()),
    "wal": lambda path: os.unlink(f"{path}-wal"),
    "lock": lambda path: os.unlink(f"{path}.lock"),
}

async def main(path, fault, turns):
    agent = Agent("talker", model=ScriptedModel.always("x" * 300))
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            for number in range(int(turns)):
                if number == 3:
                    FAULTS[fault](path)
                reply = await session.ask("go")
                print("reply", reply.turn, flush=True)
                if fault == "none":
                    sys.stdin.readline()

if sys.argv[4:] == ["unprivileged"]:
    drop_privileges()
try:
    if sys.argv[3] == "0":
        found = list(check_journal(Path(sys.argv[1])))
        print("\\n".join(it.text for it in found if it.level == "wrong") or "healthy")
        sys.exit()
    trio.run(main, *sys.argv[1:4])
except OrchestratorError as exc:
    # Whoever measures the coverage of this process has something to write, too.
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    print("error", exc, flush=True)
    sys.exit(1)
"""


def start_talking(
    path: Path, fault: str, *, turns: int = 300, as_anybody: bool = False
) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TALKER, str(path), fault, str(turns)]
    return subprocess.Popen(
        [*command, "unprivileged"] if as_anybody else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def talk(
    path: Path, fault: str, *, turns: int = 300, as_anybody: bool = False
) -> tuple[list[int], str]:
    """Let a process talk until the fault ends it; return its last words, and what it was told."""
    with start_talking(path, fault, turns=turns, as_anybody=as_anybody) as process:
        out, err = process.communicate(timeout=60)
    if process.returncode == 3:
        pytest.skip(out.strip())
    assert "Traceback" not in err, err
    lines = out.splitlines()
    replies = [int(line.split()[1]) for line in lines if line.startswith("reply")]
    problem = lines[-1] if lines[-1].startswith("error") else ""
    assert process.returncode == (1 if problem else 0), err
    return replies, problem


def require_all_there(path: Path, replies: Sequence[int]) -> None:
    entries = trio.run(read_sqlite_journal, path)
    ended = {fact.turn for fact in facts(entries, TurnEnded)}
    assert set(replies) <= ended
    # The last one may have been told in the very moment in which writing ended.
    assert set(replies[:-1]) <= {fact.turn for fact in facts(entries, ReplyDelivered)}
    assert not wrong(path)


def wrong(path: Path) -> list[str]:
    return [found.text for found in check_journal(path) if found.level is Level.WRONG]


@pytest.mark.parametrize(
    ("fault", "says"), [("full", "(is full|disk I/O error)"), ("fsync", "I/O error")]
)
def test_a_failing_disk_ends_the_process_without_loss(
    tmp_path: Path, fault: str, says: str
) -> None:
    """Full is a limit on the size of files; fsync fails in the kernel, by a filter."""
    path = tmp_path / "journal.db"
    if fault == "fsync" and platform.machine() not in {"x86_64", "aarch64"}:
        pytest.skip("nobody has looked up the numbers of its system calls")

    replies, problem = talk(path, fault)

    assert 3 <= len(replies) < 300
    assert problem.startswith(f"error journal {path}: ")
    assert re.search(says, problem)
    require_all_there(path, replies)
    # With room again, the same journal goes on.
    again, problem = talk(path, "lock", turns=5)
    assert (again, problem) == ([1, 2, 3, 4, 5], "")


@pytest.mark.parametrize("fault", ["deleted", "replaced", "wal"])
def test_an_entry_written_to_a_removed_file_is_not_called_durable(
    tmp_path: Path, fault: str
) -> None:
    replies, problem = talk(tmp_path / "journal.db", fault)

    assert replies == [1, 2, 3]
    assert "it was removed or replaced while it was open" in problem


async def test_an_idle_run_is_not_searched_in_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        run = await orchestrator.run(worker(), "go")
    async with open_orchestrator(path) as later:
        path.unlink()
        with pytest.raises(JournalError, match="there is no such file"):
            await later.read_tree(run.id)
    assert not (tmp_path / "journal.db").exists()


def test_a_removed_lock_file_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with start_talking(path, "none") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "reply 1\n"
        lock_path(path).unlink()
        assert writer_of(path) is None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "reply 2\n"
        assert writer_of(path) == process.pid
        process.kill()
    assert writer_of(path) is None


def test_a_writer_that_lost_its_lock_to_another_stops_with_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with start_talking(path, "none") as first:
        assert first.stdout is not None
        assert first.stdin is not None
        first.stdout.readline()
        lock_path(path).unlink()
        with start_talking(path, "none") as second:
            assert second.stdout is not None
            assert second.stdout.readline() == "reply 1\n"
            first.stdin.write("\n")
            first.stdin.close()
            told = first.stdout.read()
            first.wait(60)
            second.kill()

    assert f"process {second.pid} is writing it" in told.splitlines()[-1]
    assert first.returncode == 1
    assert not wrong(path)


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_read_only_journal_is_refused_by_name(tmp_path: Path, what: str) -> None:
    """As root without its capabilities, whom permissions bind like anybody."""
    folder = tmp_path / "folder"
    path = folder / "journal.db"
    talk(path, "lock", turns=2)
    path.chmod(0o400) if what == "file" else path.unlink()
    folder.chmod(0o500)
    try:
        replies, problem = talk(path, "lock", turns=2, as_anybody=True)
    finally:
        folder.chmod(0o700)

    assert not replies
    assert problem.startswith(f"error journal {path}: ")
    assert "ermission denied" in problem


def test_a_read_only_journal_is_still_shown(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "journal.db"
    talk(path, "lock", turns=2)
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with start_talking(path, "none", turns=0, as_anybody=True) as process:
            out, _ = process.communicate(timeout=60)
    finally:
        path.parent.chmod(0o700)

    assert out.splitlines()[0] == "healthy"
    assert sorted(file.name for file in path.parent.iterdir()) == ["journal.db", "journal.db.lock"]


def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.touch(0o600)

    with pytest.raises(JournalError, match="it is empty: nothing was ever written"):
        trio.run(read_sqlite_journal, path)
    assert not wrong(path)
    assert talk(path, "lock", turns=1) == ([1], "")


def test_two_processes_that_begin_at_once_never_both_write(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    processes = [start_talking(path, "none") for _ in range(3)]
    firsts = [process.stdout.readline() for process in processes if process.stdout]
    for process in processes:
        process.kill()
        process.communicate()

    assert sorted(line[:5] for line in firsts) == ["error", "error", "reply"]
    winner = processes[[line[:5] for line in firsts].index("reply")]
    assert all(
        line == "reply 1\n" or f"process {winner.pid} is writing it" in line for line in firsts
    )


LOOKER = """
import sys
from pathlib import Path
from orchestrator.kernel.journal.sqlite.lock import writer_of
print("looking", flush=True)
while True:
    writer_of(Path(sys.argv[1]))
"""


def start(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def test_processes_that_test_the_lock_keep_no_writer_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_sqlite_journal(path):
        pass
    command = [sys.executable, "-c", LOOKER, str(path)]
    lookers = [start(command) for _ in range(3)]
    try:
        for looker in lookers:
            assert looker.stdout is not None
            assert looker.stdout.readline() == "looking\n"
        for _ in range(100):
            async with open_sqlite_journal(path):
                assert writer_of(path) == os.getpid()
    finally:
        for looker in lookers:
            looker.kill()
            looker.communicate()


async def test_a_process_that_is_suspended_while_it_tests_the_lock_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.kernel.journal.sqlite.lock.LOCK_ATTEMPTS", 3)
    path = tmp_path / "journal.db"
    async with open_sqlite_journal(path):
        pass
    with lock_path(path).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        with pytest.raises(JournalInUseError, match="other processes test its lock file"):
            async with open_sqlite_journal(path):
                pass
    async with open_sqlite_journal(path):
        pass


def test_a_reused_process_id_is_not_a_writer(tmp_path: Path) -> None:
    """After kill -9 the number stays in the file, and the system may reuse it."""
    path = tmp_path / "journal.db"
    lock_path(path).write_text(str(os.getpid()))

    assert writer_of(path) is None


def test_a_writer_that_was_suspended_for_a_while_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with start_talking(path, "none", turns=4) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        process.stdin.write("\n" * 4)
        process.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        assert writer_of(path) == process.pid
        assert not wrong(path)
        _, problem = talk(path, "lock", turns=1)
        assert f"process {process.pid} is writing it" in problem
        process.send_signal(signal.SIGCONT)
        told, _ = process.communicate(timeout=60)

    assert told.split("\n")[:3] == ["reply 2", "reply 3", "reply 4"]
    assert process.returncode == 0
    require_all_there(path, [1, 2, 3, 4])


async def test_a_clock_set_back_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    now = 2_000_000_000.0

    def set_clock(seconds: float) -> None:
        clock = SimpleNamespace(time=lambda: now + seconds)
        monkeypatch.setattr("orchestrator.composition.time", clock)

    set_clock(0)
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(worker()) as session:
            await session.ask("go")
            set_clock(-86_400)
            await session.ask("go on")
    within = [entry.at for entry in await read_sqlite_journal(path)]
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(worker(), session=session.id) as later:
            assert (await later.ask("and on")).turn == 3
            assert "worker" in later.tree.to_text()
        run = await orchestrator.run(worker(), "go")
    entries = await read_sqlite_journal(path)

    assert within == sorted(within)
    assert within[0] >= now
    assert entries[-1].at < now
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    async with open_orchestrator(path) as orchestrator:
        assert orchestrator.runs == [session.id, run.id]
    assert not wrong(path)


async def test_a_commit_that_the_system_fails_fails_every_wait_at_once() -> None:
    def fail(_: Sequence[str]) -> None:
        raise OSError(errno.EIO, "Input/output error")

    group = GroupCommit(fail)
    group.append(1, "row")
    with trio.fail_after(5), pytest.RaisesGroup(OSError, OSError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.wait_durable, 1)
            nursery.start_soon(group.commit_forever, trio.CancelScope())


async def test_a_failed_commit_raises_one_error_and_sends_no_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    told: list[int] = []

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def talk_until_it_fails() -> None:
        async with open_orchestrator(path) as orchestrator:
            async with orchestrator.open_session(worker()) as session:
                while True:
                    told.append((await session.ask("go")).turn)
                    if len(told) == 3:
                        monkeypatch.setattr(
                            "orchestrator.kernel.journal.sqlite.journal.write_entries", fail
                        )

    with trio.fail_after(30), pytest.raises(JournalError, match="Input/output error"):
        await talk_until_it_fails()
    assert told == [1, 2, 3]
    ended = facts(await read_sqlite_journal(path), TurnEnded)
    assert [fact.turn for fact in ended] == told
