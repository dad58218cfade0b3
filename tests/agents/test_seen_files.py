"""Of all who change a file at the same time, each has seen what it changes."""

import os
from pathlib import Path

import pytest
import trio

from orchestrator.agents import Tool, ToolError
from orchestrator.agents.tools.files import seen_files
from orchestrator.agents.tools.files.read_write import edit_file, read_file, write_file
from orchestrator.agents.tools.files.seen_files import FileRegistry, Fingerprint, SeenFiles
from tests.agents.files_kit import Worker

SIBLINGS = 50


def fingerprint(text: str, *, modified: int = 0, digest: bool = True) -> Fingerprint:
    return Fingerprint(
        size=len(text), modified=modified, inode=1, digest=text.encode() if digest else None
    )


@pytest.fixture(name="file")
def file_in_a_workspace(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    file = tmp_path / "src/app.py"
    file.write_text("one\n")
    return file


@pytest.fixture(name="siblings")
def two_tasks_of_a_house(tmp_path: Path, file: Path) -> tuple[Worker, Worker]:
    assert file.is_relative_to(tmp_path)
    registry = FileRegistry()
    return (
        Worker(tmp_path, registry, "/editor/coder[1]"),
        Worker(tmp_path, registry, "/editor/coder[2]"),
    )


def content(file: Path) -> str:
    return file.read_text()


def change(file: Path, text: str) -> None:
    """Write to a file as an editor or a command would."""
    file.write_text(text)


CHANGES = [
    pytest.param(write_file, {"content": "mine\n"}, id="write"),
    pytest.param(edit_file, {"old": "one", "new": "mine"}, id="edit"),
]


@pytest.mark.realtime
@pytest.mark.parametrize(("used", "arguments"), CHANGES)
async def test_a_task_cannot_change_a_file_that_it_has_not_read(
    file: Path, siblings: tuple[Worker, Worker], used: Tool, arguments: dict[str, str]
) -> None:
    first, second = siblings
    await second.use(read_file, path="src/app.py")  # That another task has read it does not count.

    answer = await first.refused(used, path="src/app.py", **arguments)

    assert answer == (
        "src/app.py is there already, and you have not read it: read it first, then repeat"
        " your change"
    )
    assert content(file) == "one\n"


@pytest.mark.realtime
@pytest.mark.parametrize(("used", "arguments"), CHANGES)
async def test_a_file_changed_by_a_sibling_is_refused_with_its_name(
    file: Path, siblings: tuple[Worker, Worker], used: Tool, arguments: dict[str, str]
) -> None:
    first, second = siblings
    await first.use(read_file, path="src/app.py")
    await second.use(read_file, path="src/app.py")
    await second.use(edit_file, path="src/app.py", old="one\n", new="one\ntwo\n")

    answer = await first.refused(used, path="src/app.py", **arguments)
    assert answer == (
        "src/app.py was changed by /editor/coder[2] since you read it: read it again, then"
        " repeat your change"
    )
    assert content(file) == "one\ntwo\n"
    await first.use(read_file, path="src/app.py")
    await first.use(used, path="src/app.py", **arguments)

    assert content(file).startswith("mine\n")


@pytest.mark.realtime
@pytest.mark.parametrize(("used", "arguments"), CHANGES)
async def test_a_file_changed_from_outside_is_refused_without_a_name(
    file: Path, siblings: tuple[Worker, Worker], used: Tool, arguments: dict[str, str]
) -> None:
    """Also where a sibling had changed it before: it is not theirs any more."""
    first, second = siblings
    await first.use(read_file, path="src/app.py")
    await second.use(read_file, path="src/app.py")
    await second.use(write_file, path="src/app.py", content="one or two\n")
    change(file, "one from an editor\n")

    answer = await first.refused(used, path="src/app.py", **arguments)

    assert answer == (
        "src/app.py has changed since you read it: read it again, then repeat your change"
    )
    assert content(file) == "one from an editor\n"


@pytest.mark.realtime
async def test_a_change_of_the_same_length_in_the_same_moment_is_seen(
    file: Path, siblings: tuple[Worker, Worker]
) -> None:
    """Size and time are not enough: clocks of file systems are slow."""
    first, _ = siblings
    before = os.stat(file)  # noqa: PTH116
    await first.use(read_file, path="src/app.py")
    change(file, "ONE\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert "has changed" in await first.refused(write_file, path="src/app.py", content="mine")


@pytest.mark.realtime
async def test_a_file_that_was_only_touched_has_not_changed(
    file: Path, siblings: tuple[Worker, Worker]
) -> None:
    first, _ = siblings
    await first.use(read_file, path="src/app.py")
    change(file, "one\n")
    os.utime(file, (1, 1))

    await first.use(write_file, path="src/app.py", content="mine")

    assert content(file) == "mine"


@pytest.mark.realtime
async def test_a_task_may_change_a_file_that_it_wrote(
    tmp_path: Path, siblings: tuple[Worker, Worker]
) -> None:
    first, second = siblings
    await first.use(write_file, path="new.py", content="a = 1\n")
    await first.use(edit_file, path="new.py", old="1", new="2")
    await first.use(write_file, path="new.py", content="a = 3\n")

    assert (tmp_path / "new.py").read_text() == "a = 3\n"
    assert "read it first" in await second.refused(write_file, path="new.py", content="mine")


@pytest.mark.realtime
async def test_a_removed_file_may_be_written_again(
    file: Path, siblings: tuple[Worker, Worker]
) -> None:
    first, _ = siblings
    await first.use(read_file, path="src/app.py")
    os.unlink(file)  # noqa: PTH108

    assert "created" in await first.use(write_file, path="src/app.py", content="new")


@pytest.mark.realtime
async def test_several_edits_in_one_step_all_count(
    file: Path, siblings: tuple[Worker, Worker]
) -> None:
    """A model may ask for them at once, and knows its own changes."""
    first, _ = siblings
    change(file, "".join(f"<{number}>\n" for number in range(20)))
    await first.use(read_file, path="src/app.py")

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(edit, first, f"<{number}>", f"[{number}]")

    assert content(file) == "".join(f"[{number}]\n" for number in range(20))


async def edit(worker: Worker, old: str, new: str) -> None:
    await worker.use(edit_file, path="src/app.py", old=old, new=new)


@pytest.mark.realtime
@pytest.mark.parametrize("used", [edit_file, write_file], ids=["edit", "write"])
async def test_concurrent_changes_of_siblings_are_all_kept(
    tmp_path: Path, file: Path, used: Tool
) -> None:
    """All read, all change, and a task that comes too late reads again."""
    siblings = 12
    change(file, "end\n")
    registry = FileRegistry()
    refused = 0

    async def append(number: int) -> None:
        nonlocal refused
        worker = Worker(tmp_path, registry, f"/editor/coder[{number}]")
        while True:
            read = await worker.use(read_file, path="src/app.py")
            text = "".join(f"{line[7:]}\n" for line in read.splitlines())
            own = f"{number}\n"
            arguments = (
                {"old": "end\n", "new": f"{own}end\n"}
                if used is edit_file
                else {"content": f"{own}{text}"}
            )
            try:
                await worker.use(used, path="src/app.py", **arguments)
            except ToolError as exc:
                assert "was changed by /editor/coder[" in str(exc)  # noqa: PT017
                refused += 1
            else:
                return

    async with trio.open_nursery() as nursery:
        for number in range(siblings):
            nursery.start_soon(append, number)

    lines = content(file).splitlines()
    assert sorted(lines) == sorted([*map(str, range(siblings)), "end"])
    assert refused > 0
    assert [it.name for it in file.parent.iterdir()] == ["app.py"]


@pytest.mark.realtime
async def test_one_of_many_concurrent_writers_creates_the_file(tmp_path: Path) -> None:
    registry = FileRegistry()
    made: list[int] = []

    async def make(number: int) -> None:
        worker = Worker(tmp_path, registry, f"/editor/coder[{number}]")
        try:
            await worker.use(write_file, path="deep/new", content=str(number))
        except ToolError as exc:
            assert "read it first" in str(exc)  # noqa: PT017
        else:
            made.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(SIBLINGS):
            nursery.start_soon(make, number)

    assert [(tmp_path / "deep/new").read_text()] == [str(it) for it in made]


@pytest.mark.realtime
async def test_workspaces_in_each_other_share_their_files(tmp_path: Path, file: Path) -> None:
    registry = FileRegistry()
    outer = Worker(tmp_path, registry, "/outer")
    inner = Worker(file.parent, registry, "/outer/inner")
    await outer.use(read_file, path="src/app.py")
    await inner.use(read_file, path="app.py")
    await inner.use(write_file, path="app.py", content="inner")

    answer = await outer.refused(write_file, path="src/app.py", content="outer")

    assert "was changed by /outer/inner" in answer


@pytest.mark.realtime
async def test_a_long_file_is_compared_by_its_metadata(tmp_path: Path) -> None:
    """To read all of it would take too long."""
    file = tmp_path / "long"
    file.write_bytes(b"line\n" * 3_000_000)
    worker = Worker(tmp_path)
    await worker.use(read_file, path="long", limit=1)
    with file.open("ab") as opened:
        opened.write(b"more\n")

    assert "has changed" in await worker.refused(write_file, path="long", content="x")
    await worker.use(read_file, path="long", limit=1)
    await worker.use(write_file, path="long", content="x")

    assert content(file) == "x"


def test_without_a_digest_a_version_is_known_by_size_and_time() -> None:
    seen = fingerprint("abc", digest=False)

    assert seen.has_same_content(fingerprint("xyz"))
    assert not seen.has_same_content(fingerprint("abc", modified=1))
    assert fingerprint("abc").has_same_content(fingerprint("abc", modified=1))
    assert not fingerprint("abc").has_same_content(fingerprint("xyz"))


def test_the_file_registry_forgets_old_writers() -> None:
    """The registry is bounded; a forgotten writer loses its name, not the change."""
    registry = FileRegistry()
    mine = SeenFiles(registry, "/mine")
    mine.note_read("/0", fingerprint("old"))
    other = SeenFiles(registry, "/other")

    for number in range(seen_files.MAX_WRITERS + 1):
        other.note_written(f"/{number}", fingerprint("new"))

    assert registry.last_writer("/0", fingerprint("new")) is None
    assert registry.last_writer("/1", fingerprint("new")) == "/other"
    with pytest.raises(ToolError, match=r"^x has changed since you read it"):
        mine.require_seen("/0", fingerprint("new"), path="x")
