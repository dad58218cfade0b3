"""A name in a folder that is held open: what is there is opened, looked at and replaced.

Nothing here follows a link: one that somebody puts in the way meanwhile is refused, or replaced,
but leads nowhere. Only plain files on a disk are opened, so nothing hangs and nothing is endless.
"""

import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Final

from agents.errors import ToolError

# Folders in each other: so many descriptors are held at once.
MAX_DEPTH: Final = 100
# In a folder with more names, near ones are looked for among so many.
NAMES: Final = 5_000

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking, since a pipe may have been put where we have just seen a file.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class DirEntry:
    """Where a path leads: a name in a folder that is held open."""

    def __init__(
        self, workspace: str, folders: tuple[str, ...], folder: int, name: str
    ) -> None:
        self.folder: Final = folder
        """The descriptor of the folder."""
        self.name: Final = name
        """`.` is the folder itself."""
        names = [*folders[1:], *([name] if name != "." else [])]
        self.path: Final = "/".join(names) or "."
        """From the top of the workspace, without links: this is what is shown."""
        self.real: Final = str(Path(workspace, *names))
        """The same file has the same one in every workspace that it is part of."""

    def status(self) -> os.stat_result | None:
        """Return what is here now, or None."""
        with suppress(FileNotFoundError):
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        return None

    def is_writable(self) -> bool:
        """Tell whether we may write to the file that is here."""
        return os.access(self.name, os.W_OK, dir_fd=self.folder, follow_symlinks=False)

    @contextmanager
    def open_file(self) -> Generator[tuple[int, os.stat_result]]:
        """Open the file that is here for reading, and say what it is."""
        with open_regular_file(self.name, self.folder, self.path) as opened:
            yield opened

    @contextmanager
    def open_folder(self) -> Generator[int]:
        """Open the folder that is here."""
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
        """Put a file here, whole or not at all, and say what it is.

        Args:
            content: all of it.
            old: what is replaced, whose permissions stay.
        """
        # The name of the file could be too long for anything to be added.
        part = f".orchestrator-{secrets.token_hex(8)}.tmp"
        mode = 0o666 if old is None else 0o600
        descriptor = os.open(part, _NEW, mode, dir_fd=self.folder)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor)
                file.write(content)
                file.flush()
                if old is not None:
                    _keep_permissions(descriptor, old)
                # Else a power cut may leave the new name with nothing in it.
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
    name: str, folder: int, path: str
) -> Generator[tuple[int, os.stat_result]]:
    """Open a file in a folder for reading, and say what it is.

    Raises:
        ToolError: there is none, or it is no plain file.
    """
    try:
        # Looked at before it is opened: opening alone does something to some devices.
        require_regular_file(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
    except FileNotFoundError:
        raise not_found_error(name, folder, path) from None
    descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        require_regular_file(found, path)
        _require_on_disk(descriptor, folder, path)
        yield descriptor, found
    finally:
        os.close(descriptor)


@contextmanager
def os_errors_as_tool_errors(path: str) -> Generator[None]:
    """Tell the model what the system says of a path."""
    try:
        yield
    except OSError as exc:
        why = exc.strerror or type(exc).__name__
        raise ToolError(f"{escape_unprintable(path)!r} cannot be used: {why}") from exc


def escape_unprintable(text: str) -> str:
    """Return a name on one line: a file may be called anything."""
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
    """Raise `ToolError` if this is anything but a plain file."""
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(
            f"{escape_unprintable(path)!r} is a folder: list_files shows what is in it"
        )
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(
            f"{escape_unprintable(path)!r} is {file_kind(found)}: only plain files are read and written"
        )


def open_folder_at(name: str, folder: int, path: str) -> int:
    """Open a folder in another, if it is none that only looks like one, and return it."""
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


def not_found_error(name: str, folder: int, path: str) -> ToolError:
    """Say that something is not there, and what is there with a name like it."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, NAMES)]
    near = get_close_matches(name, names, n=5, cutoff=0.5)
    # In another case it may be far away, letter by letter.
    near += [it for it in names if it.lower() == name.lower() and it not in near]
    where = path.rpartition("/")[0]
    begin = f"{where}/" if where else ""
    hint = (
        f"there is {', '.join(repr(escape_unprintable(begin + it)) for it in near)}"
        if near
        else f"list_files({escape_unprintable(where) or '.'!r}) shows what is there"
    )
    return ToolError(
        f"there is no {escape_unprintable(path)!r} in the workspace; {hint}"
    )


def _require_on_disk(descriptor: int, folder: int, path: str) -> None:
    """Refuse what the kernel makes up, such as /proc: it may be endless, or never answer."""
    other = os.fstat(descriptor).st_dev != os.fstat(folder).st_dev
    if other and os.fstatvfs(descriptor).f_blocks == 0:
        raise ToolError(
            f"{escape_unprintable(path)!r} is made up by the system: only files on a disk are read and"
            " written"
        )


def _keep_permissions(descriptor: int, old: os.stat_result) -> None:
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        with suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    # Not the bits that lend the owner's rights: writing to a file takes them away, too.
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)
