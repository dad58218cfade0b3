"""Files and folders of this user alone: made so, and refused if another user could have made them.

Whatever the umask says, no other user can look inside, not even for a moment.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
MOST_LINKS: Final = 40
"""How many links in a row the system follows, too."""

_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def make_private_folder(folder: Path) -> None:
    """Make a folder, and the missing folders above it, for this user alone."""
    if not folder.exists():
        make_private_folder(folder.parent)
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def irregularity(found: os.stat_result) -> str:
    """Return the kind of a file that is not a plain file, whose opening may block for ever."""
    if stat.S_ISREG(found.st_mode):
        return ""
    return f"it is {_KINDS.get(stat.S_IFMT(found.st_mode), 'something else')}, not a file"


def foreign_hand(found: os.stat_result) -> str:
    """Return how another user may have made or changed a file; empty if no other user could."""
    if problem := irregularity(found):
        return problem
    if problem := foreign_owner(found):
        return problem
    if found.st_mode & OTHERS_WRITE:
        return "other users may write it: if you trust what is in it, chmod 600"
    return ""


def foreign_owner(found: os.stat_result) -> str:
    """Return the problem with a file of another user; empty if it is this user's."""
    if found.st_uid == os.geteuid():
        return ""
    return (
        "it belongs to another user, who can read what is written to it: move it away, or chown it"
        " if you trust what is in it"
    )


def foreign_file(file: Path) -> str:
    """Return how another user could have made or changed a file that is obeyed; else empty.

    Root and the group of this user are trusted, as in `foreign_folder`.
    """
    if link := foreign_link(file):
        return f"{link} is a link of another user"
    found = file.stat()
    if problem := irregularity(found):
        return f"{file}: {problem}"
    if found.st_uid not in {os.geteuid(), 0}:
        return f"{file} belongs to another user; if you trust its content, copy it"
    others = OTHERS_WRITE if found.st_gid != os.getegid() else stat.S_IWOTH
    if found.st_mode & others:
        return (
            f"other users can write {file} ({stat.filemode(found.st_mode)}); if you trust its"
            " content, chmod 600"
        )
    return foreign_folder(file.parent)


def foreign_folder(folder: Path) -> str:
    """Return how another user could replace the files in a folder; empty if no other user could.

    With the sticky bit, as in /tmp, files stay their owners', and each file is judged by itself.
    The group of this user is trusted: it is the user's own wherever the umask lets it write.
    """
    try:
        found = folder.stat()
    except FileNotFoundError:
        return ""
    if found.st_uid not in {os.geteuid(), 0}:
        return f"{folder} belongs to another user, who can replace the files in it"
    others = OTHERS_WRITE if found.st_gid != os.getegid() else stat.S_IWOTH
    if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
        return (
            f"other users can replace the files in {folder}"
            f" ({stat.filemode(found.st_mode)}): chmod 700"
        )
    return ""


def foreign_link(path: Path) -> Path | None:
    """Return the link that another user has put at a path, or behind a link at it, if any.

    Like the kernel for folders such as /tmp, it allows links of the folder's owner.
    """
    for _ in range(MOST_LINKS):
        try:
            found = path.lstat()
            owner = path.parent.stat().st_uid
        except OSError:
            return None
        if not stat.S_ISLNK(found.st_mode):
            return None
        if found.st_uid not in {os.geteuid(), owner}:
            return path
        path = path.parent / path.readlink()
    return None


class PrivateFile:
    """A file with many readers and one writer at a time, who replaces it as a whole.

    Its folder is made when it is first changed. `error` makes the error to raise from a sentence.
    """

    def __init__(
        self, path: Path, *, error: Callable[[str], Exception], most_bytes: int = 10_000_000
    ) -> None:
        self.path = path
        self._error = error
        self._most_bytes = most_bytes

    def read(self) -> bytes | None:
        """Return the content of the file; None if there is no file."""
        path = self.path
        self._require_own_folder()
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise self._error(f"{path} cannot be read: {exc.strerror}") from exc
        with os.fdopen(descriptor, "rb") as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise self._error(f"{path} is no file of yours; remove it")
            if stat.S_IMODE(found.st_mode) & 0o077:
                raise self._error(
                    f"others can read or write {path}: look whether all that is in it is yours,"
                    f" and then chmod 600 {path}"
                )
            return opened.read(self._most_bytes)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keep all others from changing it, as long as the block lasts."""
        lock = self.open_lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def open_lock(self, purpose: str = "") -> int:
        """Return a descriptor to lock, for changes or another purpose; closing it releases it."""
        folder = self.path.parent
        make_private_folder(folder)
        self._require_own_folder()
        try:
            return os.open(
                folder / f"{self.path.name}{purpose}.lock",
                os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
                PRIVATE_FILE,
            )
        except OSError as exc:
            raise self._error(f"{folder} cannot be written to: {exc.strerror}") from exc

    def replace(self, text: bytes) -> None:
        """Replace the content of the file. Others read the whole old or the whole new content."""
        temporary = self.path.with_name(f".{self.path.name}.{token_hex(6)}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
            try:
                with os.fdopen(descriptor, "wb") as opened:
                    opened.write(text)
                    opened.flush()
                    os.fsync(opened.fileno())
                temporary.replace(self.path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as exc:
            raise self._error(f"{self.path} cannot be written: {exc.strerror}") from exc

    def _require_own_folder(self) -> None:
        """Refuse a folder where another user could put an older file back."""
        folder = self.path.parent
        try:
            found = folder.stat()
        except FileNotFoundError:
            return
        except OSError as exc:
            raise self._error(f"{folder} cannot be read: {exc.strerror}") from exc
        if foreign_link(folder) or foreign_owner(found) or found.st_mode & OTHERS_WRITE:
            raise self._error(
                f"others can change the files in {folder}: move it away, make a folder of your own"
                " with mode 700, and check that every file in it is yours"
            )
