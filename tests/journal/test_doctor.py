"""`orchestrator doctor`: what it finds, and how it ends."""

import os
import subprocess
from pathlib import Path

import pytest
import trio

from orchestrator import budget, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.cli.app import run_command
from orchestrator.kernel.journal.long_strings import digest
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal
from orchestrator.kernel.journal.sqlite.lock import lock_path
from tests.journal.kit import change, rewrite
from tests.kit import hand_on, worker

pytestmark = pytest.mark.realtime


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with idle runs, one of them under a shared budget, and a live session."""
    path = tmp_path / "journal.db"

    async def write() -> None:
        model = ScriptedModel([hand_on("look", background=True), "on its way"])
        slow = Agent("slow", model=model, delegates=[worker(seconds=1000)])
        async with open_orchestrator(path) as orchestrator:
            with budget(calls=50):
                await orchestrator.run(worker(says="x" * 5000), "y" * 5000)
            await orchestrator.run(worker(), "go")
            async with orchestrator.open_session(slow) as session:
                await session.ask("go")

    trio.run(write)
    return path


def examined(path: Path, capsys: pytest.CaptureFixture[str], *, code: int) -> str:
    assert run_command(["doctor", "--journal", str(path)]) == code
    out, err = capsys.readouterr()
    assert not err
    assert out.splitlines()[-1] == "healthy" or code == 1
    return out


def test_a_healthy_journal_passes_every_check(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = journal.read_bytes()
    out = examined(journal, capsys, code=0)

    for line in (
        "✓ only its owner may read it",
        "✓ no process writes it now",
        "✓ its tables are of version 1",
        "✓ SQLite finds it whole",
        "✓ all of its 2 long strings are there",
        "✓ its list of runs is complete",
        "✓ all of its 3 runs can be rebuilt from their entries",
        "✓ 1 of its runs are not idle; 0 replies are not taken",
    ):
        assert line in out.splitlines()
    assert "✗" not in out
    assert journal.read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DELETE FROM entries WHERE seq = 5", "1 of its entries are missing"),
        (
            "UPDATE entries SET body = '{' WHERE kind = 'TaskRequested'",
            "is a damaged 'TaskRequested'",
        ),
        (
            "UPDATE entries SET kind = 'DoorClosed', body = '{\"session\":\"' || session"
            " || '\"}' WHERE kind = 'ModelAnswered'",
            "contradicts those before it",
        ),
        ("UPDATE entries SET version = 9 WHERE seq = 4", "in version 9: it was written"),
        ("DELETE FROM payloads", "is missing"),
        ("UPDATE payloads SET string = '\"z\"'", "was changed"),
        ("DELETE FROM sessions", "is not listed"),
        ("UPDATE sessions SET first = first + 1", "does not begin where the list says"),
        ("UPDATE sessions SET used = '' WHERE used IS NULL", "is listed as idle, and is not"),
        ("UPDATE sessions SET used = '' WHERE used != ''", "has not used what the list says"),
        ("PRAGMA user_version = 99", "its tables are of version 99"),
        ("PRAGMA application_id = 7", "it is a database of another application"),
        ("DROP TABLE pruned", "it lacks the table 'pruned'"),
        ("UPDATE entries SET body = CAST(x'ff' AS TEXT) WHERE seq = 4", "entry 4 is a damaged"),
    ],
)
def test_a_finding_is_a_line_and_sets_the_exit_code(
    journal: Path, capsys: pytest.CaptureFixture[str], statement: str, says: str
) -> None:
    (change if "DROP" in statement else rewrite)(journal, statement)
    out = examined(journal, capsys, code=1)

    assert any("✗" in line and says in line for line in out.splitlines()), out
    assert out.splitlines()[-1].endswith(" wrong")


def test_only_some_of_many_equal_findings_are_listed(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(journal, "UPDATE entries SET body = '{' WHERE session != ''")
    out = examined(journal, capsys, code=1)

    assert out.count("is a damaged") == 3
    assert "more are wrong" in out


def test_a_finding_that_costs_only_time_is_a_note(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(journal, "UPDATE sessions SET used = NULL")
    lock_path(journal).write_text("4194305")
    out = examined(journal, capsys, code=0)

    assert "· 2 idle runs are listed as active; opening it corrects that" in out
    assert "process 4194305, the last one, ended without closing it" in out


def test_an_unused_string_is_a_note(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(journal, f"INSERT INTO payloads VALUES ('{digest(b'x')}', 'x')")

    assert "· 1 of its long strings are used by no fact" in examined(journal, capsys, code=0)


def test_a_file_that_others_may_read_is_wrong(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal.chmod(0o644)

    assert "journal.db (-rw-r--r--): chmod 600" in examined(journal, capsys, code=1)


@pytest.mark.parametrize("content", [b"", b"no database" * 500])
def test_a_file_that_is_not_a_journal_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    path = tmp_path / "file"
    path.touch(0o600)
    path.write_bytes(content)
    out = examined(path, capsys, code=1 if content else 0)

    assert ("file is not a database" if content else "it is empty") in out


async def test_a_journal_that_is_being_written_is_examined_all_the_same(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_sqlite_journal(journal):
        out = examined(journal, capsys, code=0)

    assert f"✓ process {os.getpid()} writes it now" in out


@pytest.mark.parametrize("arguments", [["--journal", "none.db"], ["--nope"], ["extra", "words"]])
def test_a_mistake_is_one_line_and_code_2(
    tmp_path: Path, python: list[str], arguments: list[str]
) -> None:
    done = subprocess.run(
        [*python, "-m", "orchestrator", "doctor", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("orchestrator: ")
    assert done.stderr.count("\n") == 1
