"""Finding every process that a command has left on the machine, and ending it.

What is started carries a tag in its environment, which all that descends from it inherits: also
what left its process group, its session or its parent, and also after the death of ours.

Linux only, where `/proc` shows environments; elsewhere nothing is found. Not found either is who
was started without its environment (`env -i`), overwrote it, or belongs to another user: this
cleans up after commands, and is no sandbox.
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

_ENTRY: Final = f"\0{TAG_VARIABLE}=".encode()
# The bytes of most environments, and of the largest that Linux allows.
_MOST: Final = 1 << 15
_ANY: Final = 1 << 23
# In the line of numbers on a process, counted after its name, which may hold anything.
_CODE: Final = 23
_ENVIRONMENT: Final = slice(47, 49)
# To become another program takes a process microseconds, and longer on a busy machine.
_CHANGE_SECONDS: Final = 0.5
# A thread can hang on a process that hangs itself. So many can, before nobody looks any more.
_THREADS: Final = 8


def new_tag() -> str:
    """Return a tag that nobody can guess."""
    return token_hex(16)


def with_tag(environ: Mapping[str, str], tag: str) -> dict[str, str]:
    """Return an environment with a tag, beside those that it has.

    Who runs under another orchestrator carries that one's tag too, and ends with it.
    """
    tags = [*environ.get(TAG_VARIABLE, "").split(), tag]
    return {**environ, TAG_VARIABLE: " ".join(tags)}


def tagged_processes(*tags: str) -> dict[str, list[int]]:
    """Return the ids of the processes that carry one of these tags, by tag."""
    return signal_tagged(dict.fromkeys(tags, 0))


def is_started_by_command(pid: int) -> bool:
    """Tell whether a process was started by a command of an agent, as far as can be seen."""
    # We may run in a command of another orchestrator ourselves.
    return not {*(_tags_of(pid) or ())} <= {*(_tags_of(os.getpid()) or ())}


def kill_tagged(*tags: str, seconds: float = END_SECONDS) -> list[int]:
    """Kill every process that carries one of these tags, and return those that are still there.

    It looks again until there is none, because they may start others meanwhile. Who is left
    after these seconds waits in the kernel, for a disk perhaps, and ends when that lets go of it.
    This blocks: call it in a thread.
    """
    deadline = time.monotonic() + seconds
    signals = dict.fromkeys(tags, signal.SIGKILL)
    while True:
        found = sorted(
            {pid for pids in signal_tagged(signals).values() for pid in pids}
        )
        if not found or time.monotonic() >= deadline:
            return found
        # Not until all have ended: meanwhile, others would go on starting new ones.
        _wait_ended(found, min(deadline, time.monotonic() + 0.05))


def signal_tagged(signals: Mapping[str, int]) -> dict[str, list[int]]:
    """Look at all processes once, send those with a tag the signal for it, and return them by tag.

    Signal 0 is none. Whoever ends meanwhile is passed over.
    """
    found: dict[str, list[int]] = {tag: [] for tag in signals}
    unclear = [
        pid for pid in _processes() if not _signal_if_tagged(pid, signals, found)
    ]
    deadline = time.monotonic() + _CHANGE_SECONDS
    while unclear and time.monotonic() < deadline:
        os.sched_yield()
        unclear = [pid for pid in unclear if not _signal_if_tagged(pid, signals, found)]
    return found


def open_pidfd(pid: int) -> int | None:
    """Return a file that stands for a process, and is readable when that has ended.

    None is that there cannot be one: not on this system, or not one more.

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
    """One look at all processes, on behalf of all who asked for it before it began."""

    def __init__(self) -> None:
        self.signals: dict[str, int] = {}
        self.found: dict[str, list[int]] | None = None


class _ProcessScanner:
    """Looks at all processes once for many commands, for they often end together."""

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


_SCANNER: Final[trio.lowlevel.RunVar[_ProcessScanner]] = trio.lowlevel.RunVar("lookout")


async def signal_tagged_in_thread(tag: str, sent: int = 0) -> list[int]:
    """Send all processes with a tag a signal, and return them. 0 is no signal.

    It is done in a thread, together with what others want. That thread is abandoned on
    cancellation: to look at a process that hangs in the kernel may hang too.
    """
    try:
        lookout = _SCANNER.get()
    except LookupError:
        lookout = _ProcessScanner()
        _SCANNER.set(lookout)
    return await lookout.signal_tagged(tag, sent)


def _processes() -> Iterable[int]:
    try:
        names = os.listdir("/proc")  # noqa: PTH208
    except OSError:
        return
    for name in names:
        # Not ourselves, who may well run in a command of another orchestrator.
        if name.isdecimal() and int(name) != os.getpid():
            yield int(name)


def _signal_if_tagged(
    pid: int, signals: Mapping[str, int], found: Mapping[str, list[int]]
) -> bool:
    # False is that nothing could be seen of it yet.
    tags = _tags_of(pid)
    for tag in tags or ():
        if tag in signals and _signal_process(pid, tag, signals[tag]):
            found[tag].append(pid)
    return tags is not None


def _tags_of(pid: int) -> list[str] | None:
    # Nothing of who is gone, whom we may not look at, or who has ended and nobody took notice.
    try:
        environ = _environ_of(pid)
        if not environ and _is_changing(pid):
            return None
    except OSError:
        return []
    _, _, value = (b"\0" + environ).partition(_ENTRY)
    return value.partition(b"\0")[0].decode(errors="replace").split()


def _is_changing(pid: int) -> bool:
    # Whoever is about to become another program knows where its code begins only when its
    # environment is there, or has got one since. The kernel's own and those that have ended
    # have no program to name.
    os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    begin, end = fields[_ENVIRONMENT]
    return fields[_CODE] == b"0" or begin != end


def _environ_of(pid: int) -> bytes:
    file = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
    try:
        environ = os.read(file, _MOST)
        if len(environ) == _MOST:
            # All at once: between two parts it could become another program, and show no more.
            environ = os.pread(file, _ANY, 0)
    finally:
        os.close(file)
    return environ


def _signal_process(pid: int, tag: str, sent: int) -> bool:
    # False is that it is gone.
    if sent == 0:
        return True
    file = None
    try:
        file = open_pidfd(pid)
        # The id may be another's by now. The file stays that of whom it was opened for.
        tags = _tags_of(pid)
        if tags is not None and tag in tags:
            if file is None:
                os.kill(pid, sent)
            else:
                signal.pidfd_send_signal(file, sent)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is there, and we can do nothing
    finally:
        if file is not None:
            os.close(file)
    # Who shows nothing just now is looked for again.
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
