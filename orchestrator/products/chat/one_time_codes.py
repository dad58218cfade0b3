"""Codes that a person reads in one address and writes in another: each holds once, for an hour."""

import hmac
import secrets
from collections.abc import Callable
from typing import Final, Generic, TypeVar

ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Without what looks alike: I and 1, O and 0."""
LENGTH: Final = 8
HOUR: Final = 3600.0
T = TypeVar("T")


class OneTimeCodes(Generic[T]):
    """The codes that hold now, and what each stands for."""

    def __init__(self, clock: Callable[[], float], *, most: int) -> None:
        """Give no codes yet.

        Args:
            clock: the time of day.
            most: how many codes hold at a time; of more the oldest is void.
        """
        self._clock = clock
        self._most = most
        self._codes: dict[str, tuple[float, T]] = {}

    def new(self, value: T) -> str:
        """Return a new code that stands for a value."""
        code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        self._codes[code] = (self._clock() + HOUR, value)
        while len(self._codes) > self._most:
            del self._codes[next(iter(self._codes))]
        return code

    def take(self, shown: str) -> T | None:
        """Return what a code stands for, and make it void; None if it does not hold."""
        now = self._clock()
        self._codes = {code: it for code, it in self._codes.items() if it[0] > now}
        given = shown.strip().upper().encode(errors="replace")
        for code in self._codes:
            if hmac.compare_digest(code.encode(), given):
                return self._codes.pop(code)[1]
        return None
