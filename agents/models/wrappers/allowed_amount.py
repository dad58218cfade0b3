"""An amount that a provider allows by its headers, requests or tokens, and that grows back."""

import math
from typing import Final

import trio

from orchestrator.agents.models.call_order import Allowance

LONGEST_WAIT: Final = 60.0
"""A header may name any time: after this many seconds a call tries, and the provider decides."""


class AllowedAmount:
    """The amount that is left of one allowance; without a header every amount is."""

    def __init__(self) -> None:
        self.sent = 0
        """The amount of all calls so far."""
        self.forget()

    def forget(self) -> None:
        self._allowance: Allowance | None = None
        self._left = math.inf
        self._left_at = -math.inf

    def note(self, allowance: Allowance, sent: int) -> None:
        """Begin with a header: the provider may not have counted the calls beyond `sent` yet."""
        self._allowance = allowance
        self._left = allowance.remaining - (self.sent - sent)
        self._left_at = trio.current_time()

    def take(self, amount: int, now: float) -> None:
        """Count a call."""
        self.sent += amount
        if (allowance := self._allowance) is not None:
            grown = (now - self._left_at) * allowance.per_second
            self._left = min(self._left + grown, allowance.limit) - amount
            self._left_at = now

    def ready_at(self, amount: int) -> float:
        """Return the time at which a call of this amount may be sent."""
        if (allowance := self._allowance) is None:
            return -math.inf
        # A call that is larger than the limit waits for all of it.
        missing = min(amount, allowance.limit) - self._left
        if missing <= 0:
            return -math.inf
        return self._left_at + min(missing / allowance.per_second, LONGEST_WAIT)
