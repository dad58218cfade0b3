"""Tells whether a process was started by this one, or by a command of an agent.

Its ancestors and the tags in their environments decide. A process cannot change the result by
changing its own environment (`env -i`), process group or session. Its ancestors change only if its
parents end: then the supervisor of the command adopts it, which is tagged.

Linux only, where `/proc` shows processes. This is a fence, not a wall: a command may ask a service
that it did not start (cron, systemd, a terminal multiplexer) to start a process for it, or kill its
supervisor. A command in a sandbox that is a wall reaches neither.
"""

import math
import os
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from typing import Final

import attrs
import trio

from orchestrator.agents.tools.terminal.process_tags import TAG_VARIABLE, read_tags

PROCESSES: Final = Path("/proc")
JUDGE_SECONDS: Final = 2
# A process can make that the kernel hangs when its environment is read. So many threads may.
_THREADS: Final = 8
# Parents may end meanwhile, and their children are adopted.
_WALKS: Final = 3
# Fields of /proc/PID/stat, counted after the name, which may contain anything.
_STATE_FIELD: Final = 0
_PARENT_FIELD: Final = 1
_STARTED_FIELD: Final = 19
_ENDED: Final = (b"Z", b"X")


class Origin(Enum):
    """Where a process comes from."""

    ELSEWHERE = auto()
    """A person or another program has started it. This process itself counts as such."""
    COMMAND = auto()
    """This process has started it, or a command of an agent."""
    UNKNOWN = auto()
    """It has ended, or cannot be seen."""


@attrs.frozen
class _Process:
    pid: int
    parent: int
    started: float


def origin_of(pid: int) -> Origin:
    """Return where a process comes from. It costs a few reads of `/proc` for each ancestor."""
    if pid == os.getpid():
        return Origin.ELSEWHERE
    for _ in range(_WALKS):
        try:
            line = _ancestors(pid)
            origin = _judge(line)
            if line == _ancestors(pid):
                return origin
        except ProcessLookupError:
            continue
        except OSError:
            break
    return Origin.UNKNOWN


_JUDGES: Final[trio.lowlevel.RunVar[trio.CapacityLimiter]] = trio.lowlevel.RunVar(
    "judges of processes"
)


async def judge_in_thread(judge: Callable[[], Origin]) -> Origin:
    """Return the result of a function that runs in a thread, or "unknown" if it takes long.

    A judged process could otherwise hold up the event loop.
    """
    try:
        limiter = _JUDGES.get()
    except LookupError:
        limiter = trio.CapacityLimiter(_THREADS)
        _JUDGES.set(limiter)
    with trio.move_on_after(JUDGE_SECONDS):
        return await trio.to_thread.run_sync(judge, abandon_on_cancel=True, limiter=limiter)
    return Origin.UNKNOWN


def _ancestors(pid: int) -> list[_Process]:
    """Return a process and its ancestors, the oldest one last."""
    line: list[_Process] = []
    latest = math.inf
    while pid:
        try:
            process = _read_process(pid)
        except FileNotFoundError:
            raise ProcessLookupError(pid) from None
        if process.started > latest:
            # No parent is younger than its child: the id was given to another process.
            raise ProcessLookupError(pid)
        line.append(process)
        pid, latest = process.parent, process.started
    if not line:
        raise ProcessLookupError(pid)
    return line


def _judge(line: list[_Process]) -> Origin:
    # This process may itself run in a command of another orchestrator.
    ours = {*os.environ.get(TAG_VARIABLE, "").split()}
    is_hidden = False
    for process in line:
        if process.pid == os.getpid():
            return Origin.COMMAND
        try:
            tags = read_tags(process.pid)
        except PermissionError:
            # Ancestors may be of another user (init), or hide their environment (sshd).
            is_hidden |= process is line[0]
            continue
        if tags is None:
            is_hidden = True
        elif not {*tags} <= ours:
            return Origin.COMMAND
    return Origin.UNKNOWN if is_hidden else Origin.ELSEWHERE


def _read_process(pid: int) -> _Process:
    stat = (PROCESSES / str(pid) / "stat").read_bytes()
    fields = stat.rpartition(b")")[2].split()
    if fields[_STATE_FIELD] in _ENDED:
        raise ProcessLookupError(pid)
    return _Process(pid, int(fields[_PARENT_FIELD]), int(fields[_STARTED_FIELD]))
