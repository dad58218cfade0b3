"""Chooses the journal of the orchestrator's tests: memory, or Postgres on request.

`pytest --journal postgres tests/orchestrator` opens a journal in a database wherever a test opens
one in memory or in a file, so that the same tests hold for it. A test that looks at something in
the moment in which it is durable in memory, or that reads the file of its journal, says so with
`memory_only`.
"""

import math
import os
from collections.abc import Generator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import composition
from orchestrator.backends import IN_MEMORY, is_database, journals_at, store_at
from orchestrator.kernel.journal.journals import Journals
from orchestrator.kernel.journal.separate_journals import OneJournal
from tests.postgres import PostgresServer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--journal",
        choices=("usual", "postgres"),
        default="usual",
        help="where orchestrators of tests keep their journals, if a test does not care",
    )


@pytest.fixture(scope="session")
def house_database(request: pytest.FixtureRequest) -> Generator[str]:
    """The database of all tests that do not care where their journals are."""
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.new_database() as url:
        yield url


@pytest.fixture(autouse=True)
def house_journal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the journals of this test where the option says."""
    if request.config.getoption("--journal") != "postgres":
        return
    if request.node.get_closest_marker("memory_only"):
        pytest.skip("it looks at what was not awaited, or at a file")
    url: str = request.getfixturevalue("house_database")
    numbers = count(1)

    def open_there(address: str | os.PathLike[str], *, host: str = "") -> Journals:
        text = os.fspath(address)
        if is_database(text):
            return journals_at(text, host=host)
        # One in memory is a new one each time; one in a file is found again by its path.
        name = f"{id(request)}-{next(numbers)}"
        if text != IN_MEMORY:
            name = f"file-{sha256(bytes(Path(text).absolute())).hexdigest()[:20]}"
        # Long: the clock of these tests jumps over days.
        store = store_at(f"{url}&journal={name}&lease=86400")
        return OneJournal(text, name, store)

    monkeypatch.setattr(composition, "journals_at", open_there)
    monkeypatch.setattr(trio.to_thread, "run_sync", ThreadsStopTheClock().run_sync)


class ThreadsStopTheClock:
    """Runs functions in threads; meanwhile a jumping clock does not jump."""

    def __init__(self) -> None:
        self._running = 0
        self._run_sync = trio.to_thread.run_sync

    async def run_sync(self, *args: Any, **options: Any) -> Any:
        clock = trio.lowlevel.current_clock()
        if not isinstance(clock, trio.testing.MockClock):
            return await self._run_sync(*args, **options)
        self._running += 1
        clock.autojump_threshold = math.inf
        try:
            return await self._run_sync(*args, **options)
        finally:
            self._running -= 1
            if not self._running:
                clock.autojump_threshold = 0
