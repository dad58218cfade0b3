"""Checksums of the rows of a journal: what the disk changed is told, and never folded.

A checksum covers a whole row. An entry also has the number of the entry before it in its session,
so that one that is gone, or cannot be found, is missed.
"""

from hashlib import blake2b
from struct import Struct
from typing import Final

_NUMBERS: Final = Struct("<qdqq")


def _checksum(content: bytes) -> int:
    """Return 64 bits, as SQLite stores an integer."""
    return int.from_bytes(
        blake2b(content, digest_size=8).digest(), "little", signed=True
    )


def entry_checksum(  # noqa: PLR0917 (the columns of a row, in their order)
    seq: int,
    at: float,
    session: str,
    kind: str,
    version: int,
    body: bytes,
    previous: int,
) -> int:
    """Return the checksum of an entry, with references in place of its long strings."""
    numbers = _NUMBERS.pack(seq, at, version, previous)
    names = f"{session}\0{kind}\0".encode(errors="surrogateescape")
    return _checksum(b"".join((numbers, names, body)))


def row_checksum(*values: str | int | None) -> int:
    """Return the checksum of a row of one of the lists: of sessions, last entries, pruned ones."""
    return _checksum(repr(values).encode(errors="surrogateescape"))
