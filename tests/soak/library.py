"""Soaks an orchestrator in a process of its own, as a program does that opens sessions for ever.

    python -m tests.soak.library JOURNAL SECONDS_BETWEEN_SAMPLES

It prints a sample as a line of JSON, again and again, until its standard input is closed.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final, NoReturn

import msgspec
import trio

from orchestrator import Machine, Orchestrator, open_orchestrator
from tests.server.server_process import ROOT
from tests.soak.server import journal_bytes
from tests.soak.slopes import Sample
from tests.soak.team import helper, lead, probe

WORKERS: Final = 8


class SoakedLibrary:
    """An orchestrator, and how many sessions were opened in it."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self.sessions = 0

    async def use_forever(self) -> NoReturn:
        while True:
            await self.use()

    async def use(self) -> None:
        """Open a session, one with detached tasks whose last reply is not taken, and a run."""
        orchestrator = self._orchestrator
        async with orchestrator.open_session(helper) as session:
            await session.ask("go")
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()
        await orchestrator.run(lead, "go")
        self.sessions += 3


async def main(journal: Path, pause: float) -> None:
    async with open_orchestrator(journal, machine=Machine(environ={})) as orchestrator:
        library = SoakedLibrary(orchestrator)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(probe.beat_forever)
            for _ in range(WORKERS):
                nursery.start_soon(library.use_forever)
            nursery.start_soon(_print_forever, library, orchestrator, journal, pause)
            async with trio.lowlevel.FdStream(0) as stdin:
                await stdin.receive_some()
            nursery.cancel_scope.cancel()


async def _print_forever(
    library: SoakedLibrary, orchestrator: Orchestrator, journal: Path, pause: float
) -> NoReturn:
    while True:
        await trio.sleep(pause)
        sample = Sample(
            sessions=library.sessions,
            facts=orchestrator.read.last_seq,
            journal_bytes=journal_bytes(journal),
            measured=probe.measure(),
        )
        print(msgspec.json.encode(sample).decode(), flush=True)


@asynccontextmanager
async def soaking_library(
    folder: Path, *, resting_tasks: str, pause: float, samples: list[Sample]
) -> AsyncGenerator[None]:
    """Run such a process as long as the block lasts, and collect its samples."""
    command = [sys.executable, "-m", "tests.soak.library"]
    environ = {"PYTHONPATH": str(ROOT), "SOAK_RESTING_TASKS": resting_tasks}
    process = await trio.lowlevel.open_process(
        [*command, str(folder / "library.db"), str(pause)],
        stdin=PIPE,
        stdout=PIPE,
        env=environ,
        cwd=ROOT,
    )
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_collect, process, samples)
            yield
            assert process.stdin is not None
            await process.stdin.aclose()
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()


async def _collect(process: trio.Process, samples: list[Sample]) -> None:
    assert process.stdout is not None
    received = b""
    async for chunk in process.stdout:
        *lines, received = (received + chunk).split(b"\n")
        samples += [msgspec.json.decode(line, type=Sample) for line in lines]


if __name__ == "__main__":
    _, path, seconds = sys.argv
    arguments: Any = (Path(path), float(seconds))
    trio.run(main, *arguments)
