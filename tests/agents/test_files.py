"""Files are read in pages, written whole or not at all, and edited exactly."""

import os
import stat
import tracemalloc
from pathlib import Path

import pytest

from orchestrator.agents import DefinitionError, ToolCall
from orchestrator.agents.messages import CallId
from orchestrator.agents.tools.files import FILES, edit_file, read_file, write_file
from orchestrator.agents.tools.files.search import search_files
from tests.agents.files_kit import Worker

pytestmark = pytest.mark.realtime


@pytest.fixture(name="worker")
def task_in_a_new_folder(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


async def edited(tmp_path: Path, before: bytes, old: str, new: str) -> bytes:
    """Return what is in a file after an edit."""
    file = tmp_path / "file"
    file.write_bytes(before)
    worker = Worker(tmp_path)
    await worker.use(read_file, path="file")
    await worker.use(edit_file, path="file", old=old, new=new)
    return file.read_bytes()


def test_only_reading_file_tools_are_idempotent() -> None:
    assert [used.name for used in FILES if used.idempotent] == [
        "read_file",
        "list_files",
        "search_files",
    ]


async def test_file_tools_need_a_tool_context() -> None:
    with pytest.raises(DefinitionError, match="need a ToolContext"):
        await read_file.run(ToolCall("read_file", {"path": "x"}, id=CallId("1")))


async def test_lines_are_numbered(tmp_path: Path, worker: Worker) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\n\r\nthree \xc3\xa4")

    assert await worker.use(read_file, path="a.txt") == ("     1\tone\n     2\t\n     3\tthree ä")


async def test_an_empty_file_is_reported_as_empty(tmp_path: Path, worker: Worker) -> None:
    (tmp_path / "empty").touch()

    assert await worker.use(read_file, path="empty") == "[the file is empty]"


async def test_a_long_file_comes_in_pages(tmp_path: Path, worker: Worker) -> None:
    """Each page says how to get the next, and together they are the file."""
    text = [f"line {number} {'x' * (number % 90)}" for number in range(1, 3001)]
    (tmp_path / "long").write_text("\n".join(text) + "\n")
    read: list[str] = []
    pages = 0

    while len(read) < len(text):
        answer = await worker.use(read_file, path="long", offset=len(read) + 1)
        *lines, last = answer.splitlines()
        if len(read) + len(lines) < len(text) - 1:
            assert last == (
                f"[lines {len(read) + 1} to {len(read) + len(lines)} of 3000:"
                f" read on with offset={len(read) + len(lines) + 1}]"
            )
        else:
            lines.append(last)
        read += [line.partition("\t")[2] for line in lines]
        pages += 1

    assert read == text
    assert pages >= 3


async def test_a_page_may_be_asked_for(tmp_path: Path, worker: Worker) -> None:
    (tmp_path / "file").write_text("a\nb\nc\nd\n")

    output = await worker.use(read_file, path="file", offset=2, limit=2)

    assert output == "     2\tb\n     3\tc\n[lines 2 to 3 of 4: read on with offset=4]"
    assert await worker.refused(read_file, path="file", offset=6) == "file has only 4 lines"
    assert ">= 1" in await worker.refused(read_file, path="file", offset=0)


async def test_a_long_line_is_cut_with_a_note(tmp_path: Path, worker: Worker) -> None:
    (tmp_path / "file").write_text("ä" * 9000 + "\nshort\n" + "y" * 2000)

    first, second, third = (await worker.use(read_file, path="file")).splitlines()

    assert first == "     1\t" + "ä" * 2000 + " [14,000 more bytes in this line]"
    assert second == "     2\tshort"
    assert third == "     3\t" + "y" * 2000


async def test_a_long_line_is_not_cut_inside_a_secret(tmp_path: Path, worker: Worker) -> None:
    """Half a secret would not be recognized."""
    key = "sk-ant-api03-A1b2C3d4E5f6G7h8"
    (tmp_path / "file").write_text(f"{'x' * 1_980}{key}{'y' * 9_000}\n")
    (tmp_path / "short").write_text(f"{'x' * 280}{key}{'y' * 900}\n")

    read = await worker.use(read_file, path="file")
    missed = await worker.refused(edit_file, path="file", old="x" * 1_990, new="")
    found = await worker.use(search_files, pattern="xyz|xxx")

    assert read.startswith(f"     1\t{'x' * 1_980}***")
    assert "[9,009 more bytes in this line]" in read
    for output in (read, missed, found):
        assert "xxx***" in output
        assert "sk-" not in output


async def test_undecodable_bytes_are_reported_and_survive_an_edit(
    tmp_path: Path, worker: Worker
) -> None:
    """Writing the decoded text back would lose them."""
    (tmp_path / "latin").write_bytes(b"caf\xe9\nplain\n")

    assert "edit_file leaves them" in await worker.use(read_file, path="latin")
    await worker.use(edit_file, path="latin", old="plain", new="fancy")

    assert (tmp_path / "latin").read_bytes() == b"caf\xe9\nfancy\n"


@pytest.mark.parametrize(
    ("begin", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "a PNG image of 108 bytes"),
        (b"\x7fELF", "a program of 104 bytes"),
        (b"\xff\xfea\0", "text in UTF-16 of 104 bytes"),
        (b"who knows", "binary of 109 bytes"),
    ],
)
async def test_a_binary_file_is_refused_with_its_kind(
    tmp_path: Path, worker: Worker, begin: bytes, kind: str
) -> None:
    (tmp_path / "data").write_bytes(begin + bytes(100))

    output = await worker.refused(read_file, path="data")

    assert output == f"data is not a text that can be read here: it is {kind}"


async def test_no_page_of_a_private_key_is_read(tmp_path: Path, worker: Worker) -> None:
    """The middle of a key is not recognizable, so it would not be redacted."""
    line = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0fD3hJ6kL9nP2rS5tV8\n"
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{line * 9}-----END RSA PRIVATE KEY-----\n"
    (tmp_path / "id_rsa").write_text(key)

    assert "a private key" in await worker.refused(read_file, path="id_rsa", offset=3)
    assert "aB3d" not in await worker.use(search_files, pattern="aB3d")


async def test_a_missing_file_is_reported_with_similar_names(
    tmp_path: Path, worker: Worker
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/app.py").touch()
    (tmp_path / "README.md").touch()

    for path, output in {
        "src/ap.py": "there is no 'src/ap.py' in the workspace; there is 'src/app.py'",
        "scr/app.py": "there is no 'scr' in the workspace; there is 'src'",
        "readme.md": "there is no 'readme.md' in the workspace; there is 'README.md'",
        "src/zzzz": "there is no 'src/zzzz' in the workspace; list_files('src') shows"
        " what is there",
    }.items():
        assert await worker.refused(read_file, path=path) == output


async def test_a_huge_file_is_never_held(tmp_path: Path, worker: Worker) -> None:
    """Five gigabytes, without a single end of line behind the first ones."""
    with (tmp_path / "huge").open("wb") as file:
        file.write(b"first\nsecond\nthird " + b"x" * 10_000)
        file.truncate(5_000_000_000)
    (tmp_path / "lines").write_text("some line of text\n" * 1_000_000)
    tracemalloc.start()

    page = await worker.use(read_file, path="huge", limit=2)
    deep = await worker.use(read_file, path="lines", offset=900_000, limit=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert page.endswith("[lines 1 to 2: read on with offset=3]")
    assert deep.startswith("900000\tsome line of text\n")
    assert peak < 30_000_000


async def test_a_huge_file_is_not_edited(tmp_path: Path, worker: Worker) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.write(b"first\nsecond\n" + b"x" * 10_000)
        file.truncate(5_000_000_000)
    await worker.use(read_file, path="huge", limit=1)

    output = await worker.refused(edit_file, path="huge", old="first", new="last")

    assert "has 5,000,000,000 bytes, and files of more than 10,000,000 are not" in output


async def test_a_new_file_is_written_with_its_folders(tmp_path: Path, worker: Worker) -> None:
    output = await worker.use(write_file, path="a/b/c.txt", content="ä\nb")

    assert output == "created a/b/c.txt: 2 lines, 4 bytes"
    assert (tmp_path / "a/b/c.txt").read_text() == "ä\nb"
    assert os.listdir(tmp_path / "a/b") == ["c.txt"]  # noqa: PTH208 (also hidden ones)


@pytest.mark.parametrize(
    "path", [".git", ".git/config", "part/.GIT/info/attributes", ".hg/hgrc", "link/config"]
)
async def test_files_of_version_control_are_not_written(
    tmp_path: Path, worker: Worker, path: str
) -> None:
    """Its settings name commands, which git runs as us."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("[core]\n")
    (tmp_path / "link").symlink_to(".git")

    assert "version control" in await worker.refused(write_file, path=path, content="[filter]")
    assert "version control" in await worker.refused(
        edit_file, path=path, old="[core]", new="[filter]"
    )
    assert not (tmp_path / "part" / ".GIT").exists()
    assert not (tmp_path / ".hg").exists()
    assert await worker.use(read_file, path=".git/config")
    await worker.use(write_file, path=".gitignore", content="*.log\n")


async def test_a_new_file_has_the_permissions_of_any_new_file(
    tmp_path: Path, worker: Worker
) -> None:
    (tmp_path / "usual").touch()

    await worker.use(write_file, path="new", content="")

    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o664])
async def test_permissions_stay_with_a_file(tmp_path: Path, worker: Worker, mode: int) -> None:
    file = tmp_path / "run.sh"
    file.write_text("echo 1\n")
    file.chmod(mode)
    await worker.use(read_file, path="run.sh")

    output = await worker.use(write_file, path="run.sh", content="echo 2\n")
    await worker.use(edit_file, path="run.sh", old="2", new="3")

    assert output == "overwrote run.sh: 1 line, 7 bytes"
    assert file.read_text() == "echo 3\n"
    assert stat.S_IMODE(file.stat().st_mode) == mode


async def test_a_read_only_file_is_not_replaced(tmp_path: Path, worker: Worker) -> None:
    """A rename could replace it against the intent of its owner."""
    file = tmp_path / "kept"
    file.write_text("kept")
    file.chmod(0o444)
    await worker.use(read_file, path="kept")

    for used, arguments in (
        (write_file, {"content": "x"}),
        (edit_file, {"old": "kept", "new": "x"}),
    ):
        output = await worker.refused(used, path="kept", **arguments)
        assert output == "kept is read-only"
    assert file.read_text() == "kept"


async def test_a_concurrent_reader_sees_the_old_file_or_the_new_one(
    tmp_path: Path, worker: Worker
) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    await worker.use(read_file, path="file")

    with file.open() as opened:
        await worker.use(write_file, path="file", content="new and longer")

        assert opened.read() == "old"
    assert file.read_text() == "new and longer"


async def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path, worker: Worker) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("old")
    await worker.use(read_file, path="folder/file")

    output = await worker.refused(write_file, path="folder/file", content="not a character: \ud800")

    assert "stands for no character" in output
    assert [it.name for it in (tmp_path / "folder").iterdir()] == ["file"]
    assert (tmp_path / "folder/file").read_text() == "old"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\nb\nc\n", "b", "B", b"a\nB\nc\n"),
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb\r\n", "", b"c\r\n"),
        (b"a\r\nb\r\n", "\nb", "\nc", b"a\r\nc\r\n"),
        (b"a\nb\n", "a\r\nb", "c\r\nd", b"c\nd\n"),
        (b"a\r\nb\r\nc\r\nd\ne\n", "c\nd", "x\ny", b"a\r\nb\r\nx\r\ny\ne\n"),
        (b"a\nb\rc\n", "b\rc", "d\re", b"a\nd\re\n"),
        (b"\xef\xbb\xbfa\r\nb", "a", "c", b"\xef\xbb\xbfc\r\nb"),
        ("ä ö ü".encode(), "ö", "ß", "ä ß ü".encode()),
        (b"a.*b\n", ".*", "\\1", b"a\\1b\n"),
    ],
)
async def test_an_edit_changes_only_the_replaced_text(
    tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    assert await edited(tmp_path, before, old, new) == after


async def test_an_edit_that_fits_in_several_places_is_refused(
    tmp_path: Path, worker: Worker
) -> None:
    file = tmp_path / "file"
    file.write_text("x = 1\ny = 1\nz = 1\n")
    await worker.use(read_file, path="file")

    output = await worker.refused(edit_file, path="file", old="= 1", new="= 2")
    assert output == (
        "old is in file 3 times, in the lines 1, 2, 3: give more of the lines around the one"
        " you mean, or all=true to replace every one"
    )
    output = await worker.use(edit_file, path="file", old="= 1", new="= 2", all=True)

    assert output == "edited file: replaced 3 places, in line 1, 2, 3"
    assert file.read_text() == "x = 2\ny = 2\nz = 2\n"


async def test_places_that_overlap_are_several(tmp_path: Path, worker: Worker) -> None:
    (tmp_path / "file").write_text("aaa")
    await worker.use(read_file, path="file")

    assert "2 times" in await worker.refused(edit_file, path="file", old="aa", new="b")


async def test_an_edit_without_a_match_shows_the_nearest_lines(
    tmp_path: Path, worker: Worker
) -> None:
    (tmp_path / "file").write_text(
        "def area(radius):\n\treturn 3.14 * radius ** 2\n\n\nprint(area(2))\n"
    )
    await worker.use(read_file, path="file")

    output = await worker.refused(
        edit_file, path="file", old="    return 3.14 * radius ** 2", new="x"
    )
    assert output == (
        "old is not in file: it must be there exactly, spaces and all. The nearest lines"
        " are:\n     2\t\treturn 3.14 * radius ** 2"
    )
    output = await worker.refused(edit_file, path="file", old="print(area(3))", new="x")
    assert output.endswith("The nearest lines are:\n     5\tprint(area(2))")
    output = await worker.refused(edit_file, path="file", old="~~~~~", new="x")
    assert output.endswith("spaces and all; read the file again")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("", "x", "old is empty"),
        ("a", "a", "nothing would change"),
        ("a\r\n", "a\n", "nothing would change"),
        ("\ud800", "x", "stands for no character"),
    ],
)
async def test_an_edit_without_effect_is_refused(
    tmp_path: Path, worker: Worker, old: str, new: str, why: str
) -> None:
    (tmp_path / "file").write_text("a\n")

    assert why in await worker.refused(edit_file, path="file", old=old, new=new)


async def test_an_edit_does_not_make_a_file_that_cannot_be_edited(
    tmp_path: Path, worker: Worker
) -> None:
    """A letter that becomes a page, everywhere, would fill the memory."""
    (tmp_path / "file").write_text("a" * 90_000)
    (tmp_path / "more").write_text("a" * 110_000)
    await worker.use(read_file, path="file")
    await worker.use(read_file, path="more")

    output = await worker.refused(edit_file, path="file", old="a", new="b" * 1000, all=True)
    assert output == "the file would have more than 10,000,000 bytes"
    output = await worker.refused(edit_file, path="more", old="a", new="b", all=True)
    assert output == "old is in the file more than 100,000 times"


async def test_only_text_is_edited(tmp_path: Path, worker: Worker) -> None:
    """It was text when it was read, and is none now."""
    await worker.use(write_file, path="data", content="a\0b")

    output = await worker.refused(edit_file, path="data", old="a", new="b")

    assert output == "data is binary: only text is edited"


async def test_reading_past_a_hole_stops_at_the_time_limit(
    tmp_path: Path, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with a hole takes no place, and for ever to read."""
    monkeypatch.setattr("orchestrator.agents.tools.files.read_write.MAX_SECONDS", 0.05)
    file = tmp_path / "sparse"
    file.write_text("line\n" * 2_000)
    os.truncate(file, 1 << 40)

    assert "stopped after 0.05 s" in await worker.refused(read_file, path="sparse", offset=10**8)
    assert "     1\tline\n" in await worker.use(read_file, path="sparse", limit=2)


SETTINGS = "[db]\nDB_USER=ann\nDB_PASSWORD=9f8e7d6c5b4a39281706\nDB_PORT=5432\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("DB_PASSWORD=", "NOTE ", id="its name is changed"),
        pytest.param("=9f8e", "=9f8e", id="its beginning is guessed"),
        pytest.param("ann\nDB_PASSWORD=", "ann\nx ", id="from the line before"),
        pytest.param("17", "x", id="its end is guessed"),
    ],
)
async def test_a_line_with_a_secret_cannot_be_edited_or_guessed(
    tmp_path: Path, old: str, new: str
) -> None:
    file = tmp_path / "settings"
    file.write_text(SETTINGS)
    worker = Worker(tmp_path)
    await worker.use(read_file, path="settings")

    refusal = await worker.refused(edit_file, path="settings", old=old, new=f"{new}.")
    wrong = await worker.refused(edit_file, path="settings", old="=9f8d", new="x")
    for answer in (refusal, wrong):
        assert answer.startswith("old is not in settings")
        assert "9f8e" not in answer
    assert file.read_text() == SETTINGS


async def test_an_edit_that_would_reveal_a_secret_is_refused(tmp_path: Path) -> None:
    """A word is a password among settings, and a word among words."""
    file = tmp_path / "settings.yml"
    file.write_text("user: ann\npassword: swordfish\nport: 1\n")
    worker = Worker(tmp_path)
    await worker.use(read_file, path="settings.yml")

    refusal = await worker.refused(
        edit_file, path="settings.yml", old="user: ann", new="This is a word,"
    )
    assert "would show one" in refusal
    await worker.use(edit_file, path="settings.yml", old="ann", new="bob")
    assert file.read_text() == "user: bob\npassword: swordfish\nport: 1\n"


async def test_an_edit_beside_a_multiline_key_keeps_it(tmp_path: Path) -> None:
    key = ["-----BEGIN RSA PRIVATE KEY-----", *["MIIEpAIBAAKCAQEA7Q1W2e3R4"] * 3]
    file = tmp_path / "notes"
    text = "\n".join(["# first", *["text"] * 3000, *key, "last"])
    file.write_text(text)
    worker = Worker(tmp_path)
    await worker.use(read_file, path="notes")

    await worker.refused(edit_file, path="notes", old=key[0], new="")
    await worker.use(edit_file, path="notes", old="# first", new="# 1")
    assert file.read_text() == text.replace("# first", "# 1")
