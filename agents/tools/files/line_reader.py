"""Reads a file as lines, in memory bounded by the lines that are asked for."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

from orchestrator.agents.tools.cancelled_call import stop_if_cancelled
from orchestrator.agents.tools.files.seen_files import Fingerprint

# A file up to this size is read to its end: it gets a digest, and can be edited.
MAX_WHOLE_BYTES: Final = 10_000_000
CHUNK: Final = 256 * 1024
# As in git and grep: a file with a NUL in its beginning is binary.
HEAD: Final = 8_192
BOM: Final = b"\xef\xbb\xbf"

_KINDS: Final = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive, or a document in one"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
)


class FileReader:
    """One reading of a file, from its beginning to the end that it had when it was opened."""

    def __init__(self, descriptor: int, status: os.stat_result) -> None:
        self._descriptor = descriptor
        self._status = status
        # Chosen for speed; a collision gains an attacker nothing.
        self._digest = hashlib.blake2b(digest_size=16)
        self._newlines = 0
        self._last = b"\n"
        self.is_long: Final = status.st_size > MAX_WHOLE_BYTES
        self.bytes_left = status.st_size
        """How many bytes are still to be read."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the rest, up to the size at opening: a file may grow faster than it is read."""
        while self.bytes_left > 0 and (
            chunk := os.read(self._descriptor, min(self.bytes_left, CHUNK))
        ):
            stop_if_cancelled()
            self.bytes_left -= len(chunk)
            if not self.is_long:
                self._digest.update(chunk)
            self._newlines += chunk.count(b"\n")
            self._last = chunk[-1:]
            yield chunk
        self.bytes_left = 0

    @property
    def lines(self) -> int:
        """The number of lines that have begun so far."""
        return self._newlines + (self._last != b"\n")

    def fingerprint(self) -> Fingerprint:
        """Return the fingerprint of this version. A file that is not long must be read by then."""
        return fingerprint(self._status, None if self.is_long else self._digest.digest())


def fingerprint(status: os.stat_result, digest: bytes | None) -> Fingerprint:
    return Fingerprint(
        size=status.st_size, modified=status.st_mtime_ns, inode=status.st_ino, digest=digest
    )


def digest_of(content: bytes) -> bytes | None:
    """Return the digest that `FileReader` would compute."""
    if len(content) > MAX_WHOLE_BYTES:
        return None
    return hashlib.blake2b(content, digest_size=16).digest()


_KEY: Final = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY-----\r?\n(?:[^\n]{0,100}\n){0,4}?"
    rb"[A-Za-z0-9+/=]{32,}"
)


def binary_kind(head: bytes) -> str | None:
    """Return the kind of a file that begins like this, or None if it is readable text."""
    for magic, kind in _KINDS:
        if head.startswith(magic):
            return kind
    if _KEY.search(head):
        # Not even a page of it: the redactor could not recognize the middle of a key.
        return "a private key"
    return "binary" if b"\0" in head[:HEAD] else None


def read_head(descriptor: int) -> bytes:
    """Return the beginning of a file, without moving the read position."""
    return os.pread(descriptor, HEAD, 0)


def skip_lines(newlines: int, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Skip a number of lines."""
    for chunk in chunks:
        if not newlines:
            yield chunk
        elif (count := chunk.count(b"\n")) < newlines:
            newlines -= count
        else:
            yield chunk.split(b"\n", newlines)[-1]
            newlines = 0


def split_lines(chunks: Iterable[bytes], keep: int) -> Iterator[tuple[str, int]]:
    """Yield lines without their ends, and how many bytes are cut from each.

    A line keeps at most `keep` characters; memory stays within four times as many bytes.
    """
    # A character has at most four bytes.
    max_bytes = 4 * keep
    head, length = b"", 0
    for chunk in chunks:
        if len(head) == max_bytes and b"\n" not in chunk:
            # Only the end of the line matters by now: there are lines of gigabytes.
            length += len(chunk)
            continue
        first, *others = chunk.split(b"\n")
        head += first[: max_bytes - len(head)]
        length += len(first)
        for other in others:
            yield _line(head, length, keep)
            head, length = other[:max_bytes], len(other)
    if length:
        yield _line(head, length, keep)


def _line(head: bytes, length: int, keep: int) -> tuple[str, int]:
    if length == len(head) <= keep:
        return head.removesuffix(b"\r").decode(errors="replace"), 0
    text = head.decode(errors="replace")
    if length == len(head) and len(text) <= keep:
        return text.removesuffix("\r"), 0
    text = text[:keep]
    return text, max(length - len(text.encode()), 1)
