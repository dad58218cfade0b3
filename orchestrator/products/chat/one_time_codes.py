"""Codes that a person reads at one address and writes at another, valid once for an hour."""

import hmac
import secrets
from collections.abc import Callable
from typing import Final, Generic, TypeVar

ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Letters and digits without look-alikes: no I, 1, O or 0."""
LENGTH: Final = 8
HOUR: Final = 3600.0
T = TypeVar("T")


class OneTimeCodes(Generic[T]):
    """The valid codes, and the value of each."""

    def __init__(self, clock: Callable[[], float], *, most: int) -> None:
        """Start without codes; one code above `most` makes the oldest invalid."""
        self._clock = clock
        self._most = most
        self._codes: dict[str, tuple[float, T]] = {}

    def new(self, value: T) -> str:
        """Return a new code for a value."""
        code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        self._codes[code] = (self._clock() + HOUR, value)
        while len(self._codes) > self._most:
            del self._codes[next(iter(self._codes))]
        return code

    def take(self, shown: str) -> T | None:
        """Return the value of a code, and make the code invalid; None if it is not valid."""
        now = self._clock()
        self._codes = {code: it for code, it in self._codes.items() if it[0] > now}
        given = shown.strip().upper().encode(errors="replace")
        for code in self._codes:
            if hmac.compare_digest(code.encode(), given):
                return self._codes.pop(code)[1]
        return None
