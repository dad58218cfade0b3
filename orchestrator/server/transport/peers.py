"""How many connections each peer has: none may take them all.

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
        """Begin with none.

        Args:
            slots: how many connections there may be in all.
            most: how many one peer may have, loopback too; None is the default.
        """
        self._open: Counter[str] = Counter()
        self._most_of_loopback = most or max(1, int(slots * LOOPBACK_SHARE))
        self._most_of_peer = most or max(1, min(MOST_OF_PEER, int(slots * PEER_SHARE)))

    def open(self, peer: str) -> bool:
        """Count a connection, and return whether the peer may have it."""
        most = self._most_of_loopback if peer == LOOPBACK else self._most_of_peer
        if self._open[peer] >= most:
            return False
        self._open[peer] += 1
        return True

    def close(self, peer: str) -> None:
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]


def peer_of(address: str) -> str:
    """Return the peer that has an address."""
    host, _, _ = address.partition("%")
    found = ip_address(host)
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return peer_of(str(found.ipv4_mapped))
        if not found.is_loopback:
            return found.exploded[:19]
    return LOOPBACK if found.is_loopback else str(found)
