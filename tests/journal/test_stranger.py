"""A journal that a stranger wrote: it may be refused, and can do nothing else."""

import random
import re
import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest
import trio

from orchestrator import JournalError, open_orchestrator
from orchestrator.backends import store_at
from orchestrator.cli.app import run_command
from orchestrator.kernel.errors import OrchestratorError
from orchestrator.kernel.journal import stored_entries
from orchestrator.kernel.journal.long_strings import MARK, digest
from orchestrator.kernel.journal.sqlite import trust
from orchestrator.kernel.journal.sqlite.reader import open_file_read_only
from orchestrator.kernel.journal.store import Level
from tests.journal.contract.kit import editor
from tests.journal.kit import change, rewrite
from tests.kit import worker

pytestmark = pytest.mark.realtime

ENDLESS = """
CREATE VIEW sessions AS
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers)
SELECT 'run' AS session, n AS first, NULL AS used, 0 AS checksum FROM numbers
"""
FORGET = "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END"


async def write(path: Path) -> None:
    async with open_orchestrator(path) as orchestrator:
        await orchestrator.run(editor(), "go " * 1_000)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stranger") / "journal.db"
    trio.run(write, path)
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(written, tmp_path))


def read_all(path: Path) -> None:
    with store_at(path).open_reader() as reader:
        for session in reader.sessions():
            reader.entries(session)


def wrong(path: Path) -> list[str]:
    return [it.text for it in store_at(path).check() if it.level is Level.WRONG]


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE sessions RENAME TO other", ENDLESS],
        [FORGET],
        ["DROP TRIGGER delete_snapshot"],
        ["CREATE INDEX more ON entries (abs(at))"],
        ["CREATE TABLE more (it)"],
        ["ALTER TABLE entries ADD COLUMN more INTEGER AS (seq + 1)"],
        ["ALTER TABLE entries RENAME COLUMN at TO time"],
        ["DROP INDEX entries_of_a_session"],
        ["CREATE INDEX unknown_facts_9 ON entries (version) WHERE abs(version) > 9"],
        ["PRAGMA user_version = 2"],
    ],
)
def test_sql_that_is_not_ours_is_refused_before_it_runs(path: Path, statements: list[str]) -> None:
    change(path, *statements)
    before = path.read_bytes()

    with pytest.raises(JournalError):
        read_all(path)
    with pytest.raises(JournalError):
        trio.run(write, path)
    assert wrong(path)
    assert path.read_bytes() == before


async def test_a_journal_with_tables_of_sqlite_itself_is_read(path: Path) -> None:
    change(path, "ANALYZE")

    read_all(path)
    await write(path)
    assert wrong(path) == []


def test_a_reader_cannot_write(path: Path) -> None:
    with open_file_read_only(path) as connection:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM entries")
        for pragma, value in (("trusted_schema", 0), ("cell_size_check", 1)):
            assert connection.execute(f"PRAGMA {pragma}").fetchone() == (value,)


def make_endless(path: Path, table: str) -> None:
    """Make a tree of pages in which each has hundreds of children, all of them the same."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    pages = bytearray(path.read_bytes())
    count, fan = len(pages) // size, (size - 12) // 8

    def parent_of(child: int) -> bytes:
        page = bytearray(size)
        first = size - 5 * fan
        struct.pack_into(">BHHHBI", page, 0, 5, 0, fan, first, 0, child)
        for cell in range(fan):
            at = first + 5 * cell
            struct.pack_into(">IB", page, at, child, 1)
            struct.pack_into(">H", page, 12 + 2 * cell, at)
        return bytes(page)

    leaf = pages[(root - 1) * size : root * size]
    pages[(root - 1) * size : root * size] = parent_of(count + 1)
    for number in range(count + 1, count + 6):
        pages += parent_of(number + 1)
    pages += leaf
    struct.pack_into(">I", pages, 28, len(pages) // size)
    path.write_bytes(pages)


async def test_pages_without_an_end_are_left_after_a_while(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite counts 500 to the power of six rows in one step, which only an interrupt ends."""
    make_endless(path, "sessions")
    monkeypatch.setattr(trust, "READ_SECONDS", 0.1)

    with pytest.raises(JournalError, match="no file of its size takes so long"):
        read_all(path)
    with pytest.raises(JournalError, match="no file of its size takes so long"):
        await write(path)
    assert any("no file of its size takes so long" in text for text in wrong(path))


def test_long_strings_may_not_ask_for_all_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fact refers to a string as often as it likes: a megabyte asked for gigabytes."""
    monkeypatch.setattr(stored_entries, "FACT_BYTES", 2_000_000)
    string = '"' + "x" * 100_000 + '"'
    name = digest(string.encode())
    body = ",".join([f"{MARK}{name}"] * 100)
    change(path, f"INSERT INTO payloads VALUES ('{name}', '{string}')")
    rewrite(path, f"UPDATE entries SET body = '[{body}]' WHERE kind = 'TurnStarted'")

    with pytest.raises(JournalError, match="its long strings come to more than"):
        read_all(path)


def test_the_facts_of_a_run_may_not_ask_for_all_memory_together(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_entries, "READ_BYTES", 2_000)
    monkeypatch.setattr(stored_entries, "READ_SHARE", 0)

    with pytest.raises(JournalError, match="its long strings come to more than"):
        read_all(path)


@pytest.mark.parametrize("at", ["9e999", "-9e999", "1e300", "253402300800"])
@pytest.mark.parametrize("command", ["runs", "report", "tree"])
def test_a_time_that_no_calendar_has_is_damage(
    path: Path, tmp_path: Path, command: str, at: str
) -> None:
    rewrite(path, f"UPDATE entries SET at = {at} WHERE kind = 'TaskRequested'")
    more = ["-o", str(tmp_path / "report.html")] if command == "report" else []

    assert run_command([command, *more, "--journal", str(path)]) == 2


def test_a_run_that_was_never_opened_is_damage(path: Path) -> None:
    rewrite(path, "UPDATE entries SET session = 'x' WHERE kind = 'SessionOpened'")

    for command in (["tree"], ["show", "/editor"], ["export", "--format", "json"]):
        assert run_command([*command, "--journal", str(path)]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["tree"],
        ["tree", "--json"],
        ["tree", "--rows", "2"],
        ["runs"],
        ["show", "r_"],
        ["show", "r_", "--json"],
        ["show", "nothing"],
        ["doctor"],
        *(["export", "--format", it] for it in ("text", "mermaid", "dot", "svg")),
        *(["export", "--format", it] for it in ("graphml", "json", "trace")),
        ["report", "-o", "/dev/null"],
    ],
)
def test_names_of_a_stranger_reach_no_terminal_as_commands(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """Of agents, tasks, runs and models."""
    evil = "\\u001b]0;x\\u0007\\u009b31m\\u202e\\u200f"
    with closing(sqlite3.connect(path)) as connection:
        (run,) = connection.execute("SELECT session FROM sessions").fetchone()
    renamed = f"r_\x1b[31m\x9b\u200f{run}"
    in_json = f"r_\\u001b[31m\\u009b\\u200f{run}"
    rewrite(
        path,
        f"UPDATE entries SET session = '{renamed}' WHERE session != ''",
        f"UPDATE sessions SET session = '{renamed}'",
        f"UPDATE entries SET body = replace(body, '{run}', '{in_json}')",
        *(
            f"UPDATE entries SET body = replace(body, '{name}', '{name}{evil}')"
            for name in ("editor", "worker", "scripted")
        ),
    )
    code = run_command([*arguments, "--journal", str(path)])
    shown = "".join(capsys.readouterr())

    assert code == (2 if arguments[-1] == "nothing" else 0)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", shown)


def damage(random_: random.Random, path: Path) -> None:
    """Change some bytes of a file, or some facts of it with their checksums."""
    if random_.random() < 0.5:
        content = bytearray(path.read_bytes())
        for _ in range(random_.choice([1, 3, 20])):
            at = random_.randrange(len(content))
            content[at : at + 1] = random_.randbytes(1)
        path.write_bytes(content)
        return
    column, value = random_.choice(
        [
            ("kind", "(SELECT kind FROM entries ORDER BY random() LIMIT 1)"),
            ("body", "replace(body, 'editor', char(27) || '[31m')"),
            ("body", "replace(body, ':', ':[')"),
            ("body", "substr(body, 1, length(body) / 2)"),
            ("body", "replace(body, 'null', '1e999')"),
            ("session", "'another'"),
            ("version", "2"),
        ]
    )
    seq = random_.randrange(1, 20)
    rewrite(path, f"UPDATE entries SET {column} = {value} WHERE seq = {seq}")


@pytest.mark.parametrize("seed", range(12))
async def test_random_damage_ends_in_a_sentence(path: Path, seed: int) -> None:
    damage(random.Random(seed), path)

    for command in (["tree"], ["runs"], ["export", "--format", "text"]):
        assert run_command([*command, "--journal", str(path)]) in {0, 2}
    assert run_command(["doctor", "--journal", str(path)]) in {0, 1, 2}
    try:
        async with open_orchestrator(path) as orchestrator:
            await orchestrator.run(worker(), "go")
    except OrchestratorError:
        pass
