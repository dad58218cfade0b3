"""Finds and ends every process that a command has left on the machine, by a tag.

The tag is a variable in the environment, which all descendants inherit: also those that left the
process group, the session or the parent, and also after this process has died.

Linux only, where `/proc` shows environments; elsewhere nothing is found. Also not found are
processes that were started without the environment (`env -i`), overwrote it, or belong to another
user: this removes leftovers, and is no sandbox.
"""

import os
import select
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

import trio

TAG_VARIABLE: Final = "ORCHESTRATOR_PROCESS"
END_SECONDS: Final = 2.0

_TAG_PREFIX: Final = f"\0{TAG_VARIABLE}=".encode()
# The bytes of most environments, and of the largest that Linux allows.
_USUAL_BYTES: Final = 1 << 15
_MAX_BYTES: Final = 1 << 23
# Fields of /proc/PID/stat, counted after the name, which may contain anything.
_CODE_FIELD: Final = 23
_ENVIRONMENT_FIELDS: Final = slice(47, 49)
# An exec takes microseconds, and longer on a busy machine.
_EXEC_SECONDS: Final = 0.5
# A scan can hang on a process that hangs in the kernel. So many scans may.
_THREADS: Final = 8


def new_tag() -> str:
    """Return a random tag."""
    return token_hex(16)


def with_tag(environ: Mapping[str, str], tag: str) -> dict[str, str]:
    """Return an environment with a tag, beside those that it has.

    A process that runs under another orchestrator has the tag of that one too, and ends with it.
    """
    tags = [*environ.get(TAG_VARIABLE, "").split(), tag]
    return {**environ, TAG_VARIABLE: " ".join(tags)}


def tagged_processes(*tags: str) -> dict[str, list[int]]:
    """Return the ids of the processes that carry one of these tags, by tag."""
    return signal_tagged(dict.fromkeys(tags, 0))


def is_started_by_command(pid: int) -> bool:
    """Return whether a process was started by a command of an agent, as far as visible."""
    # This process may itself run in a command of another orchestrator.
    return not {*(_tags_of(pid) or ())} <= {*(_tags_of(os.getpid()) or ())}


def kill_tagged(*tags: str, seconds: float = END_SECONDS) -> list[int]:
    """Kill every process with one of these tags, and return those that are still there.

    It scans again until there is none, because they may start others meanwhile. A process that is
    left after these seconds waits in the kernel, and ends when that returns. This blocks: call it
    in a thread.
    """
    deadline = time.monotonic() + seconds
    signals = dict.fromkeys(tags, signal.SIGKILL)
    while True:
        found = sorted(
            {pid for pids in signal_tagged(signals).values() for pid in pids}
        )
        if not found or time.monotonic() >= deadline:
            return found
        # A short wait: meanwhile, others would go on starting new ones.
        _wait_ended(found, min(deadline, time.monotonic() + 0.05))


def signal_tagged(signals: Mapping[str, int]) -> dict[str, list[int]]:
    """Scan all processes once, send each tag's signal to its processes, and return them by tag.

    Signal 0 is none. Processes that end meanwhile are skipped.
    """
    found: dict[str, list[int]] = {tag: [] for tag in signals}
    unclear = [
        pid for pid in _processes() if not _signal_if_tagged(pid, signals, found)
    ]
    deadline = time.monotonic() + _EXEC_SECONDS
    while unclear and time.monotonic() < deadline:
        os.sched_yield()
        unclear = [pid for pid in unclear if not _signal_if_tagged(pid, signals, found)]
    return found


def open_pidfd(pid: int) -> int | None:
    """Return a descriptor of a process that becomes readable when the process has ended.

    None means that there is none: not on this system, or too many are open.

    Raises:
        ProcessLookupError: there is no such process.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


class _Scan:
    """One scan of all processes, for all commands that asked before it began."""

    def __init__(self) -> None:
        self.signals: dict[str, int] = {}
        self.found: dict[str, list[int]] | None = None


class _ProcessScanner:
    """Scans all processes once for many commands, since they often end together."""

    def __init__(self) -> None:
        self._next = _Scan()
        self._lock = trio.Lock()
        self._threads = trio.CapacityLimiter(_THREADS)

    async def signal_tagged(self, tag: str, sent: int) -> list[int]:
        mine = self._next
        mine.signals[tag] = sent
        async with self._lock:
            if mine.found is None:
                if self._next is mine:
                    self._next = _Scan()
                mine.found = await trio.to_thread.run_sync(
                    signal_tagged,
                    mine.signals,
                    abandon_on_cancel=True,
                    limiter=self._threads,
                )
        return mine.found[tag]


_SCANNER: Final[trio.lowlevel.RunVar[_ProcessScanner]] = trio.lowlevel.RunVar(
    "process scanner"
)


async def signal_tagged_in_thread(tag: str, sent: int = 0) -> list[int]:
    """Send a signal to all processes with a tag, and return them. 0 is no signal.

    The scan runs in a thread, shared with other callers. The thread is abandoned on cancellation:
    reading about a process that hangs in the kernel may hang too.
    """
    try:
        scanner = _SCANNER.get()
    except LookupError:
        scanner = _ProcessScanner()
        _SCANNER.set(scanner)
    return await scanner.signal_tagged(tag, sent)


def _processes() -> Iterable[int]:
    try:
        names = os.listdir("/proc")  # noqa: PTH208
    except OSError:
        return
    for name in names:
        # Not this process, which may itself run in a command of another orchestrator.
        if name.isdecimal() and int(name) != os.getpid():
            yield int(name)


def _signal_if_tagged(
    pid: int, signals: Mapping[str, int], found: Mapping[str, list[int]]
) -> bool:
    # False: its environment is not visible yet.
    tags = _tags_of(pid)
    for tag in tags or ():
        if tag in signals and _signal_process(pid, tag, signals[tag]):
            found[tag].append(pid)
    return tags is not None


def _tags_of(pid: int) -> list[str] | None:
    # Empty if it is gone, belongs to another user, or is a zombie. None in the middle of an exec.
    try:
        environ = _environ_of(pid)
        if not environ and _is_in_exec(pid):
            return None
    except OSError:
        return []
    _, _, value = (b"\0" + environ).partition(_TAG_PREFIX)
    return value.partition(b"\0")[0].decode(errors="replace").split()


def _is_in_exec(pid: int) -> bool:
    # In the middle of an exec, the address of the code is set only after the environment, or an
    # environment has appeared since. Kernel threads and zombies have no exe to read.
    os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    begin, end = fields[_ENVIRONMENT_FIELDS]
    return fields[_CODE_FIELD] == b"0" or begin != end


def _environ_of(pid: int) -> bytes:
    file = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
    try:
        environ = os.read(file, _USUAL_BYTES)
        if len(environ) == _USUAL_BYTES:
            # In one read: between two reads an exec could replace it.
            environ = os.pread(file, _MAX_BYTES, 0)
    finally:
        os.close(file)
    return environ


def _signal_process(pid: int, tag: str, sent: int) -> bool:
    # False: it is gone.
    if sent == 0:
        return True
    file = None
    try:
        file = open_pidfd(pid)
        # The id may have been reused by now; the descriptor stays bound to its process.
        tags = _tags_of(pid)
        if tags is not None and tag in tags:
            if file is None:
                os.kill(pid, sent)
            else:
                signal.pidfd_send_signal(file, sent)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it exists, and belongs to another user
    finally:
        if file is not None:
            os.close(file)
    # A process in the middle of an exec is scanned again.
    return tags is None or tag in tags


def _wait_ended(pids: Iterable[int], deadline: float) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            file = open_pidfd(pid)
            if file is None:
                continue
            try:
                waiting = select.poll()
                waiting.register(file, select.POLLIN)
                waiting.poll(max(0, deadline - time.monotonic()) * 1000)
            finally:
                os.close(file)
