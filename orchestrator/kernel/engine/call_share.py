"""The share of a session's model calls at a provider, which a product may decide."""

from collections.abc import Callable
from typing import TypeAlias

from orchestrator.delegation import SessionRecord

CallShare: TypeAlias = tuple[str, float]
"""The key whose part of the provider a session uses, and the weight of its calls."""


class CallShareSlot:
    """Holds the server's function that divides the part of an owner between its keys."""

    __slots__ = ("share_of",)

    def __init__(self) -> None:
        self.share_of: Callable[[SessionRecord], CallShare] = _one_share


def _one_share(session: SessionRecord) -> CallShare:
    del session
    return "", 1.0
