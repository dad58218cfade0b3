"""Files and folders of this user alone: made so, and refused if another user could have made them.

Whatever the umask says, no other user can look inside, not even for a moment.
"""

import os
import stat
from pathlib import Path
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
    """Make a folder, and those above it, for this user alone. What is there stays as it is."""
    if not folder.exists():
        make_private_folder(folder.parent)
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def irregularity(found: os.stat_result) -> str:
    """Return what a file is if it is no plain file; opening it may take for ever."""
    if stat.S_ISREG(found.st_mode):
        return ""
    return (
        f"it is {_KINDS.get(stat.S_IFMT(found.st_mode), 'something else')}, not a file"
    )


def foreign_hand(found: os.stat_result) -> str:
    """Return how another user may have made or changed a file; nothing if none could."""
    if problem := irregularity(found):
        return problem
    if problem := foreign_owner(found):
        return problem
    if found.st_mode & OTHERS_WRITE:
        return "other users may write it: if you trust what is in it, chmod 600"
    return ""


def foreign_owner(found: os.stat_result) -> str:
    """Return what is wrong with a file of another user; nothing if it is this user's."""
    if found.st_uid == os.geteuid():
        return ""
    return (
        "it belongs to another user, who can read what is written to it: move it away, or chown it"
        " if you trust what is in it"
    )


def foreign_folder(folder: Path) -> str:
    """Return how another user could exchange the files in a folder; nothing if none could.

    Where files stay their owners' (the sticky bit, as in /tmp), each file is judged by itself. The
    group of this user is trusted: it is the user's own wherever the umask lets it write.
    """
    try:
        found = folder.stat()
    except FileNotFoundError:
        return ""
    if found.st_uid not in {os.geteuid(), 0}:
        return f"{folder} belongs to another user, who can exchange what is in it"
    others = OTHERS_WRITE if found.st_gid != os.getegid() else stat.S_IWOTH
    if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
        return (
            f"other users can exchange what is in {folder}"
            f" ({stat.filemode(found.st_mode)}): chmod 700"
        )
    return ""


def foreign_link(path: Path) -> Path | None:
    """Return the link that another user has put at a path, or behind a link at it, if one has.

    As the system judges links in folders such as /tmp: those of the folder's owner are fine.
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
