"""Delays for wrong keys: a peer that sends many of them waits longer and longer.

A right key is never refused because of the wrong keys of others at the same address. So this makes
guessing loud and slow; the length of the tokens makes it hopeless.
"""

from collections import OrderedDict
from typing import Final

import attrs

FREE: Final = 10
"""The number of wrong keys that a peer may send before it has to wait."""
LONGEST_SECONDS: Final = 300
FORGET_SECONDS: Final = 600
"""The seconds after which the wrong keys of a peer are forgotten."""
MOST_PEERS: Final = 1_000
"""The number of peers to remember: the latest ones."""


@attrs.define
class _Wrong:
    count: int
    at: float


class WrongKeys:
    """Counts the wrong keys of each peer."""

    def __init__(self) -> None:
        self._peers: OrderedDict[str, _Wrong] = OrderedDict()

    def note(self, peer: str, now: float) -> float:
        """Count a wrong key, and return the seconds that its peer has to wait."""
        found = self._peers.pop(peer, None)
        if found is None or now - found.at > FORGET_SECONDS:
            found = _Wrong(0, now)
        found.count += 1
        found.at = now
        self._peers[peer] = found
        if len(self._peers) > MOST_PEERS:
            self._peers.popitem(last=False)
        if found.count <= FREE:
            return 0
        # The exponent is bounded: 1 << 1_000_000 is a number of a million bits.
        return float(min(LONGEST_SECONDS, 1 << min(found.count - FREE - 1, 16)))

    def __len__(self) -> int:
        return len(self._peers)
