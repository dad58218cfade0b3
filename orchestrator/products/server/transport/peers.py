"""The number of connections of each peer: no peer may take them all.

A peer is an address. All of loopback is one peer, and so is an IPv6 network of 64 bits: the owner
of one of its addresses has them all.
"""

from collections import Counter
from ipaddress import IPv6Address, ip_address
from typing import Final

LOOPBACK: Final = "loopback"
MOST_OF_PEER: Final = 100
PEER_SHARE: Final = 0.25
LOOPBACK_SHARE: Final = 0.5
"""The share of all connections for this machine, where a proxy may have all of them."""


class PeerConnections:
    """Counts the open connections of each peer."""

    def __init__(self, slots: int, most: int | None = None) -> None:
        """Count up to `slots` connections in all, and `most` for each peer; None is the default."""
        self._open: Counter[str] = Counter()
        self._most_of_loopback = most or max(1, int(slots * LOOPBACK_SHARE))
        self._most_of_peer = most or max(1, min(MOST_OF_PEER, int(slots * PEER_SHARE)))

    def most_of(self, peer: str) -> int:
        """Return the most connections that a peer may have."""
        return self._most_of_loopback if peer == LOOPBACK else self._most_of_peer

    def open(self, peer: str) -> "CountedConnection | None":
        """Count a connection; return None if the peer may not have it."""
        if self._open[peer] >= self.most_of(peer):
            return None
        self._open[peer] += 1
        return CountedConnection(self._open, peer)


class CountedConnection:
    """One connection, which counts for its peer until it is released."""

    def __init__(self, counts: Counter[str], peer: str) -> None:
        self._counts = counts
        self.peer: str | None = peer
        """None when it no longer counts."""

    def release(self) -> None:
        """Stop counting it: it is closed, or another server has counted it for its client."""
        peer, self.peer = self.peer, None
        if peer is None:
            return
        self._counts[peer] -= 1
        if not self._counts[peer]:
            del self._counts[peer]


def peer_of(address: str) -> str:
    """Return the peer of an address."""
    host, _, _ = address.partition("%")
    found = ip_address(host)
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return peer_of(str(found.ipv4_mapped))
        if not found.is_loopback:
            return found.exploded[:19]
    return LOOPBACK if found.is_loopback else str(found)
