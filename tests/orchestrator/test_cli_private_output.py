"""Reports with transcripts are for their owner, whatever the umask says."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
import trio

from orchestrator import open_orchestrator
from orchestrator.cli.app import run_command
from tests.kit import worker

pytestmark = pytest.mark.realtime


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A journal with a run, in a folder of its own; commands run under an open umask."""
    path = tmp_path / "state" / "journal.db"

    async def write() -> None:
        async with open_orchestrator(path) as orchestrator:
            await orchestrator.run(worker(), "go")

    trio.run(write)
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    yield path
    os.umask(before)


def report(journal: Path, *arguments: str) -> None:
    assert run_command(["report", *arguments, "--journal", str(journal)]) == 0


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_its_owner_may_read_a_report_with_transcripts(journal: Path, tmp_path: Path) -> None:
    report(journal, "--transcripts", "all", "-o", "all.html")
    report(journal, "--transcripts", "none", "-o", "none.html")

    assert mode_of(tmp_path / "all.html") == 0o600
    assert mode_of(tmp_path / "none.html") == 0o666


def test_a_file_named_by_the_user_keeps_its_mode(journal: Path, tmp_path: Path) -> None:
    (tmp_path / "shared.html").touch(0o644)
    report(journal, "--transcripts", "all", "-o", "shared.html")

    assert mode_of(tmp_path / "shared.html") == 0o644
    assert (tmp_path / "shared.html").stat().st_size


def test_the_file_of_an_earlier_report_is_replaced_and_no_link_is_followed(
    journal: Path, tmp_path: Path
) -> None:
    report(journal, "--transcripts", "none")
    (name,) = [it.name for it in tmp_path.glob("run-*.html")]
    assert mode_of(tmp_path / name) == 0o666
    report(journal, "--transcripts", "all")
    assert mode_of(tmp_path / name) == 0o600

    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    report(journal, "--transcripts", "all")
    assert not (tmp_path / "elsewhere").exists()
    assert mode_of(tmp_path / name) == 0o600
