"""A journal that another user has put there, or could change, is refused before it is used."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator import JournalError, open_orchestrator
from orchestrator.backends import store_at
from orchestrator.kernel.journal.store import Level
from orchestrator.kernel.private_files import make_private_folder
from orchestrator.products.server.transport.api_key import load_or_create_secret
from tests.kit import worker

pytestmark = pytest.mark.realtime

STRANGER = 12_345


async def write(path: Path) -> None:
    async with open_orchestrator(path) as orchestrator:
        await orchestrator.run(worker(), "go")


def give_away(path: Path) -> None:
    """Make a file, or a link, that of another user."""
    try:
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    except PermissionError:
        pytest.skip("only root can give files away")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal", "journal.db.lock"])
async def test_a_file_of_another_user_is_refused(tmp_path: Path, name: str) -> None:
    """They would read all facts, or have written some."""
    path = tmp_path / "journal.db"
    await write(path)
    (tmp_path / name).touch(0o600)
    give_away(tmp_path / name)

    with pytest.raises(JournalError, match="belongs to another user"):
        await write(path)
    wrong = [it.text for it in store_at(path).check() if it.level is Level.WRONG]
    assert any("belongs to another user" in text for text in wrong)


async def test_an_empty_file_of_another_user_gets_no_facts(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.touch(0o600)
    give_away(path)

    with pytest.raises(JournalError, match="belongs to another user"):
        await write(path)
    assert path.stat().st_size == 0


async def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await write(path)
    path.chmod(0o620)

    with pytest.raises(JournalError, match="chmod 600"):
        await write(path)


async def test_a_journal_that_others_can_read_becomes_private(tmp_path: Path) -> None:
    """A copy of a journal has the mode of the umask."""
    path = tmp_path / "journal.db"
    await write(path)
    path.chmod(0o644)
    await write(path)

    assert mode_of(path) == 0o600


async def test_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    path, link, behind = (tmp_path / it for it in ("journal.db", "link.db", "own.db"))
    await write(path)
    link.symlink_to(path)
    behind.symlink_to(link)
    await write(behind)
    give_away(link)

    for name in (link, behind):
        with pytest.raises(JournalError, match="a link that another user has made"):
            await write(name)


@pytest.mark.parametrize("name", ["journal.db-wal", "journal.db.lock"])
async def test_beside_a_journal_no_link_is_followed(tmp_path: Path, name: str) -> None:
    path, elsewhere = tmp_path / "journal.db", tmp_path / "elsewhere"
    await write(path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to(elsewhere)

    with pytest.raises(JournalError):
        await write(path)
    assert not elsewhere.exists()


@pytest.mark.parametrize("name", ["journal.db", "journal.db.lock"])
async def test_a_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / "journal.db"
    await write(path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name, 0o600)
    store = store_at(path)

    with pytest.raises(JournalError, match="a pipe, not a file"):
        await write(path)
    with pytest.raises(JournalError, match="a pipe, not a file"):
        with store.open_reader():
            pass
    with suppress(JournalError):
        assert any(it.level is Level.WRONG for it in store.check())


def make_secret(folder: Path) -> None:
    load_or_create_secret(folder / "api_key", lambda: "0123456789abcdef")


@pytest.mark.parametrize("make", [make_private_folder, make_secret])
def test_the_state_folder_is_private_under_any_umask(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    folder = tmp_path / "state" / "orchestrator"
    before = os.umask(0)
    try:
        make(folder)
    finally:
        os.umask(before)

    assert [mode_of(it) for it in (folder, folder.parent)] == [0o700, 0o700]
