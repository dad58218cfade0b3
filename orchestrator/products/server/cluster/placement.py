"""The shard of a new session, by its id and by the key that opens it.

A server draws random ids until one falls into a shard that it holds. All sessions of a key with
limits are in one shard, so that one ledger counts its runs and its budget exactly.
"""

from collections.abc import Callable
from itertools import count
from secrets import token_hex

import attrs

from orchestrator.delegation import SessionId
from orchestrator.ports.journals import shard_of
from orchestrator.products.server.keys.key import UNLIMITED, Key, KeyLimits


@attrs.frozen
class Placement:
    """The homes of ids among the shards of a database."""

    shards: int

    def home_of(self, id_: str) -> str:
        """Return the shard that is the home of an id."""
        return shard_of(id_, self.shards)

    def home_of_key(self, key: Key) -> str | None:
        """Return the shard of all sessions of a key; None if they may be anywhere."""
        return self.home_of(f"key:{key.name}") if counts_in_a_journal(key) else None

    def draw(self, home: str, *, size: int = 8) -> SessionId:
        """Return a new id of `size` random bytes whose home is this shard."""
        return SessionId(self.fit(lambda _: f"r_{token_hex(size)}", home))

    def fit(self, make: Callable[[int], str], home: str) -> str:
        """Return the first id with this home; `make` returns the id of a number: 0, 1, 2 …"""
        for number in count():
            if self.home_of(id_ := make(number)) == home:
                return id_
        raise AssertionError("there are always more numbers")


def counts_in_a_journal(key: Key) -> bool:
    """Return whether a journal counts the limits of a key."""
    # Each server counts the requests per second for itself, and divides its own calls.
    return attrs.evolve(key.limits, requests_per_second=None, share=None) != _NONE


_NONE: KeyLimits = UNLIMITED
