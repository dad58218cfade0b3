"""A journal under two names has one lock, one log and one writer."""

from pathlib import Path

import pytest

from orchestrator import JournalError, open_orchestrator
from orchestrator.backends import store_at
from orchestrator.kernel.errors import JournalInUseError
from orchestrator.kernel.journal.sqlite.lock import writer_of
from orchestrator.kernel.journal.store import Level
from tests.kit import worker

pytestmark = pytest.mark.realtime


async def test_a_symbolic_link_to_a_journal_has_its_lock(tmp_path: Path) -> None:
    path, link = tmp_path / "journal.db", tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    async with open_orchestrator(link) as orchestrator:
        run = await orchestrator.run(worker(), "go")
        with pytest.raises(JournalInUseError, match="is writing it"):
            async with open_orchestrator(path):
                pass

        assert writer_of(path) == writer_of(link) is not None
        with store_at(path).open_reader() as reader:
            assert reader.sessions() == [run.id]
    assert sorted(it.name for it in link.parent.iterdir()) == ["link.db"]


async def test_a_link_in_the_path_of_the_folder_is_the_same_journal(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    async with open_orchestrator(tmp_path / "link" / "journal.db"):
        with pytest.raises(JournalInUseError):
            async with open_orchestrator(tmp_path / "real" / "journal.db"):
                pass


async def test_a_journal_with_a_hard_link_is_refused_by_every_name(tmp_path: Path) -> None:
    """The log is beside one name, so a reader by the other name would miss it."""
    path, other = tmp_path / "journal.db", tmp_path / "other.db"
    async with open_orchestrator(path) as orchestrator:
        await orchestrator.run(worker(), "go")
        other.hardlink_to(path)
        await orchestrator.run(worker(), "the first writer goes on")
        with pytest.raises(JournalError, match="it has 2 names"):
            async with open_orchestrator(other):
                pass
        with pytest.raises(JournalError, match="it has 2 names"):
            with store_at(other).open_reader():
                pass
        with store_at(path).open_reader() as reader:
            assert reader.count() == 2
    with pytest.raises(JournalError, match="it has 2 names"):
        async with open_orchestrator(path):
            pass
    assert any(it.level is Level.WRONG and "2 names" in it.text for it in store_at(path).check())
    other.unlink()
    async with open_orchestrator(path) as orchestrator:
        assert len(orchestrator.runs) == 2
