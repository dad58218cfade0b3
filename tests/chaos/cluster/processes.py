"""The processes of a round: forked of one that has imported all they need, and signalled by name.

Run as a program it forks one for each line that it reads, and prints when each begins and ends. It
adopts what its children leave behind, so that nothing of them can hide.
"""

import ctypes
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import Final

import attrs
import trio

ROOT: Final = Path(__file__).parent.parent.parent.parent
PR_SET_CHILD_SUBREAPER: Final = 36


class Process:
    """A process that lives, or has ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid: int | None = None
        """None before it is born: no number means no process, and 0 would mean our own group."""
        self.code: int | None = None
        self.born = trio.Event()
        self.ended = trio.Event()
        self.is_disturbed = False
        """A fault was meant for it."""
        self.has_stood_still = False
        """It may begin what it was allowed to before: it does not know how long it stood still."""

    def signal(self, number: int) -> None:
        """Send a signal, if it lives."""
        if self.pid is None or self.code is not None:
            return
        self.has_stood_still |= number == signal.SIGSTOP
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Spawner:
    """Forks the processes of rounds. `open_spawner` makes one."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._living: dict[str, Process] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def living(self) -> set[int]:
        return {it.pid for it in self._living.values() if it.pid is not None}

    async def start(self, role: str, name: str, environ: Mapping[str, str]) -> Process:
        """Start a process, and return when it has an id.

        Args:
            role: `writer` or `worker`.
            name: which no other has.
            environ: besides that of this process.
        """
        assert self._process.stdin is not None
        started = self._living[name] = Process(name)
        line = json.dumps({"role": role, "name": name, "environ": dict(environ)})
        await self._process.stdin.send_all(line.encode() + b"\n")
        await started.born.wait()
        return started

    async def hear_forever(self) -> None:
        assert self._process.stdout is not None
        unread = b""
        async for read in self._process.stdout:
            *lines, unread = (unread + read).split(b"\n")
            for line in lines:
                what, name, number = line.decode().split()
                if what == "born":
                    self._living[name].pid = int(number)
                    self._living[name].born.set()
                else:
                    ended = self._living.pop(name)
                    ended.code = int(number)
                    ended.ended.set()

    def kill(self) -> None:
        for process in self._living.values():
            process.signal(signal.SIGKILL)
        self._process.kill()


@asynccontextmanager
async def open_spawner() -> AsyncGenerator[Spawner]:
    """Start the process of which others are forked, and kill all of them at the end."""
    # A killed process cannot say what it has covered, and would only be slower.
    environ = {it: os.environ[it] for it in os.environ if not it.startswith("COV")}
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.chaos.cluster.processes"],
        stdin=PIPE,
        stdout=PIPE,
        cwd=ROOT,
        env=environ,
    )
    spawner = Spawner(process)
    try:
        async with trio.open_nursery() as hearing:
            hearing.start_soon(spawner.hear_forever)
            yield spawner
            hearing.cancel_scope.cancel()
    finally:
        spawner.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def children_of(pid: int) -> list[int]:
    """Return the processes whose parent is this one, and that have not ended."""
    found: list[int] = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state not in "ZX":
                found.append(int(file.parent.name))
    return found


@attrs.frozen
class _Order:
    role: str
    name: str
    environ: dict[str, str]


def _live(order: _Order) -> int:
    """Do the work of one process, and return its exit code."""
    from tests.chaos.cluster import work

    home = Path(order.environ["CHAOS_CLUSTER_HOME"])
    output = os.open(home / f"{order.name}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(order.environ)
    return work.work_as_writer() if order.role == "writer" else work.work_as_worker()


def _fork(order: _Order) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        code = _live(order)
    except BaseException:  # noqa: BLE001 (nothing else reports what went wrong)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Fork until standard input ends."""
    from tests.chaos.cluster import work  # noqa: F401 (before anything is forked)

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    names: dict[int, tuple[str, int]] = {}
    unread = b""
    while True:
        for descriptor, _ in poll.poll():
            if descriptor in names:
                name, pid = names.pop(descriptor)
                poll.unregister(descriptor)
                os.close(descriptor)
                _, status = os.waitpid(pid, 0)
                print("died", name, os.waitstatus_to_exitcode(status), flush=True)
                continue
            read = os.read(0, 65536)
            if not read:
                return
            *lines, unread = (unread + read).split(b"\n")
            for line in lines:
                order = _Order(**json.loads(line))
                pid = _fork(order)
                born = os.pidfd_open(pid)
                poll.register(born, select.POLLIN)
                names[born] = order.name, pid
                print("born", order.name, pid, flush=True)


if __name__ == "__main__":
    main()
