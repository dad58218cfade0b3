"""Finds and ends every process that a command has left on the machine, by a tag.

The tag is a variable in the environment, which all descendants inherit: also those that left the
process group, the session or the parent, and also after this process has died. A process below a
tagged process belongs to it, whatever its environment; and the supervisor of a command is tagged,
and adopts its orphans.

Linux only, where `/proc` shows environments; elsewhere no process is found. Processes of another
user are not found, and neither are processes that a foreign service started: this removes
leftovers, and a sandbox keeps a command from such services.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Final

import attrs
import trio

from orchestrator.agents.sandbox.backend import SUPERVISOR_VARIABLE

TAG_VARIABLE: Final = "ORCHESTRATOR_PROCESS"
END_SECONDS: Final = 2.0

_TAG_PREFIX: Final = f"\0{TAG_VARIABLE}=".encode()
_SUPERVISOR: Final = f"\0{SUPERVISOR_VARIABLE}=".encode()
# The bytes of most environments, and of the largest that Linux allows.
_USUAL_BYTES: Final = 1 << 15
_MAX_BYTES: Final = 1 << 23
# Fields of /proc/PID/stat, counted after the name, which may contain anything.
_STATE_FIELD: Final = 0
_PARENT_FIELD: Final = 1
_STARTED_FIELD: Final = 19
_CODE_FIELD: Final = 23
_ENVIRONMENT_FIELDS: Final = slice(47, 49)
_ENDED: Final = (b"Z", b"X")
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


def read_tags(pid: int) -> list[str] | None:
    """Return the tags of a process, None during an exec; raise `OSError` if it has ended."""
    environ = _environ_of(pid)
    if not environ and _is_in_exec(pid):
        return None
    _, _, value = (b"\0" + environ).partition(_TAG_PREFIX)
    return value.partition(b"\0")[0].decode(errors="replace").split()


def kill_tagged(*tags: str, seconds: float = END_SECONDS) -> list[int]:
    """Kill every process with one of these tags, and return those that are still there.

    It scans again until there is none, because they may start others meanwhile. A process that is
    left after these seconds waits in the kernel, and ends when that returns. This blocks: call it
    in a thread.
    """
    deadline = time.monotonic() + seconds
    signals = dict.fromkeys(tags, signal.SIGKILL)
    while True:
        found = sorted({pid for pids in signal_tagged(signals).values() for pid in pids})
        if not found:
            return found
        if time.monotonic() >= deadline:
            signal_tagged(signals, spare_supervisors=False)
            return found
        # A short wait: meanwhile, others would go on starting new ones.
        _wait_ended(found, min(deadline, time.monotonic() + 0.05))


def signal_tagged(
    signals: Mapping[str, int], *, spare_supervisors: bool = True
) -> dict[str, list[int]]:
    """Scan all processes once, send each tag's signal to its processes, and return them by tag.

    Signal 0 sends nothing. Processes that end meanwhile are skipped. A supervisor ends by itself
    after the processes that it supervises, and is found but spared: until then no process can leave
    its tree. A command may have marked its own process as a supervisor, so the last round spares
    none.
    """
    found: dict[str, list[int]] = {tag: [] for tag in signals}
    unclear = [
        pid for pid in _processes() if not _signal_if_tagged(pid, signals, found, spare_supervisors)
    ]
    deadline = time.monotonic() + _EXEC_SECONDS
    while unclear and time.monotonic() < deadline:
        os.sched_yield()
        unclear = [
            pid for pid in unclear if not _signal_if_tagged(pid, signals, found, spare_supervisors)
        ]
    if any(found.values()):
        children = _children()
        for tag, sent in signals.items():
            _signal_below(found[tag], sent, children)
    return found


def open_pidfd(pid: int) -> int | None:
    """Return a descriptor of a process that becomes readable when the process has ended.

    None means that there is none: not on this system, or too many are open. Raise
    `ProcessLookupError` if there is no such process.
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
                    signal_tagged, mine.signals, abandon_on_cancel=True, limiter=self._threads
                )
        return mine.found[tag]


_SCANNER: Final[trio.lowlevel.RunVar[_ProcessScanner]] = trio.lowlevel.RunVar("process scanner")


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


async def kill_supervisors_in_thread(tag: str) -> None:
    """Kill all processes with a tag, also those that say that they are supervisors."""
    kill = partial(signal_tagged, {tag: signal.SIGKILL}, spare_supervisors=False)
    await trio.to_thread.run_sync(kill, abandon_on_cancel=True)


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
    pid: int, signals: Mapping[str, int], found: Mapping[str, list[int]], spare_supervisors: bool
) -> bool:
    # False: its environment is not visible yet.
    tags = _tags_of(pid)
    for tag in tags or ():
        if tag not in signals:
            continue
        is_spared = signals[tag] and spare_supervisors and _is_supervisor(pid)
        sent = 0 if is_spared else signals[tag]
        if _signal_process(pid, partial(_has_tag, pid, tag), sent):
            found[tag].append(pid)
    return tags is not None


def _has_tag(pid: int, tag: str) -> bool | None:
    tags = _tags_of(pid)
    return None if tags is None else tag in tags


@attrs.frozen
class _Child:
    pid: int
    started: bytes


def _children() -> dict[int, list[_Child]]:
    """Return the children of all processes, by the id of the parent."""
    children: dict[int, list[_Child]] = {}
    for pid in _processes():
        with suppress(OSError):
            fields = _stat_of(pid)
            if fields[_STATE_FIELD] not in _ENDED:
                parent = int(fields[_PARENT_FIELD])
                child = _Child(pid, fields[_STARTED_FIELD])
                children.setdefault(parent, []).append(child)
    return children


def _signal_below(found: list[int], sent: int, children: Mapping[int, list[_Child]]) -> None:
    """Signal the untagged processes below the found ones, and add them."""
    known = {*found}
    for pid in found:  # it grows
        for child in children.get(pid, ()):
            if child.pid not in known and _signal_process(
                child.pid, partial(_is_same, child), sent
            ):
                known.add(child.pid)
                found.append(child.pid)


def _is_same(child: _Child) -> bool:
    try:
        return _stat_of(child.pid)[_STARTED_FIELD] == child.started
    except OSError:
        return False


def _is_supervisor(pid: int) -> bool:
    """Return whether a process says that it waits for all that a command has started."""
    try:
        return _SUPERVISOR in b"\0" + _environ_of(pid)
    except OSError:
        return False


def _tags_of(pid: int) -> list[str] | None:
    # Empty if it is gone, belongs to another user, or is a zombie. None in the middle of an exec.
    try:
        return read_tags(pid)
    except OSError:
        return []


def _is_in_exec(pid: int) -> bool:
    # In the middle of an exec, the address of the code is set only after the environment, or an
    # environment has appeared since. Kernel threads and zombies have no exe to read.
    os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    fields = _stat_of(pid)
    begin, end = fields[_ENVIRONMENT_FIELDS]
    return fields[_CODE_FIELD] == b"0" or begin != end


def _stat_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


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


def _signal_process(pid: int, is_same: Callable[[], bool | None], sent: int) -> bool:
    # False: it is gone.
    if sent == 0:
        return True
    file = None
    try:
        file = open_pidfd(pid)
        # The id may have been reused by now; the descriptor stays bound to its process.
        same = is_same()
        if same:
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
    return same is not False


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
