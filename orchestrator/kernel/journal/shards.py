"""Shards: the journals of a database that servers divide among themselves.

Every session id has one home among them, for ever. A client that names an id, or repeats an
Idempotency-Key, therefore finds its session again, whichever server it asks.
"""

import re
from typing import Final
from zlib import crc32

SHARDS: Final = 16
"""How many a database has, unless it is said when it is first served."""
MOST_SHARDS: Final = 256
PREFIX: Final = "shard-"
_NAME: Final = re.compile(rf"{PREFIX}([1-9][0-9]*)")


def shard_of(id_: str, shards: int) -> str:
    """Return the name of the shard that is the home of an id."""
    return f"{PREFIX}{crc32(id_.encode(errors='replace')) % shards + 1}"


def shard_names(shards: int) -> list[str]:
    """Return the names of all shards."""
    return [f"{PREFIX}{number}" for number in range(1, shards + 1)]


def is_shard(name: str) -> bool:
    """Return whether a journal is a shard by its name."""
    return _NAME.fullmatch(name) is not None


def fair_share(shards: int, servers: int, rank: int) -> int:
    """Return how many shards a server of this rank, from 0, holds when each has its share."""
    share, rest = divmod(shards, servers)
    return share + (rank < rest)
