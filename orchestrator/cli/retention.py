"""The retention of a server: deletes ended runs by their age, and by the size of the journal.

Both prune the oldest runs first, while the server runs. Live runs, and replies that no client has
taken, are kept at any age and size.
"""

import re
from pathlib import Path
from typing import Final, NoReturn

import attrs
import trio

from orchestrator.cli.errors import CommandError
from orchestrator.ports.journals import SERVER, AuditEvent
from orchestrator.ports.sessions import Orchestrator

AGE_SECONDS: Final = 3600
"""The seconds between two searches for runs that have grown too old."""
SIZE_SECONDS: Final = 60
"""The seconds between two looks at the size of the file."""
STEPS: Final = 10
"""A journal that is too large loses its oldest part of this many in one step."""
DEFAULT_DAYS: Final = 90
"""The days that a server keeps ended runs by default."""
UNITS: Final = {"MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_size(size: str, option: str) -> int:
    """Return the bytes of a size such as 500MB or 2GB."""
    found = re.fullmatch(r"([0-9]{1,6})([MGT]B)", size.strip().upper())
    if found is None:
        raise CommandError(f"{option} is {size!r}; say how much: 500MB, 2GB or 1TB")
    return int(found[1]) * UNITS[found[2]]


@attrs.frozen(kw_only=True)
class Retention:
    """The largest age of ended runs, and the largest size of a journal."""

    seconds: int | None = None
    size: int | None = None
    """The most bytes of each journal."""
    is_default: bool = False
    """Whether no option asked for it: the first runs are deleted an hour after the start."""

    def require_file(self, *, is_database: bool) -> None:
        """Refuse a size for a database, whose journals have no size of their own."""
        if is_database and self.size is not None:
            raise CommandError("--keep-size is for journals in files: use --keep")

    async def prune_forever(self, orchestrator: Orchestrator, file: Path | None) -> NoReturn:
        """Delete runs that are too old or too many, from time to time."""
        # A person who reads the announcement has time to choose another age.
        next_age = trio.current_time() + AGE_SECONDS if self.is_default else 0.0
        while True:
            now = trio.current_time()
            if self.seconds is not None and now >= next_age:
                next_age = now + AGE_SECONDS
                await _prune(orchestrator, orchestrator.now() - self.seconds)
            if self.size is not None and file is not None:
                await _prune_to_size(orchestrator, file, self.size)
            await trio.sleep(AGE_SECONDS if self.size is None else SIZE_SECONDS)


async def _prune(orchestrator: Orchestrator, before: float) -> int:
    """Delete the idle runs without a newer fact, and return their number."""
    by = AuditEvent(actor=SERVER, action="prune")
    return (await orchestrator.prune(before=before, by=by)).runs


async def _prune_to_size(orchestrator: Orchestrator, file: Path, size: int) -> None:
    """Delete the oldest runs until the journal is small enough, or no idle run is left."""
    await trio.lowlevel.checkpoint()
    while size_on_disk(file) > size:
        runs = orchestrator.runs
        last_times = [
            last
            for run in runs[: 1 + len(runs) // STEPS]
            if (last := await orchestrator.read.last_time(run))
        ]
        # By the clock of the facts; a run whose last fact is the newest of these is among them.
        before = max(last_times, default=0) + 1e-3
        if not await _prune(orchestrator, before):
            return


def size_on_disk(file: Path) -> int:
    """Return the size of a journal, with the log beside it."""
    files = (file, file.with_name(f"{file.name}-wal"))
    return sum(it.stat().st_size for it in files if it.exists())
