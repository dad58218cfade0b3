"""What files there are in the workspace. Links are shown, and never followed."""

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import closing
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final, TypeAlias

import attrs

from agents.errors import ToolError
from agents.tools.context import current_tool_context
from agents.tools.files.dir_entry import (
    MAX_DEPTH,
    DirEntry,
    escape_unprintable,
    file_kind,
    open_folder_at,
    os_errors_as_tool_errors,
)
from agents.tools.files.workspace import Workspace
from agents.tools.tool import tool

LISTED: Final = 500
# Of one answer; what a tool may say at most is more.
CHARACTERS: Final = 40_000
# Names that one call looks at.
ENTRIES: Final = 50_000
# Of a pattern: each name that is looked at is compared with each name in it.
PATTERN: Final = 1_000
NAMES: Final = 30
# They are entered only by name: there is much in them, and nothing that one wrote.
VERSION_CONTROL_FOLDERS: Final = frozenset(
    {".git", ".hg", ".svn", ".jj", ".bzr", "CVS", "_darcs"}
)

States: TypeAlias = frozenset[int]


@tool(idempotent=True)
def list_files(path: str = ".", pattern: str = "*", *, hidden: bool = False) -> str:
    """List files and folders in the workspace, with sizes.

    Args:
        path: a folder, relative to the workspace.
        pattern: which to list: `*` all in that folder, `**/*.py` at any depth below it.
        hidden: list also what begins with a dot.
    """
    found: list[str] = []
    left_out = 0
    room = CHARACTERS
    with Workspace(current_tool_context().workspace).find(path) as spot:
        walk = Walk(Glob(pattern, hidden=hidden))
        with closing(walk.entries(spot)) as entries:
            for entry in entries:
                if len(found) == LISTED or room < 0:
                    left_out += 1
                    continue
                found.append(_listed(entry))
                room -= len(found[-1]) + 1
    if not found:
        found.append(f"[nothing in {escape_unprintable(spot.path)} fits {pattern!r}]")
    if left_out:
        found.append(f"[{left_out} more; ask for a part of it, by path or pattern]")
    return "\n".join([*found, *walk.notes()])


class Glob:
    """A pattern of paths, as far as it has come: a set of places in it, one for each way."""

    def __init__(self, pattern: str, *, hidden: bool) -> None:
        """Read a pattern.

        Args:
            pattern: names with `*`, `?` and `[...]` in them, and `**` for any number of folders.
            hidden: let these stand for what begins with a dot, too.
        """
        if "{" in pattern:
            raise ToolError(
                f"{pattern!r} is refused: braces are not known here; call once for each"
            )
        names = [name for name in pattern.split("/") if name not in {"", "."}]
        # One behind the other, they say the same as one.
        self._names = [
            name
            for index, name in enumerate(names)
            if name != "**" or names[index - 1 : index] != ["**"]
        ]
        if len(pattern) > PATTERN or len(self._names) > NAMES:
            raise ToolError(
                f"a pattern has at most {PATTERN} characters, in {NAMES} names"
            )
        self._hidden = hidden

    def start(self) -> States:
        return self._also({0})

    def step(self, states: States, name: str) -> States:
        """Return where one is behind a name: nowhere is no way on."""
        behind: set[int] = set()
        for state in states:
            if state == len(self._names):
                continue
            here = self._names[state]
            if name.startswith(".") and not (self._hidden or here.startswith(".")):
                continue
            if here == "**":
                behind.add(state)
            elif fnmatchcase(name, here):
                behind.add(state + 1)
        return self._also(behind)

    def matches(self, states: States) -> bool:
        return len(self._names) in states

    def can_continue(self, states: States) -> bool:
        return any(state < len(self._names) for state in states)

    def has_literal(self, name: str) -> bool:
        """Tell whether a name is part of it, letter by letter."""
        return name in self._names

    def _also(self, states: set[int]) -> States:
        # `**` is any number of folders: also none, and then one is behind it already.
        for state, name in enumerate(self._names):
            if state in states and name == "**":
                states.add(state + 1)
        return frozenset(states)


@attrs.frozen(kw_only=True)
class Entry:
    """Something that a walk has come to; the folder is open until it goes on."""

    path: str
    name: str
    folder: int
    status: os.stat_result


class Walk:
    """Goes through a folder in order, and follows no link."""

    def __init__(self, glob: Glob, *, most: int = ENTRIES) -> None:
        self._glob = glob
        self._most = most
        self._left = most
        self._closed: list[str] = []

    def entries(self, spot: DirEntry) -> Generator[Entry]:
        """Return what fits, in order. Whoever stops early closes it."""
        with spot.open_folder() as folder:
            begin = "" if spot.path == "." else f"{spot.path}/"
            yield from self._below(folder, begin, self._glob.start(), MAX_DEPTH)

    def _below(
        self, folder: int, begin: str, states: States, depth: int
    ) -> Generator[Entry]:
        for name in self._names(folder):
            states_here = self._glob.step(states, name)
            if not states_here:
                continue
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue  # It has just gone.
            path = begin + name
            if self._glob.matches(states_here):
                yield Entry(path=path, name=name, folder=folder, status=status)
            if (
                not stat.S_ISDIR(status.st_mode)
                or not self._glob.can_continue(states_here)
                or (
                    name in VERSION_CONTROL_FOLDERS and not self._glob.has_literal(name)
                )
            ):
                continue
            try:
                with os_errors_as_tool_errors(path):
                    inner = open_folder_at(name, folder, path)
            except ToolError as exc:
                self._closed.append(str(exc))
                continue
            try:
                if depth:
                    yield from self._below(inner, f"{path}/", states_here, depth - 1)
                else:
                    self._closed.append(f"{escape_unprintable(path)!r} is too deep")
            finally:
                os.close(inner)

    def _names(self, folder: int) -> list[str]:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, self._left))
        self._left -= len(names)
        return names

    def notes(self) -> Iterator[str]:
        """Say what was not looked at."""
        if self._left <= 0:
            yield (
                f"[there are more than {self._most} names, and the others were not looked at;"
                " ask for a part of it, by path]"
            )
        for why in self._closed[:5]:
            yield f"[not looked at: {why}]"
        if more := len(self._closed[5:]):
            yield f"[not looked at: {more} more folders]"


def _listed(entry: Entry) -> str:
    path, status = escape_unprintable(entry.path), entry.status
    if stat.S_ISDIR(status.st_mode):
        return f"{path}/"
    if stat.S_ISREG(status.st_mode):
        return f"{path}  {_size(status.st_size)}"
    if stat.S_ISLNK(status.st_mode):
        try:
            return f"{path} -> {escape_unprintable(os.readlink(entry.name, dir_fd=entry.folder))}"
        except OSError:
            return f"{path}  (a link)"
    return f"{path}  ({file_kind(status)})"


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_in = count / 1000
        if count_in < 1000:
            return f"{count_in:.1f} {unit}"
        count //= 1000
    return f"{count / 1000:.1f} GB"
