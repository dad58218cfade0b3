"""The people who may talk to the gateway, and how often: closed by default."""

from collections import deque
from collections.abc import Callable
from typing import Final

from orchestrator.products.chat.chat_address import ChatAddress
from orchestrator.products.chat.pairing_codes import PairingCodes
from orchestrator.products.chat.platform import ChatUser
from orchestrator.products.chat.settings import GatewaySettings

MINUTE: Final = 60.0
MOST_USERS: Final = 10_000
"""The most people whose messages are counted; the longest silent one is forgotten first."""


def user_key(address: ChatAddress, user: ChatUser) -> str:
    """Return the name of a person in settings: `PLATFORM:USER`."""
    return f"{address.platform}:{user.id}"


class Access:
    """The people who may talk: those in the settings, and those who were paired."""

    def __init__(self, settings: GatewaySettings, pairing: PairingCodes) -> None:
        self._allowed = frozenset(settings.allow)
        self._blocked = frozenset(settings.block)
        self._pairing = pairing

    def allows(self, user: str) -> bool:
        """Return whether a person (`PLATFORM:USER`) may talk."""
        if self.blocks(user):
            return False
        return self.is_listed(user) or self._pairing.is_paired(user)

    def blocks(self, user: str) -> bool:
        """Return whether a person may never talk, even with a code."""
        return user in self._blocked

    def is_listed(self, user: str) -> bool:
        """Return whether the settings name a person, who may then invite others."""
        platform, _, _ = user.partition(":")
        return not self._allowed.isdisjoint({user, f"{platform}:*"})


class Rates:
    """The messages of the last minute, by person."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[str, deque[float]] = {}

    def take(self, user: str, most: int | None) -> float:
        """Count a message, and return the seconds for which its sender must wait, or 0."""
        if most is None:
            return 0.0
        now = self._clock()
        if len(self._times) > MOST_USERS:
            self._forget(now)
        times = self._times.setdefault(user, deque())
        while times and times[0] <= now - MINUTE:
            times.popleft()
        if len(times) >= most:
            return MINUTE if not times else max(1.0, times[0] + MINUTE - now)
        times.append(now)
        return 0.0

    def _forget(self, now: float) -> None:
        self._times = {
            user: times for user, times in self._times.items() if times and times[-1] > now - MINUTE
        }
