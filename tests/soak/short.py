"""`python -m tests.soak.short`: the soak by number of sessions, in a process of its own.

A process that has run other tests has their garbage to collect, and their caches grow on.
"""

import importlib
import sys
import tempfile
from pathlib import Path

import trio

from orchestrator.kernel.journal import session_cache
from tests.server.kit import serving
from tests.soak import team
from tests.soak.library import SoakedLibrary
from tests.soak.server import SoakedServer
from tests.soak.slopes import Bounds, Sample, problems

SHORT = Bounds(warm_up=0, rss_per_session=40_000, objects_per_session=0.25, journal_per_fact=20_000)
"""Some memory and the log of SQLite are still being filled."""
AGENTS = (team.beating, team.helper, team.lead, team.measuring)


async def soak(folder: Path) -> list[str]:
    """Return what grows. A slow machine soaks as much: it counts sessions, not seconds."""
    session_cache.MAX_RESTING_TASKS = 20  # type: ignore[misc]
    # Trio forgets the deadlines of ended scopes when it has a thousand of them: a connection that
    # is kept for 75 seconds leaves one with every request.
    vars(importlib.import_module("trio._core._run"))["DEADLINE_HEAP_MIN_PRUNE_THRESHOLD"] = 10
    journal = folder / "journal.db"
    taken: list[Sample] = []
    async with serving(*AGENTS, journal=journal) as served:
        server = SoakedServer(served.http, journal)
        library = SoakedLibrary(served.orchestrator)
        for _ in range(9):
            await server.use()
            await library.use()
            taken.append(await server.sample())
    return problems(taken, SHORT)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        found = trio.run(soak, Path(temporary))
    sys.exit("\n".join(found) or 0)
