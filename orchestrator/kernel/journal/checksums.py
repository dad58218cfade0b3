"""Checksums of the rows of a journal: a row that the disk changed is reported, and never folded.

A checksum covers a whole row. An entry also has the number of the entry before it in its session,
so a lost entry is noticed.
"""

from struct import Struct
from typing import Final
from zlib import crc32

NO_HASH: Final = "0" * 64
"""The hash before the first row of a chain."""

_NUMBERS: Final = Struct("<qdqq")


def entry_checksum(  # noqa: PLR0917 (the columns of a row, in their order)
    seq: int, at: float, session: str, kind: str, version: int, body: bytes, previous: int
) -> int:
    """Return the checksum of an entry, with references in place of its long strings."""
    numbers = _NUMBERS.pack(seq, at, version, previous)
    return crc32(body, crc32(numbers + f"{session}\0{kind}".encode()))


def row_checksum(*values: str | int | None) -> int:
    """Return the checksum of a row of a list: of sessions, or of pruned ones."""
    return crc32(repr(values).encode())


def snapshot_checksum(session: str, seq: int, layout: str, state: bytes) -> int:
    """Return the checksum of a snapshot, whose state may be many megabytes."""
    return crc32(state, row_checksum(session, seq, layout))
