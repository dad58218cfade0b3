"""File tools never read or write outside the workspace, even in a race."""

import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from orchestrator.agents import Tool, ToolError
from orchestrator.agents.tools.files.read_write import (
    FILES,
    edit_file,
    list_files,
    read_file,
    search_files,
    write_file,
)
from orchestrator.agents.tools.files.workspace import Workspace
from tests.agents.files_kit import Worker

pytestmark = pytest.mark.realtime

SECRET = "the secret outside"
ARGUMENTS: dict[str, dict[str, str]] = {
    "read_file": {},
    "write_file": {"content": "mine"},
    "edit_file": {"old": "secret", "new": "public"},
    "list_files": {},
    "search_files": {"pattern": "secret"},
}


@pytest.fixture(name="outside")
def folder_next_to_the_workspace(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    return outside


@pytest.fixture(name="inside")
def workspace_folder(tmp_path: Path, outside: Path) -> Path:
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (inside / "plain.txt").write_text("plain\n")
    (inside / "out").symlink_to(outside)
    (inside / "relative").symlink_to("../outside")
    (inside / "deep").symlink_to("sub/../../outside")
    (inside / "chain").symlink_to("out")
    (inside / "secret.txt").symlink_to(outside / "secret.txt")
    (inside / "dangling").symlink_to(outside / "not-yet")
    (inside / "up").symlink_to("..")
    (inside / "root").symlink_to("/")
    (inside / "here").symlink_to("sub")
    (inside / "mine.txt").symlink_to(inside / "plain.txt")
    (inside / "new.txt").symlink_to("sub/made.txt")
    (inside / "circle").symlink_to("circle")
    return inside


def put(what: Path, there: Path) -> None:
    """Rename something, even if a folder has just been made there."""
    while True:
        try:
            what.rename(there)
        except OSError:
            shutil.rmtree(there, ignore_errors=True)
        else:
            return


def names_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def content_of(folder: Path) -> dict[str, str]:
    return {str(file): file.read_text() for file in folder.rglob("*")}


ESCAPES = [
    "../outside/secret.txt",
    "..",
    "sub/../../outside/secret.txt",
    "out/secret.txt",
    "out",
    "relative/secret.txt",
    "deep/secret.txt",
    "chain/secret.txt",
    "secret.txt",
    "dangling",
    "dangling/below",
    "up/outside/secret.txt",
    "up/inside/plain.txt",
    "root/etc/passwd",
    "here/../../outside/secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "/",
]


@pytest.mark.parametrize("used", FILES, ids=lambda used: used.name)
@pytest.mark.parametrize("path", ESCAPES)
async def test_no_path_leaves_the_workspace(
    inside: Path, outside: Path, used: Tool, path: str
) -> None:
    before = content_of(outside)

    answer = await Worker(inside).refused(used, path=path, **ARGUMENTS[used.name])

    assert "leads out of the workspace: files are read and written only inside" in answer
    assert SECRET not in answer
    assert content_of(outside) == before


async def test_an_absolute_path_next_to_the_workspace_is_outside(
    inside: Path, outside: Path
) -> None:
    """Its beginning is the same, letter by letter."""
    twin = inside.with_name("inside-too")
    twin.mkdir()
    (twin / "file").write_text(SECRET)
    worker = Worker(inside)

    for path in (twin / "file", outside / "secret.txt", inside / "../outside"):
        assert "leads out" in await worker.refused(read_file, path=str(path))


async def test_a_refusal_does_not_reveal_whether_the_file_exists(inside: Path) -> None:
    worker = Worker(inside)

    there = await worker.refused(read_file, path="out/secret.txt")
    not_there = await worker.refused(read_file, path="out/nothing.txt")

    assert there == not_there.replace("nothing.txt", "secret.txt")


async def test_an_absolute_path_inside_is_fine(inside: Path) -> None:
    worker = Worker(inside)

    assert "plain" in await worker.use(read_file, path=str(inside / "plain.txt"))
    await worker.use(write_file, path=f"{inside}/./sub/../new/file", content="made")

    assert (inside / "new/file").read_text() == "made"


async def test_a_workspace_may_be_known_by_a_link(inside: Path, tmp_path: Path) -> None:
    """The folder itself is trusted, and the model may have read either name."""
    (tmp_path / "alias").symlink_to(inside)
    worker = Worker(tmp_path / "alias")

    assert "plain" in await worker.use(read_file, path=str(tmp_path / "alias/plain.txt"))
    assert "plain" in await worker.use(read_file, path=str(inside / "plain.txt"))


async def test_links_that_stay_inside_are_followed(inside: Path) -> None:
    worker = Worker(inside)

    assert "plain" in await worker.use(read_file, path="mine.txt")
    await worker.use(edit_file, path="mine.txt", old="plain", new="fancy")
    await worker.use(write_file, path="here/below/file", content="x")
    answer = await worker.use(write_file, path="new.txt", content="y")

    assert (inside / "mine.txt").is_symlink()
    assert (inside / "plain.txt").read_text() == "fancy\n"
    assert (inside / "sub/below/file").read_text() == "x"
    assert (inside / "sub/made.txt").read_text() == "y"
    assert answer.startswith("created sub/made.txt")


async def test_two_names_of_one_file_are_one_file(inside: Path) -> None:
    """A file that was read through a link is known by its own name."""
    worker = Worker(inside)

    await worker.use(read_file, path="sub/../mine.txt")
    await worker.use(write_file, path="plain.txt", content="known")

    assert (inside / "plain.txt").read_text() == "known"


async def test_links_in_a_circle_come_to_an_end(inside: Path) -> None:
    answer = await Worker(inside).refused(read_file, path="circle")

    assert answer == "'circle' leads through more than 40 links"


@pytest.mark.parametrize("path", ["a\0b", "a\nb", "a\rb", "\x7f", "a\ud800", "x/\x1b[2J"])
async def test_a_path_is_plain_text(inside: Path, path: str) -> None:
    answer = await Worker(inside).refused(write_file, path=path, content="")

    assert "may not contain control characters" in answer
    assert answer.isprintable()


@pytest.mark.parametrize("path", ["~", "~/file", "./~/file"])
async def test_a_home_is_not_looked_up(inside: Path, path: str) -> None:
    """Nor is a folder of that name made, which a user would remove some day."""
    answer = await Worker(inside).refused(write_file, path=path, content="")

    assert "'~' is not expanded" in answer
    assert not (inside / "~").exists()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("x" * 5000, "at most 4096 characters"),
        ("x" * 300, "File name too long"),
        ("d/" * 150 + "x", "more than 100 folders deep"),
        ("plain.txt/x", "'plain.txt' is not a folder"),
        ("sub", "'sub' is a folder: list_files lists its files"),
        (".", "'.' is a folder"),
        ("", "'.' is a folder"),
        ("sub/..", "'.' is a folder"),
    ],
)
async def test_an_impossible_file_name_is_refused_with_the_reason(
    inside: Path, path: str, why: str
) -> None:
    assert why in await Worker(inside).refused(write_file, path=path, content="")


def make_socket(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        # Its whole path may be too long for a socket.
        here = Path.cwd()
        os.chdir(file.parent)
        made.bind(file.name)
        os.chdir(here)


@pytest.mark.parametrize("path", ["new/../../x", "a/b/../c", "d/" * 150 + "x"])
async def test_a_path_that_is_refused_makes_no_folders(inside: Path, path: str) -> None:
    before = names_in(inside)

    await Worker(inside).refused(write_file, path=path, content="")

    assert names_in(inside) == before


@pytest.mark.parametrize(("make", "kind"), [(os.mkfifo, "a pipe"), (make_socket, "a socket")])
@pytest.mark.parametrize("used", [read_file, write_file, edit_file])
async def test_special_files_are_refused_at_once(
    inside: Path, make: Callable[[Path], None], kind: str, used: Tool
) -> None:
    """Opening a pipe blocks until it has a writer."""
    make(inside / "special")

    with trio.fail_after(5):
        answer = await Worker(inside).refused(used, path="special", **ARGUMENTS[used.name])

    assert answer == f"'special' is {kind}: only plain files are read and written"


async def test_a_walk_passes_special_files_by(inside: Path) -> None:
    os.mkfifo(inside / "pipe")
    worker = Worker(inside)

    with trio.fail_after(5):
        assert "pipe  (a pipe)" in await worker.use(list_files)
        assert "plain.txt:1" in await worker.use(search_files, pattern="plain")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/1/mem", "/sys/kernel", "/dev/zero"])
async def test_pseudo_files_of_the_system_are_refused(path: str) -> None:
    """They look like files, and may be endless or contain secrets."""
    answer = await Worker(Path("/")).refused(read_file, path=path)

    assert "made up by the system" in answer or "is a device" in answer


async def test_a_missing_workspace_is_reported(tmp_path: Path) -> None:
    answer = await Worker(tmp_path / "gone").refused(read_file, path="x")

    assert answer == "the workspace cannot be opened: No such file or directory"


@pytest.mark.parametrize("used", [write_file, edit_file, read_file, search_files])
async def test_a_link_that_is_swapped_in_does_not_win(
    inside: Path, outside: Path, used: Tool
) -> None:
    """Between looking and opening, a folder becomes a link that leads out, again and again."""
    sub, away, link = inside / "sub", inside / "away", inside / "link"
    (sub / "secret.txt").write_text("my own secret")
    before = content_of(outside)
    done = False

    def swap() -> int:
        count = 0
        while not done:
            put(sub, away)
            link.symlink_to(outside)
            put(link, sub)
            sub.unlink()
            put(away, sub)
            count += 1
        return count

    swaps = 0
    answer: list[str] = []

    async def swap_on() -> None:
        nonlocal swaps
        swaps = await trio.to_thread.run_sync(swap)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(swap_on)
        worker = Worker(inside)
        try:
            for number in range(300):
                arguments = dict(ARGUMENTS[used.name])
                if used is write_file:
                    arguments["content"] = f"mine {number}"
                try:
                    if used in (edit_file, write_file):
                        await worker.use(read_file, path="sub/secret.txt")
                    answer.append(await worker.use(used, path="sub/secret.txt", **arguments))
                except ToolError as exc:
                    answer.append(str(exc))
        finally:
            done = True

    assert swaps > 0
    assert content_of(outside) == before
    assert not any(SECRET in text for text in answer)


async def test_a_file_that_becomes_a_link_is_not_followed(inside: Path, outside: Path) -> None:
    """The last name is the one that is swapped here, whenever it is about to be opened."""
    file, other = inside / "file", inside / "other"
    file.write_text("mine")
    done = False

    def swap() -> None:
        while not done:
            other.symlink_to(outside / "secret.txt")
            other.rename(file)
            other.write_text("mine")
            other.rename(file)

    def read_again_and_again() -> set[bytes]:
        seen: set[bytes] = set()
        for _ in range(3000):
            try:
                with Workspace(inside).find("file") as entry:
                    with entry.open_file() as (descriptor, _):
                        seen.add(os.read(descriptor, 100))
            except ToolError as exc:
                seen.add(str(exc).partition(":")[0].encode())
        return seen

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, swap)
        try:
            seen = await trio.to_thread.run_sync(read_again_and_again)
        finally:
            done = True

    assert {b"mine", b"'file' leads out of the workspace"} <= seen
    assert SECRET.encode() not in seen


def test_a_write_lands_in_the_folder_that_was_opened(inside: Path, outside: Path) -> None:
    """Even if its name leads elsewhere by now."""
    before = content_of(outside)

    with Workspace(inside).find("sub/secret.txt") as entry:
        (inside / "sub").rename(inside / "away")
        (inside / "sub").symlink_to(outside)
        entry.replace(b"mine", None)

    assert (inside / "away/secret.txt").read_text() == "mine"
    assert content_of(outside) == before


def test_a_link_that_appears_is_replaced_and_not_written_through(
    inside: Path, outside: Path
) -> None:
    before = content_of(outside)

    with Workspace(inside).find("sub/new") as entry:
        (inside / "sub/new").symlink_to(outside / "secret.txt")
        with pytest.raises(ToolError, match="is a link: only plain files"):
            with entry.open_file():
                pass
        entry.replace(b"mine", None)

    assert (inside / "sub/new").read_text() == "mine"
    assert not (inside / "sub/new").is_symlink()
    assert content_of(outside) == before


async def test_no_descriptor_is_left_open(inside: Path) -> None:
    worker = Worker(inside)
    await worker.use(read_file, path="plain.txt")
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208 (it changes while it is listed)

    for path in ("plain.txt", "here/../mine.txt", "out/x", "none/x", "sub", "up/x"):
        for used in FILES:
            with suppress(ToolError):
                await worker.use(used, path=path, **ARGUMENTS[used.name])

    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208
