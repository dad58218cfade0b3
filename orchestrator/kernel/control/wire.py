"""The wire protocol of the control socket: its path, and its lines.

A line is one JSON object of at most `LONGEST_LINE` bytes. A longer one is skipped, and raises
`TooLongError`.
"""

import hashlib
import os
import stat
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

PROTOCOL: Final = 1
LONGEST_LINE: Final = 64 * 1024
LONGEST_PATH: Final = 100
"""How many bytes of a path every system takes as the address of a socket: some have only 104."""
CHUNK: Final = 16 * 1024


class TooLongError(Exception):
    """The other end has sent a line that is too long."""

    def __init__(self) -> None:
        super().__init__(f"a line may have {LONGEST_LINE} bytes")


def socket_path(journal: Path) -> Path:
    """Return the path of the control socket of a journal's writer.

    It is beside the journal. Where that path is too long for a socket, it is in a folder that only
    this user may enter, under a name that every process derives from the journal's path.
    """
    # A journal has one socket, by whichever of its paths it was opened.
    real = Path(os.path.realpath(journal))
    beside = real.with_name(f"{real.name}.sock")
    if len(os.fsencode(beside)) <= LONGEST_PATH:
        return beside
    name = hashlib.sha256(os.fsencode(real)).hexdigest()[:32]
    # Not TMPDIR: the two processes may have different ones.
    return Path(f"/tmp/orchestrator-{os.getuid()}") / f"{name}.sock"  # noqa: S108


def is_shared(folder: Path) -> bool:
    """Return whether every user may make folders in this one."""
    return folder == Path("/tmp")  # noqa: S108 (that is why it is asked)


def require_private(folder: Path) -> None:
    """Raise if a folder is not of this user only: others may have made it."""
    found = folder.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(folder)


def encode_line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode(message) + b"\n"


class LineReader:
    """Reads lines from a stream, in whatever pieces they arrive."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._unread = bytearray()
        self._is_skipping = False

    async def read(self) -> bytes | None:
        """Return the next line, or None at the end; raise `TooLongError` for one too long."""
        await trio.lowlevel.checkpoint()
        while True:
            end = self._unread.find(b"\n")
            if end >= 0:
                line = bytes(self._unread[:end])
                del self._unread[: end + 1]
                was_skipping, self._is_skipping = self._is_skipping, False
                if was_skipping or end > LONGEST_LINE:
                    raise TooLongError
                return line
            if len(self._unread) > LONGEST_LINE:
                self._is_skipping = True
                self._unread.clear()
            chunk = await self._stream.receive_some(CHUNK)
            if not chunk:
                # A last line without a line end was cut off: it may mean something else.
                return None
            self._unread += chunk
