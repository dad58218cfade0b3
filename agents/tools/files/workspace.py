"""The folder of file tools: resolves the paths of a model without ever leaving it.

A path is untrusted, and folders on the way may change while it is resolved. So the kernel never
resolves one: we open folder by folder, each relative to the descriptor of its parent, read links
ourselves, and go no higher than the workspace. The rules of the call judge the result, and the same
descriptor opens it.
"""

import os
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from orchestrator.agents.approved_call import APPROVED_CALL
from orchestrator.agents.errors import ToolError
from orchestrator.agents.tools.context import current_tool_context
from orchestrator.agents.tools.files.access import FileAccess
from orchestrator.agents.tools.files.dir_entry import (
    MAX_DEPTH,
    DirEntry,
    MissingFileError,
    escape_unprintable,
    not_found_error,
    open_folder_at,
    os_errors_as_tool_errors,
)

# As in the kernel.
MAX_LINKS: Final = 40
MAX_CHARACTERS: Final = 4_096

VERSION_CONTROL_NAMES: Final = frozenset({".git", ".hg", ".svn", ".jj", ".bzr", "cvs", "_darcs"})
"""The folders, and files, of version control, in lower case."""

RULE: Final = (
    "files are read and written only inside the workspace, whose top is '.'; give a path"
    " relative to it, without '..' or links that lead out"
)


class Workspace:
    """A folder, and the resolution of paths in it.

    `top` is a folder above it: no part of the path below `top` may be a link. None trusts the path.
    """

    def __init__(
        self, folder: Path, *, top: Path | None = None, access: FileAccess | None = None
    ) -> None:
        self._top = os.path.realpath(folder if top is None else top)
        self._steps = () if top is None else folder.relative_to(top).parts
        self._real = str(Path(self._top, *self._steps))
        # A model may have read either of them.
        self._roots = {_parts(self._real), _parts(str(folder.absolute()))}
        self.access: Final = FileAccess() if access is None else access

    @contextmanager
    def find(
        self, path: str, *, writes: bool = False, make_folders: bool = False
    ) -> Generator["DirEntry"]:
        """Resolve a path of a model up to its last name, which need not exist.

        A path that is written must not be of version control. Raise `ToolError` if the path leads
        out of the workspace, does not exist, or is closed to the call.
        """
        with os_errors_as_tool_errors(path):
            _require_valid_path(path)
            names = deque(self._names_inside(path, path))
            if len(names) > MAX_DEPTH:
                raise _too_deep(path)
            open_folders = [("", self._open())]
            try:
                name = self._resolve(
                    path, names, open_folders, writes=writes, make_folders=make_folders
                )
                self._require_access(path, _below_top(open_folders, name), writes=writes)
                yield DirEntry(
                    self._real,
                    tuple(name for name, _ in open_folders),
                    open_folders[-1][1],
                    name,
                    self.access.require_visible,
                )
            finally:
                _close_below(open_folders, 0)

    def _open(self) -> int:
        """Open the workspace itself."""
        descriptor = _open_top(self._top)
        for index, name in enumerate(self._steps):
            above = descriptor
            try:
                descriptor = open_folder_at(name, above, "/".join(self._steps[: index + 1]))
            except OSError as exc:
                raise _unopened(exc) from exc
            finally:
                os.close(above)
        return descriptor

    def _require_access(self, path: str, names: Sequence[str], *, writes: bool) -> None:
        """Raise if the call must not use the target of a path."""
        found = "/".join(names) or "."
        real = str(Path(self._real, *names))
        self.access.require(path, found, real, writes=writes)

    def _names_inside(self, target: str, path: str) -> tuple[str, ...]:
        """Return the names of a path, or of the target of a link on it, below the workspace."""
        names = _parts(target)
        if not target.startswith("/"):
            return names
        for root in self._roots:
            if names[: len(root)] == root:
                return names[len(root) :]
        raise _outside(path)

    def _resolve(
        self,
        path: str,
        names: deque[str],
        open_folders: list[tuple[str, int]],
        *,
        writes: bool,
        make_folders: bool,
    ) -> str:
        """Open the folders of a path, and return the last name in the last of them."""
        links = 0
        while names:
            name = names.popleft()
            if name == "..":
                if len(open_folders) == 1:
                    raise _outside(path)
                _close_below(open_folders, len(open_folders) - 1)
                continue
            if (target := _link_target(name, open_folders[-1][1])) is not None:
                links += 1
                if links > MAX_LINKS:
                    raise ToolError(f"{path!r} leads through more than {MAX_LINKS} links")
                if target.startswith("/"):
                    _close_below(open_folders, 1)
                names.extendleft(reversed(self._names_inside(target, path)))
                continue
            if writes and name.casefold() in VERSION_CONTROL_NAMES:
                raise _of_version_control(path, name)
            if not names:
                return name
            if len(open_folders) > MAX_DEPTH:
                raise _too_deep(path)
            # A folder before a `..` is never created.
            make = make_folders and ".." not in names
            found = [*_below_top(open_folders, name), *names]
            inner = self._enter(path, found, open_folders, make=make)
            open_folders.append((name, inner))
        return "."

    def _enter(
        self,
        path: str,
        found: Sequence[str],
        open_folders: Sequence[tuple[str, int]],
        *,
        make: bool,
    ) -> int:
        """Open the next folder on the way of a path, after the names in `found`."""
        name, folder = found[len(open_folders) - 1], open_folders[-1][1]
        here = "/".join(found[: len(open_folders)])
        try:
            return open_folder_at(name, folder, here)
        except FileNotFoundError:
            if not make:
                raise not_found_error(name, folder, here) from None
        # Judged before anything is made.
        self._require_access(path, found, writes=True)
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        return open_folder_at(name, folder, here)


def current_workspace() -> Workspace:
    """Return the workspace of the running tool call, which judges the files that the call opens."""
    context = current_tool_context()
    return Workspace(
        context.workspace,
        top=context.workspace_top,
        access=FileAccess(APPROVED_CALL.get(), context.sandbox),
    )


def resolve_folder(folder: Path, *, top: Path, path: str) -> Path:
    """Return the real path of a folder in a workspace, which need not exist.

    No link leads from `top` to the workspace. Raise `ToolError` if the path leads out of it.
    """
    try:
        with Workspace(folder, top=top).find(path) as entry:
            return Path(entry.real)
    except MissingFileError:
        names = _parts(path)
        if ".." in names:
            raise
        return folder.joinpath(*names)


def _below_top(open_folders: Sequence[tuple[str, int]], name: str) -> list[str]:
    """Return the names from the workspace to a name in the last open folder."""
    names = [parent for parent, _ in open_folders[1:]]
    return names if name == "." else [*names, name]


def _open_top(folder: str) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise _unopened(exc) from exc


def _unopened(exc: OSError) -> ToolError:
    kind = MissingFileError if isinstance(exc, FileNotFoundError) else ToolError
    return kind(f"the workspace cannot be opened: {exc.strerror}")


def _close_below(open_folders: list[tuple[str, int]], count: int) -> None:
    """Close all folders but the first ones."""
    while len(open_folders) > count:
        os.close(open_folders.pop()[1])


def _link_target(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        # It is no link, or missing, or no valid name: the next operation reports that.
        return None


def _outside(path: str) -> ToolError:
    return ToolError(f"{escape_unprintable(path)!r} leads out of the workspace: {RULE}")


def _of_version_control(path: str, name: str) -> ToolError:
    return ToolError(
        f"{escape_unprintable(path)!r} is refused: {name} belongs to version control, whose"
        " settings name commands that it runs; change it with its own program"
    )


def _too_deep(path: str) -> ToolError:
    return ToolError(f"{escape_unprintable(path)!r} is more than {MAX_DEPTH} folders deep")


def _parts(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in {"", "."})


def _require_valid_path(path: str) -> None:
    if len(path) > MAX_CHARACTERS:
        raise ToolError(f"a path has at most {MAX_CHARACTERS} characters")
    # A lone surrogate cannot be encoded.
    is_text = path.encode(errors="replace").decode() == path
    if not is_text or any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise ToolError(
            f"'{escape_unprintable(path)}' is refused: a path may not contain control"
            " characters, such as NUL and new lines, or bytes that are not UTF-8"
        )
    # It would mean a folder outside, and create one of that name inside.
    if _parts(path)[:1] == ("~",):
        raise ToolError(f"{path!r} is refused: '~' is not expanded, and {RULE}")
