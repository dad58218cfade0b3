"""Measures a process from inside: memory, open files, live objects, stalls of the event loop."""

import gc
import os
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import trio

BEAT_SECONDS: Final = 0.001
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Measurement(msgspec.Struct, kw_only=True):
    """The usage of a process, and the longest stall of its loop since the last measurement."""

    rss: int
    """Bytes."""
    files: int
    """Open file descriptors."""
    stall_p99: float
    stall_max: float
    """Seconds of CPU time between two turns of the loop: a busy machine does not lengthen them."""
    objects: dict[str, int]
    """The number of live objects that the garbage collector knows, by type."""


class Probe:
    """Beats in an event loop, and measures its process."""

    def __init__(self) -> None:
        self._stalls: list[float] = [0.0]
        self._is_measuring = False

    async def beat_forever(self) -> NoReturn:
        """Note how much CPU time all other tasks take for each turn of the loop."""
        while True:
            before = time.thread_time()
            await trio.sleep(BEAT_SECONDS)
            if not self._is_measuring:
                self._stalls.append(time.thread_time() - before)
            self._is_measuring = False

    def measure(self) -> Measurement:
        """Return what the process uses. It takes long, and that does not count as a stall."""
        stalls = sorted(self._stalls)
        self._stalls = [0.0]
        self._is_measuring = True
        gc.collect()
        # By the name alone: the types themselves may come and go.
        objects = Counter(type(it).__qualname__ for it in gc.get_objects())
        # The caches of `isinstance` are weak references, filled when they are needed.
        del objects[weakref.ref.__qualname__]
        resident = Path("/proc/self/statm").read_text().split()[1]
        return Measurement(
            rss=int(resident) * PAGE_BYTES,
            files=len([*Path("/proc/self/fd").iterdir()]),
            stall_p99=stalls[int(0.99 * (len(stalls) - 1))],
            stall_max=stalls[-1],
            objects=dict(objects),
        )
