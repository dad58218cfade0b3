"""The stores that the contract is tested on. A new backend adds a line to `BACKENDS`."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from orchestrator.backends import store_at
from orchestrator.kernel.journal.memory import MemoryStore
from orchestrator.kernel.journal.sqlite.store import SQLiteStore
from orchestrator.kernel.journal.store import JournalStore

NewStore: TypeAlias = Callable[[], JournalStore]

MakeStore: TypeAlias = Callable[[pytest.FixtureRequest, Path], JournalStore]

BACKENDS: Final[dict[str, MakeStore]] = {
    "memory": lambda _request, _folder: MemoryStore(),
    "sqlite": lambda _, folder: SQLiteStore(folder / "journal.db"),
    "postgres": lambda request, folder: store_at(
        f"{request.getfixturevalue('postgres')}&journal={folder.name}"
    ),
}


@pytest.fixture(params=BACKENDS)
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> NewStore:
    """Return a function that makes a store with no journal in it."""
    numbers = count()

    def make() -> JournalStore:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return BACKENDS[request.param](request, folder)

    return make


@pytest.fixture
def store(new_store: NewStore) -> JournalStore:
    return new_store()
