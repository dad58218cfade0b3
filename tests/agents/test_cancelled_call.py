"""The threads of file tools end soon after their call was cancelled."""

import os
import queue
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import trio

from orchestrator.agents.tools.cancelled_call import stop_if_cancelled
from orchestrator.agents.tools.files.access import FileAccess
from orchestrator.agents.tools.files.glob import Glob
from orchestrator.agents.tools.files.line_reader import CHUNK, FileReader
from orchestrator.agents.tools.files.search import Search
from orchestrator.agents.tools.files.walk import Walk
from orchestrator.agents.tools.files.workspace import Workspace

Steps = Callable[[Path], Iterator[object]]


def read_chunks(folder: Path) -> Iterator[object]:
    file = folder / "long.txt"
    file.write_bytes(b"x" * 3 * CHUNK)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield from FileReader(descriptor, os.fstat(descriptor)).chunks()
    finally:
        os.close(descriptor)


def walk_names(folder: Path) -> Iterator[object]:
    for number in range(5):
        (folder / f"{number}.txt").touch()
    with Workspace(folder).find(".") as top:
        walk = Walk(Glob("**/*", hidden=False), FileAccess())
        with closing(walk.entries(top)) as entries:
            yield from entries


def search_lines(folder: Path) -> Iterator[object]:
    (folder / "a.txt").write_text("line\n" * 5_000)
    found: queue.SimpleQueue[None] = queue.SimpleQueue()

    def matches(_line: str) -> bool:
        found.put(None)
        return False

    with Workspace(folder).find(".") as top:
        search = Search(matches, FileAccess(), seconds=60)
        yield None
        search.run(top, Walk(Glob("**/*", hidden=False), FileAccess()))
        yield found


@pytest.mark.realtime
@pytest.mark.parametrize("steps", [read_chunks, walk_names, search_lines])
async def test_a_cancelled_thread_goes_no_step_further(steps: Steps, tmp_path: Path) -> None:
    go_on: queue.SimpleQueue[None] = queue.SimpleQueue()
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def work() -> None:
        try:
            for number, _ in enumerate(steps(tmp_path)):
                if not number:
                    token.run_sync_soon(begun.set)
                    go_on.get(timeout=60)
                else:
                    told.put("it went on")
        except trio.Cancelled:
            told.put("it ended")
            raise

    async with trio.open_nursery() as nursery:
        run = partial(trio.to_thread.run_sync, work, abandon_on_cancel=True)
        nursery.start_soon(run)
        await begun.wait()
        nursery.cancel_scope.cancel()
    go_on.put(None)

    assert await trio.to_thread.run_sync(partial(told.get, timeout=60)) == "it ended"


def test_stop_if_cancelled_does_not_stop_outside_of_a_call() -> None:
    stop_if_cancelled()
