"""Discord's rate limits: which calls must wait, and how long.

Discord counts calls in buckets, and tells after each call how many its bucket has left. A bucket is
identified by Discord's name and by the channel or interaction of the call; a call with an unknown
bucket gets its own. This module never waits: it tells callers how long to wait.
"""

from collections.abc import Callable, Mapping
from typing import Final

import attrs

MOST_BUCKETS: Final = 4096
"""The most buckets; beyond, full ones are forgotten."""


@attrs.frozen
class Route:
    """The route of a call, and the channel or interaction that Discord counts it for."""

    method: str
    path: str
    """The path, with `{}` for the subject first, and then for every other id."""
    subject: str = ""


@attrs.define
class _Bucket:
    remaining: int
    full_at: float


class RateLimits:
    """The limits that Discord has told."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._names: dict[tuple[str, str], str] = {}
        """Discord's name for the bucket of a method and path."""
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._silent_until = 0.0
        """The time before which no call may be made."""

    def take(self, route: Route) -> float:
        """Count a call, or return the seconds that it must wait."""
        now = self._now()
        if now < self._silent_until:
            return self._silent_until - now
        bucket = self._buckets.get(self._key(route))
        if bucket is None or now >= bucket.full_at:
            return 0.0
        if bucket.remaining <= 0:
            return bucket.full_at - now
        bucket.remaining -= 1
        return 0.0

    def note_headers(self, route: Route, headers: Mapping[str, str]) -> None:
        """Read the state of a bucket from the headers of an answer."""
        if name := headers.get("x-ratelimit-bucket", ""):
            self._names[route.method, route.path] = name
        remaining = _number(headers.get("x-ratelimit-remaining", ""))
        seconds = _number(headers.get("x-ratelimit-reset-after", ""))
        if remaining is None or seconds is None:
            return
        if len(self._buckets) >= MOST_BUCKETS:
            self._forget_full()
        full_at = self._now() + seconds
        bucket = self._buckets.setdefault(self._key(route), _Bucket(int(remaining), full_at))
        # Answers may overtake each other; within one period, the count only falls.
        is_same_period = full_at <= bucket.full_at + 0.5
        left = min(bucket.remaining, int(remaining)) if is_same_period else remaining
        bucket.remaining, bucket.full_at = int(left), max(full_at, bucket.full_at)

    def note_limited(self, route: Route, seconds: float, *, is_global: bool) -> None:
        """Note that a call was refused, and for how long."""
        until = self._now() + seconds
        if is_global:
            self._silent_until = max(until, self._silent_until)
        else:
            self._buckets[self._key(route)] = _Bucket(0, until)

    def _key(self, route: Route) -> tuple[str, str]:
        name = self._names.get((route.method, route.path))
        return (name or f"{route.method} {route.path}", route.subject)

    def _forget_full(self) -> None:
        now = self._now()
        self._buckets = {key: it for key, it in self._buckets.items() if it.full_at > now}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
