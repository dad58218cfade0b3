"""A walk through a folder of the workspace, in order, limited by a pattern.

It follows no link, and skips entries that the call may not see.
"""

import os
import stat
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final

import attrs

from orchestrator.agents.errors import ToolError
from orchestrator.agents.tools.cancelled_call import stop_if_cancelled
from orchestrator.agents.tools.files import dir_entry
from orchestrator.agents.tools.files.access import FileAccess
from orchestrator.agents.tools.files.glob import Glob, Positions
from orchestrator.agents.tools.files.workspace import VERSION_CONTROL_NAMES

MAX_ENTRIES: Final = 50_000
"""How many names one call reads."""


@attrs.frozen(kw_only=True)
class FoundPath:
    """A file, folder or link on a walk; `folder` is open until the walk goes on."""

    path: str
    name: str
    folder: int
    status: os.stat_result


class Walk:
    """Yields the entries that match a pattern, and counts the entries that it could not read."""

    def __init__(self, glob: Glob, access: FileAccess, *, max_entries: int = MAX_ENTRIES) -> None:
        self._glob = glob
        self._max_entries = max_entries
        self._entries_left = max_entries
        self._skipped: list[str] = []
        self._access = access
        self._root = ""

    def entries(self, top: dir_entry.DirEntry) -> Generator[FoundPath]:
        """Yield what matches, in order. A caller that stops early must close the generator."""
        with top.open_folder() as folder:
            prefix = "" if top.path == "." else f"{top.path}/"
            self._root = top.workspace
            yield from self._below(folder, prefix, self._glob.start(), dir_entry.MAX_DEPTH)

    def _below(
        self, folder: int, prefix: str, positions: Positions, depth: int
    ) -> Generator[FoundPath]:
        for name in self._names(folder):
            stop_if_cancelled()
            positions_here = self._glob.step(positions, name)
            if not positions_here:
                continue
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue  # It was deleted in between.
            path = prefix + name
            if self._glob.matches(positions_here) and self._access.may_meet(
                path, f"{self._root}/{path}", is_folder=stat.S_ISDIR(status.st_mode)
            ):
                yield FoundPath(path=path, name=name, folder=folder, status=status)
            if (
                not stat.S_ISDIR(status.st_mode)
                or not self._glob.can_continue(positions_here)
                or (
                    # It is large, and has no files that a user wrote.
                    name.casefold() in VERSION_CONTROL_NAMES and not self._glob.has_literal(name)
                )
            ):
                continue
            try:
                with dir_entry.os_errors_as_tool_errors(path):
                    inner = dir_entry.open_folder_at(name, folder, path)
            except ToolError as exc:
                self._skipped.append(str(exc))
                continue
            try:
                if depth:
                    yield from self._below(inner, f"{path}/", positions_here, depth - 1)
                else:
                    self._skipped.append(f"{dir_entry.escape_unprintable(path)!r} is too deep")
            finally:
                os.close(inner)

    def _names(self, folder: int) -> list[str]:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, self._entries_left))
        self._entries_left -= len(names)
        return names

    def notes(self) -> Iterator[str]:
        """Yield a line for everything that was skipped."""
        yield from self._access.notes()
        if self._entries_left <= 0:
            yield (
                f"[there are more than {self._max_entries} names, and the others were not looked"
                " at; ask for a part of it, by path]"
            )
        for reason in self._skipped[:5]:
            yield f"[not looked at: {reason}]"
        if more := len(self._skipped[5:]):
            yield f"[not looked at: {more} more folders]"
