"""File search lists and finds files in bounded time and length."""

import time
from pathlib import Path

import pytest

from orchestrator.agents.tools.files.access import FileAccess
from orchestrator.agents.tools.files.glob import Glob
from orchestrator.agents.tools.files.read_write import list_files, search_files
from orchestrator.agents.tools.files.search import Search
from orchestrator.agents.tools.files.walk import MAX_ENTRIES, Walk
from orchestrator.agents.tools.files.workspace import Workspace
from tests.agents.files_kit import Worker

pytestmark = pytest.mark.realtime


@pytest.fixture(name="worker")
def task_in_a_project(tmp_path: Path) -> Worker:
    for path, content in {
        "README.md": "# Read me\n",
        "src/app.py": "import os\n\n\ndef main():\n    print('Hello')\n",
        "src/core/model.py": "class Model:\n    name = 'hello'\n",
        "src/core/data.bin": "hello\0",
        ".env": "hello=1\n",
        ".git/config": "hello\n",
        ".github/ci.yml": "hello: 2\n",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "big").write_bytes((b"x" * 98 + b"\n") * 12_345)
    return Worker(tmp_path)


async def test_a_folder_is_listed_in_order_with_sizes(worker: Worker) -> None:
    assert (await worker.use(list_files)).splitlines() == [
        "README.md  10 B",
        "big  1.2 MB",
        "link -> /etc",
        "src/",
    ]


@pytest.mark.parametrize(
    ("path", "pattern", "found"),
    [
        (".", "**/*.py", ["src/app.py", "src/core/model.py"]),
        ("src", "*.py", ["app.py"]),
        ("src", "**", ["app.py", "core/", "core/data.bin", "core/model.py"]),
        (".", "src/*/m*.py", ["src/core/model.py"]),
        (".", "src/**/**/app.py", ["src/app.py"]),
        (".", "*/", ["README.md", "big", "link", "src/"]),
        (".github", "*", ["ci.yml"]),
        (".", "[!a-z]*", ["README.md"]),
        (".", ".*/*.yml", [".github/ci.yml"]),
        (".", ".git/*", [".git/config"]),
    ],
)
async def test_a_pattern_chooses(worker: Worker, path: str, pattern: str, found: list[str]) -> None:
    text = await worker.use(list_files, path=path, pattern=pattern)

    listed = [line.partition(" ")[0] for line in text.splitlines()]
    begin = "" if path == "." else f"{path}/"
    assert listed == [f"{begin}{it}" for it in found]


async def test_hidden_files_are_listed_if_asked_for(worker: Worker) -> None:
    text = await worker.use(list_files, pattern="**/*", hidden=True)

    assert {".env  8 B", ".git/", ".github/", ".github/ci.yml  9 B"} <= set(text.splitlines())
    assert "config" not in text
    assert ".git/config" in await worker.use(list_files, path=".git")


async def test_links_are_never_entered(worker: Worker) -> None:
    assert "passwd" not in await worker.use(list_files, pattern="**/*")
    assert "no line fits" in await worker.use(search_files, pattern="root:")


async def test_a_long_listing_counts_the_omitted_names(tmp_path: Path, worker: Worker) -> None:
    for number in range(620):
        (tmp_path / f"src/core/{number:03}").touch()

    *listed, note = (await worker.use(list_files, path="src/core")).splitlines()

    assert len(listed) == 500
    assert listed[0] == "src/core/000  0 B"
    assert note == "[122 more; ask for a part of it, by path or pattern]"


async def test_an_empty_listing_names_the_folder_and_the_pattern(worker: Worker) -> None:
    assert await worker.use(list_files, path="src", pattern="*.c") == "[nothing in src fits '*.c']"
    assert (
        await worker.refused(list_files, path="README.md") == "'README.md' is a file, not a folder"
    )
    assert "there is 'src'" in await worker.refused(list_files, path="scr")
    assert "braces are not known" in await worker.refused(list_files, pattern="*.{py,md}")


async def test_sizes_are_short(tmp_path: Path, worker: Worker) -> None:
    for size in (0, 999, 1_000, 999_949, 25_000_000, 7_300_000_000):
        with (tmp_path / "src" / f"{size}").open("wb") as file:
            file.truncate(size)

    text = await worker.use(list_files, path="src", pattern="[0-9]*")

    assert text.splitlines() == [
        "src/0  0 B",
        "src/1000  1.0 kB",
        "src/25000000  25.0 MB",
        "src/7300000000  7.3 GB",
        "src/999  999 B",
        "src/999949  999.9 kB",
    ]


async def test_a_name_cannot_pretend_to_be_two(tmp_path: Path, worker: Worker) -> None:
    (tmp_path / "a\nsrc.py  7 B").touch()

    assert "a\\nsrc.py  7 B  0 B" in (await worker.use(list_files)).splitlines()


async def test_a_hostile_pattern_of_names_ends(tmp_path: Path, worker: Worker) -> None:
    (tmp_path / ("a" * 250)).touch()
    begin = time.monotonic()

    await worker.use(list_files, pattern="*a" * 100 + "*b")
    await worker.use(list_files, pattern="**/" * 300 + "x")
    text = await worker.refused(list_files, pattern="**/a/" * 20)

    # A pattern that goes back and forth takes longer than people live.
    assert time.monotonic() - begin < 60
    assert text == "a pattern has at most 1000 characters, in 30 names"


def test_a_walk_stops_after_a_number_of_names_with_a_note(tmp_path: Path) -> None:
    """A folder of a million names is not sorted."""
    for number in range(30):
        (tmp_path / str(number)).touch()
    walk = Walk(Glob("*", hidden=False), FileAccess(), max_entries=20)

    with Workspace(tmp_path).find(".") as entry:
        seen = list(walk.entries(entry))

    assert len(seen) == 20
    assert list(walk.notes()) == [
        "[there are more than 20 names, and the others were not looked at; ask for a part"
        " of it, by path]"
    ]
    assert MAX_ENTRIES > 20


async def test_lines_that_fit_are_found_with_their_place(worker: Worker) -> None:
    text = await worker.use(search_files, pattern=r"^\s*(def|class) \w+")

    assert text.splitlines() == [
        "src/app.py:4: def main():",
        "src/core/model.py:1: class Model:",
        "[not searched, because they are no text: 1]",
    ]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"pattern": "hello"}, ["src/core/model.py:2"]),
        ({"pattern": "hello", "ignore_case": True}, ["src/app.py:5", "src/core/model.py:2"]),
        ({"pattern": "(?i)HELLO", "glob": "app.*"}, ["src/app.py:5"]),
        ({"pattern": "hello", "path": "src/core/model.py"}, ["src/core/model.py:2"]),
        ({"pattern": "hello", "glob": "src/**/*.py"}, ["src/core/model.py:2"]),
        ({"pattern": "hello", "path": "src", "glob": "core/*"}, ["src/core/model.py:2"]),
        (
            {"pattern": "hello", "hidden": True},
            [".env:1", ".github/ci.yml:1", "src/core/model.py:2"],
        ),
        ({"pattern": "hello", "path": ".git"}, [".git/config:1"]),
        ({"pattern": "hello", "glob": ".env"}, [".env:1"]),
        ({"pattern": "'$"}, ["src/core/model.py:2"]),
    ],
)
async def test_a_search_is_narrowed(
    worker: Worker, arguments: dict[str, str], found: list[str]
) -> None:
    text = await worker.use(search_files, **arguments)

    lines = [line for line in text.splitlines() if not line.startswith("[")]
    assert [line.partition(": ")[0] for line in lines] == found


async def test_many_matches_are_counted_and_not_shown(tmp_path: Path, worker: Worker) -> None:
    (tmp_path / "many").write_text("match\n" * 5000)

    *found, note = (await worker.use(search_files, pattern="match", glob="many")).splitlines()

    assert len(found) == 200
    assert note == "[4800 more lines fit; ask for less by pattern, path or glob]"


async def test_a_long_line_is_searched_in_its_beginning(tmp_path: Path, worker: Worker) -> None:
    (tmp_path / "long").write_text("x" * 100 + "early" + "x" * 100_000 + "late\n")

    early = await worker.use(search_files, pattern="early", glob="long")
    late = await worker.use(search_files, pattern="late", glob="long")

    assert len(early) < 600
    assert "long:1: xxx" in early
    assert late == (
        "[no line fits; files searched: 1]\n"
        "[lines of more than 5000 characters, searched only in their beginning: 1]"
    )


@pytest.mark.parametrize(
    "pattern", ["(", "x(?=y)", r"(x)\1", "(.{1,99}){1,99}", "\ud800", "x" * 2000, "{"]
)
async def test_an_expression_that_cannot_be_used_is_refused(worker: Worker, pattern: str) -> None:
    text = await worker.refused(search_files, pattern=pattern)

    assert "look-around" in text or "at most 1000 characters" in text


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a|a?)+$", r"(.*a){20}$", "(x+x+)+y"])
async def test_a_hostile_expression_does_not_hang(
    tmp_path: Path, worker: Worker, pattern: str
) -> None:
    """Python's own engine would be busy with the first line for longer than we live."""
    (tmp_path / "bait").write_text(("a" * 4000 + "!\n" + "x" * 4000 + "\n") * 20)
    begin = time.monotonic()

    await worker.use(search_files, pattern=pattern, glob="bait")

    assert time.monotonic() - begin < 60


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("path", [".", "src/app.py"])
def test_a_search_stops_at_its_time_limit_with_a_note(tmp_path: Path, path: str) -> None:
    search = Search(lambda _: True, FileAccess(), seconds=0)

    with Workspace(tmp_path).find(path) as entry:
        search.run(entry, Walk(Glob("**/*", hidden=False), FileAccess()))

    assert list(search.report())[-1] == (
        "[stopped after 0 s: not all was searched; ask for a part of it, by path or glob]"
    )


async def test_a_listing_names_folders_that_are_too_deep(tmp_path: Path, worker: Worker) -> None:
    """Folders in folders without an end, which a program made by mistake."""
    deepest = tmp_path
    for _ in range(105):
        deepest /= "d"
        deepest.mkdir()

    text = await worker.use(list_files, pattern="**/x")

    assert "is too deep]" in text


@pytest.mark.parametrize(
    "pattern",
    ["^DB_PASSWORD=9f8e", "9f8e7d6c", r"PASSWORD=\*\*\*x|=9f8e", "MIIEpAIBAAKCAQEA7Q1W2e3R4"],
)
async def test_a_search_does_not_match_hidden_secrets(tmp_path: Path, pattern: str) -> None:
    """Else a search says whether, and so spells a secret letter by letter."""
    lines = ["USER=ann", "DB_PASSWORD=9f8e7d6c5b4a39281706", "# " + "text " * 50]
    lines += ["x = 1"] * 200
    lines += ["-----BEGIN RSA PRIVATE KEY-----", *["MIIEpAIBAAKCAQEA7Q1W2e3R4"] * 3]
    lines += ["-----END RSA PRIVATE KEY-----", "last"]
    (tmp_path / "settings").write_text("\n".join(lines))
    worker = Worker(tmp_path)

    found = await worker.use(search_files, pattern=pattern)
    assert found.startswith("[no line fits")
    assert await worker.use(search_files, pattern="^DB_PASSWORD=.*$|^last$") == (
        f"settings:2: DB_PASSWORD=***\nsettings:{len(lines)}: last"
    )
