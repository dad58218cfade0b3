"""A name in a folder that is held open: opens, inspects and replaces the file of that name.

No function here follows a link: a new link is refused or replaced. Only regular files on a disk are
opened, so a read never hangs and always ends.
"""

import os
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from orchestrator.agents.errors import ToolError

# Nested folders: one descriptor each is open at once.
MAX_DEPTH: Final = 100
# How many names of a folder are looked at for a suggestion.
MAX_NAMES: Final = 5_000
# The number of names that are compared letter by letter, and their length: a comparison takes the
# product of the lengths.
MAX_COMPARED: Final = 100
MAX_COMPARED_LENGTH: Final = 64

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking, since a pipe may have replaced the file that we have just seen.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Require: TypeAlias = Callable[[os.stat_result, str], None]


class MissingFileError(ToolError):
    """A folder on the way, or the file itself, is not there."""


class DirEntry:
    """The target of a path: a name in an open folder."""

    def __init__(
        self, workspace: str, folders: tuple[str, ...], folder: int, name: str, require: Require
    ) -> None:
        self._require = require
        self.workspace: Final = workspace
        """The real path of the workspace."""
        self.folder: Final = folder
        """The descriptor of the folder."""
        self.name: Final = name
        """`.` is the folder itself."""
        names = [*folders[1:], *([name] if name != "." else [])]
        self.path: Final = "/".join(names) or "."
        """Relative to the workspace, with links resolved: what models read."""
        self.real: Final = str(Path(workspace, *names))
        """The absolute path, which is the same in every workspace that contains the file."""

    def status(self) -> os.stat_result | None:
        """Return the status of the current file, or None."""
        with suppress(FileNotFoundError):
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        return None

    def is_writable(self) -> bool:
        """Return whether this process may write to the file."""
        return os.access(self.name, os.W_OK, dir_fd=self.folder, follow_symlinks=False)

    @contextmanager
    def open_file(self) -> Generator[tuple[int, os.stat_result]]:
        """Open the file for reading, and return its descriptor and status."""
        opening = open_regular_file(self.name, self.folder, self.path, self._require)
        with opening as opened:
            yield opened

    @contextmanager
    def open_folder(self) -> Generator[int]:
        """Open the folder of this name, and return its descriptor."""
        if (found := self.status()) is None:
            raise not_found_error(self.name, self.folder, self.path)
        if not stat.S_ISDIR(found.st_mode):
            raise ToolError(
                f"{escape_unprintable(self.path)!r} is {file_kind(found)}, not a folder"
            )
        descriptor = open_folder_at(self.name, self.folder, self.path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def replace(self, content: bytes, old: os.stat_result | None) -> os.stat_result:
        """Write a file atomically, and return its new status; the permissions of `old` stay."""
        # Not derived from the name of the file, which may have the maximal length.
        part = f".orchestrator-{secrets.token_hex(8)}.tmp"
        mode = 0o666 if old is None else 0o600
        descriptor = os.open(part, _NEW, mode, dir_fd=self.folder)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor)
                file.write(content)
                file.flush()
                if old is not None:
                    _keep_permissions(descriptor, old)
                # Otherwise a power cut may leave an empty file under the new name.
                os.fsync(descriptor)
                found = os.fstat(descriptor)
            os.rename(part, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=self.folder)
            raise
        return found


@contextmanager
def open_regular_file(
    name: str, folder: int, path: str, require: Require
) -> Generator[tuple[int, os.stat_result]]:
    """Open a regular file in a folder; return its descriptor and status, or raise `ToolError`."""
    try:
        # Checked before it is opened: opening alone has effects on some devices.
        require_regular_file(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
    except FileNotFoundError:
        raise not_found_error(name, folder, path) from None
    descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        require_regular_file(found, path)
        _require_on_disk(descriptor, folder, path)
        require(found, path)
        yield descriptor, found
    finally:
        os.close(descriptor)


@contextmanager
def os_errors_as_tool_errors(path: str) -> Generator[None]:
    """Translate errors of the system about a path."""
    try:
        yield
    except OSError as exc:
        problem = exc.strerror or type(exc).__name__
        raise ToolError(f"{escape_unprintable(path)!r} cannot be used: {problem}") from exc


def escape_unprintable(text: str) -> str:
    """Return a name on one line, since file names may contain anything."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def file_kind(found: os.stat_result) -> str:
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(found.st_mode), "a special file")


def require_regular_file(found: os.stat_result, path: str) -> None:
    """Raise `ToolError` if this is anything but a regular file."""
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(f"{escape_unprintable(path)!r} is a folder: list_files lists its files")
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(
            f"{escape_unprintable(path)!r} is {file_kind(found)}: only plain files are"
            " read and written"
        )


def open_folder_at(name: str, folder: int, path: str) -> int:
    """Open a folder in another, and return its descriptor; a link is refused."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
    except NotADirectoryError as exc:
        raise ToolError(f"{escape_unprintable(path)!r} is not a folder") from exc
    try:
        _require_on_disk(descriptor, folder, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def not_found_error(name: str, folder: int, path: str) -> MissingFileError:
    """Return the error for a missing file, with similar names as a hint."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MAX_NAMES)]
    short = [it for it in names if len(it) <= MAX_COMPARED_LENGTH][:MAX_COMPARED]
    wanted = name[:MAX_COMPARED_LENGTH]
    near = get_close_matches(wanted, short, n=5, cutoff=0.5)
    # `get_close_matches` finds no name that differs in case throughout.
    near += [other for other in names if other.lower() == name.lower() and other not in near]
    where = path.rpartition("/")[0]
    prefix = f"{where}/" if where else ""
    hint = (
        f"there is {', '.join(repr(escape_unprintable(prefix + other)) for other in near)}"
        if near
        else f"list_files({escape_unprintable(where) or '.'!r}) shows what is there"
    )
    return MissingFileError(f"there is no {escape_unprintable(path)!r} in the workspace; {hint}")


def _require_on_disk(descriptor: int, folder: int, path: str) -> None:
    """Refuse virtual files, such as those of /proc: they may be endless, or block for ever."""
    is_mount = os.fstat(descriptor).st_dev != os.fstat(folder).st_dev
    if is_mount and os.fstatvfs(descriptor).f_blocks == 0:
        raise ToolError(
            f"{escape_unprintable(path)!r} is made up by the system: only files on a"
            " disk are read and written"
        )


def _keep_permissions(descriptor: int, old: os.stat_result) -> None:
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        with suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    # Without setuid and setgid: writing to a file clears them, too.
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)
