"""The folder that file tools stay in, and how a path is followed there without ever leaving it.

A path is the word of a model, and what it leads through may change while we look. So the kernel
never follows one for us: we go from folder to folder, each held open by a descriptor, read links
ourselves, and go no higher than where we began.
"""

import os
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from agents.errors import ToolError
from agents.tools.files.dir_entry import (
    MAX_DEPTH,
    DirEntry,
    escape_unprintable,
    not_found_error,
    open_folder_at,
    os_errors_as_tool_errors,
)

# Links that a path may lead through, as in the kernel.
LINKS: Final = 40
CHARACTERS: Final = 4_096

RULE: Final = (
    "files are read and written only inside the workspace, whose top is '.'; give a path"
    " relative to it, without '..' or links that lead out"
)


class Workspace:
    """A folder, and the ways in it."""

    def __init__(self, folder: Path) -> None:
        self._real = os.path.realpath(folder)
        # The model may have been told either of them.
        self._roots = {_parts(self._real), _parts(str(folder.absolute()))}

    @contextmanager
    def find(self, path: str, *, make_folders: bool = False) -> Generator["DirEntry"]:
        """Follow a path as far as its last name, which need not be there.

        Args:
            path: what a model wrote.
            make_folders: make those on the way that are missing.

        Raises:
            ToolError: it leads out of the workspace, or nowhere.
        """
        with os_errors_as_tool_errors(path):
            _require_valid_path(path)
            waiting = deque(self._inside(path, path))
            if len(waiting) > MAX_DEPTH:
                raise _too_deep(path)
            held = [("", _open_top(self._real))]
            try:
                name = self._follow(path, waiting, held, make_folders=make_folders)
                yield DirEntry(
                    self._real, tuple(name for name, _ in held), held[-1][1], name
                )
            finally:
                for _, descriptor in held:
                    os.close(descriptor)

    def _inside(self, way: str, path: str) -> tuple[str, ...]:
        """Return the names below the workspace on a way that a path or one of its links says."""
        names = _parts(way)
        if not way.startswith("/"):
            return names
        for root in self._roots:
            if names[: len(root)] == root:
                return names[len(root) :]
        raise _outside(path)

    def _follow(
        self,
        path: str,
        waiting: deque[str],
        held: list[tuple[str, int]],
        *,
        make_folders: bool,
    ) -> str:
        """Hold the folders of a path open, and return the last name in the last of them."""
        links = 0
        while waiting:
            name = waiting.popleft()
            if name == "..":
                if len(held) == 1:
                    raise _outside(path)
                os.close(held.pop()[1])
                continue
            if (target := _link_target(name, held[-1][1])) is not None:
                links += 1
                if links > LINKS:
                    raise ToolError(f"{path!r} leads through more than {LINKS} links")
                if target.startswith("/"):
                    while len(held) > 1:
                        os.close(held.pop()[1])
                waiting.extendleft(reversed(self._inside(target, path)))
                continue
            if not waiting:
                return name
            if len(held) > MAX_DEPTH:
                raise _too_deep(path)
            # What one only passes on the way back must be there.
            make = make_folders and ".." not in waiting
            held.append((name, _enter(name, held, make=make)))
        return "."


def _open_top(folder: str) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise ToolError(f"the workspace cannot be opened: {exc.strerror}") from exc


def _enter(name: str, held: list[tuple[str, int]], *, make: bool) -> int:
    folder = held[-1][1]
    path = "/".join([*(it for it, _ in held[1:]), name])
    try:
        return open_folder_at(name, folder, path)
    except FileNotFoundError:
        if not make:
            raise not_found_error(name, folder, path) from None
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return open_folder_at(name, folder, path)


def _link_target(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        # It is no link, or not there, or no name: whatever is done with it says so.
        return None


def _outside(path: str) -> ToolError:
    return ToolError(f"{escape_unprintable(path)!r} leads out of the workspace: {RULE}")


def _too_deep(path: str) -> ToolError:
    return ToolError(
        f"{escape_unprintable(path)!r} is more than {MAX_DEPTH} folders deep"
    )


def _parts(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in {"", "."})


def _require_valid_path(path: str) -> None:
    if len(path) > CHARACTERS:
        raise ToolError(f"a path has at most {CHARACTERS} characters")
    # What stands for no character cannot be encoded.
    is_text = path.encode(errors="replace").decode() == path
    if not is_text or any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise ToolError(
            f"'{escape_unprintable(path)}' is refused: there are no control characters in a path, such as"
            " NUL and new lines, and nothing that is no character"
        )
    # Whoever writes it means a folder outside, and would be wrong about what they have done.
    if _parts(path)[:1] == ("~",):
        raise ToolError(f"{path!r} is refused: '~' is not expanded, and {RULE}")
