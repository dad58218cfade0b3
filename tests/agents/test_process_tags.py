"""Every process with a tag is found and ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import trio

from orchestrator.agents.tools.terminal.process_tags import (
    TAG_VARIABLE,
    kill_tagged,
    new_tag,
    signal_tagged_in_thread,
    tagged_processes,
    with_tag,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux shows the environment of a process"
)

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(name="start")
def start_and_end() -> Generator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start(command: str, tag: str, environ: dict[str, str] | None = None) -> object:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            env=with_tag(os.environ if environ is None else environ, tag),
            stdout=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start  # type: ignore[misc]
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(params=["pidfd", "no pidfd"], autouse=True)
def with_and_without_pidfd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old kernels and some sandboxes have none."""
    if request.param == "no pidfd":
        monkeypatch.delattr(os, "pidfd_open")


def said_by(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_process_that_left_group_session_and_parent_is_ended(start: Start) -> None:
    tag = new_tag()
    shell = start("setsid sh -c 'sleep 1000 & echo $!'; exit 0", tag)
    daemon = said_by(shell)
    assert shell.wait() == 0
    assert os.getsid(daemon) != os.getsid(0)

    assert tagged_processes(tag) == {tag: [daemon]}
    assert kill_tagged(tag) == []

    assert not is_alive(daemon)
    assert tagged_processes(tag) == {tag: []}


def test_killing_a_tag_spares_processes_of_other_tags(start: Start) -> None:
    mine, other = new_tag(), new_tag()
    end_it = start("exec sleep 1000", mine)
    leave_it = start("exec sleep 1000", other)

    assert kill_tagged(mine) == []

    assert end_it.wait() == -signal.SIGKILL
    assert leave_it.poll() is None
    assert tagged_processes(other, mine) == {other: [leave_it.pid], mine: []}


def test_tags_are_found_in_an_environment_of_any_size(start: Start) -> None:
    tag = new_tag()
    large = {f"LARGE_{number}": "x" * 100_000 for number in range(5)}
    for _ in range(20):
        # At once: it is about to become another program.
        process = start("exec sleep 1000", tag, {"PATH": os.environ["PATH"], **large})

        assert tagged_processes(tag) == {tag: [process.pid]}
        assert kill_tagged(tag) == []


def test_a_tag_in_another_variable_is_ignored(start: Start) -> None:
    """A process that only mentions the tag must not be killed."""
    tag = new_tag()
    start("exec sleep 1000", new_tag(), {f"NOT_{TAG_VARIABLE}": tag, "PATH": "/bin:/usr/bin"})

    assert tagged_processes(tag) == {tag: []}


def test_killing_an_outer_tag_ends_inner_processes(start: Start) -> None:
    outer, inner = new_tag(), new_tag()
    process = start("exec sleep 1000", inner, with_tag(os.environ, outer))

    assert kill_tagged(outer) == []

    assert process.wait() == -signal.SIGKILL


def test_a_process_that_execs_all_the_time_is_found(start: Start, tmp_path: Path) -> None:
    """In the middle of that, a process shows no environment."""
    again = tmp_path / "again"
    again.write_text(f"#!/bin/sh\nexec {again}\n")
    again.chmod(0o700)
    tag = new_tag()
    process = start(f"exec {again}", tag)

    for _ in range(100):
        assert tagged_processes(tag) == {tag: [process.pid]}
    assert kill_tagged(tag) == []

    assert process.wait() == -signal.SIGKILL


def test_a_process_without_an_environment_is_skipped_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in the middle of an exec has none either, and is looked at again for a while."""
    monkeypatch.setattr("orchestrator.agents.tools.terminal.process_tags._EXEC_SECONDS", 60)
    process = start("echo 1; exec env -i sleep 1000", new_tag())
    said_by(process)
    began = time.monotonic()

    tagged_processes(new_tag())

    assert time.monotonic() - began < 60


def test_a_process_does_not_kill_itself() -> None:
    tag = new_tag()
    code = (
        "from orchestrator.agents.tools.terminal.process_tags import kill_tagged;"
        f" print(kill_tagged({tag!r}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        env=with_tag(os.environ, tag),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=True,
    )

    assert done.stdout == b"[]\n"


def test_a_zombie_is_not_reported_as_left(start: Start) -> None:
    tag = new_tag()
    process = start("exit 3", tag)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert kill_tagged(tag) == []

    assert process.wait() == 3


def test_processes_that_come_and_go_do_not_disturb_the_search(start: Start) -> None:
    busy = start("while :; do (:) & wait; done", new_tag())

    for _ in range(30):
        assert kill_tagged(new_tag()) == []

    assert busy.poll() is None


def test_a_fork_bomb_is_ended(start: Start) -> None:
    """The next look finds processes that started after the previous one."""
    tag = new_tag()
    start("while :; do setsid sleep 1000 & echo $!; done", tag)
    start("trap '' TERM; echo 1; while :; do sleep 1000 & wait; done", tag)

    assert kill_tagged(tag) == []

    assert tagged_processes(tag) == {tag: []}


def test_a_process_that_cannot_be_killed_is_reported_in_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that waits in the kernel may do so for hours."""
    tag = new_tag()
    process = start("echo 1; exec sleep 1000", tag)
    said_by(process)
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", lambda *_: None)
        patched.setattr(signal, "pidfd_send_signal", lambda *_: None)
        began = time.monotonic()

        assert kill_tagged(tag, seconds=0.1) == [process.pid]

        assert time.monotonic() - began < 60


def test_kill_tagged_finds_no_process_without_a_process_folder(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = new_tag()
    start("exec sleep 1000", tag)

    def no_such_folder(path: str) -> list[str]:
        raise FileNotFoundError(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", no_such_folder)

        assert kill_tagged(tag) == []


@pytest.mark.realtime
async def test_concurrent_searches_share_one_look(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with thousands of processes, a look takes long."""
    looks = 0
    list_folder = os.listdir

    def counted(path: str) -> list[str]:
        nonlocal looks
        looks += 1
        return list_folder(path)

    monkeypatch.setattr(os, "listdir", counted)
    tags = [new_tag() for _ in range(20)]
    processes = [start("exec sleep 1000", tag) for tag in tags]
    ended: dict[str, list[int]] = {}

    async def end(tag: str) -> None:
        ended[tag] = await signal_tagged_in_thread(tag, signal.SIGKILL)

    async with trio.open_nursery() as nursery:
        for tag in tags:
            nursery.start_soon(end, tag)

    assert ended == {tag: [process.pid] for tag, process in zip(tags, processes, strict=True)}
    assert looks <= 2


@pytest.mark.realtime
async def test_a_cancelled_search_does_not_stop_the_others(start: Start) -> None:
    tag = new_tag()
    process = start("echo 1; exec sleep 1000", tag)
    said_by(process)
    found: list[int] = []

    async def look() -> None:
        found.extend(await signal_tagged_in_thread(tag))

    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as impatient:
            impatient.start_soon(signal_tagged_in_thread, new_tag())
            nursery.start_soon(look)
            await trio.lowlevel.checkpoint()
            impatient.cancel_scope.cancel()

    assert found == [process.pid]
