"""The live display of a run or a session in a notebook.

IPython calls `_ipython_display_`, so it is installed. The last picture is the report's viewer.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Final

from orchestrator.delegation import Tree
from orchestrator.ports.errors import ClosedError
from orchestrator.ports.reads import ReadApi
from orchestrator.products.asyncio.tree_copy import copied
from orchestrator.products.asyncio.trio_thread import TrioThread
from orchestrator.products.history.ports import inline_report

SECONDS_BETWEEN: Final = 0.25
"""The seconds between two pictures: a reader sees no more, and a notebook should not store more."""


class LiveDisplay:
    """One output of a notebook that follows a tree until it is closed."""

    def __init__(self, thread: TrioThread[Any], read: ReadApi, tree: Tree, name: str) -> None:
        self._thread = thread
        self._read = read
        self._tree = tree
        self._name = name
        self._update: Callable[[Mapping[str, str]], None] = lambda _: None
        self._following: asyncio.Task[None] | None = None

    def show(self) -> None:
        """Show the current tree, and follow it."""
        # Imported late: only a notebook has it.
        display: Any = import_module("IPython.display").display
        seen, picture = self._thread.read(self._draw)
        handle = display(self._bundle(picture), raw=True, display_id=True)
        self._update = lambda bundle: handle.update(bundle, raw=True)
        self._following = asyncio.get_running_loop().create_task(self._follow(seen))

    async def close(self) -> None:
        """Show the final tree in the report's viewer."""
        if self._following is None:
            return  # noqa: ASYNC910 (asyncio needs no checkpoints)
        self._following.cancel()
        await asyncio.wait([self._following])
        with suppress(ClosedError):
            tree = await self._thread.call(lambda: copied(self._tree))
            self._update({"text/plain": self._name, "text/html": inline_report(tree)})

    async def _follow(self, seen: int) -> None:  # noqa: ASYNC910 (asyncio needs none)
        # The orchestrator may be closed first.
        with suppress(ClosedError):
            while True:
                await self._thread.call(partial(self._read.wait_posted, after=seen))
                seen, picture = self._thread.read(self._draw)
                self._update(self._bundle(picture))
                await asyncio.sleep(SECONDS_BETWEEN)

    def _draw(self) -> tuple[int, str]:
        return self._read.last_seq, self._tree.to_svg(now=self._read.now())

    def _bundle(self, picture: str) -> Mapping[str, str]:
        return {"text/plain": self._name, "image/svg+xml": picture}
