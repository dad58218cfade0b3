"""The requests that a provider still allows, from the headers of its answers.

OpenAI and the services like it send `x-ratelimit-*-requests`, with a duration such as `6m0s`.
Anthropic sends `anthropic-ratelimit-requests-*`, with a time by its own clock.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from orchestrator.agents.models.call_order import Allowance

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS: Final[Mapping[str, float]] = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
LONGEST_HEADER: Final = 64
LONGEST_WAIT: Final = 120
"""The most seconds for one more request; a provider that says more is asked, and may refuse."""


def read_allowance(headers: Mapping[str, str]) -> Allowance | None:
    """Return the allowance of an answer; None if its headers name none that can be read."""
    reset = headers.get("x-ratelimit-reset-requests", "")
    if reset and len(reset) <= LONGEST_HEADER:
        return _allowance(
            headers.get("x-ratelimit-limit-requests", ""),
            headers.get("x-ratelimit-remaining-requests", ""),
            _duration(reset),
        )
    reset = headers.get("anthropic-ratelimit-requests-reset", "")
    if reset and len(reset) <= LONGEST_HEADER:
        return _allowance(
            headers.get("anthropic-ratelimit-requests-limit", ""),
            headers.get("anthropic-ratelimit-requests-remaining", ""),
            _until(reset, headers.get("date", "")),
        )
    return None


def _allowance(limit: str, remaining: str, seconds: float | None) -> Allowance | None:
    numbers = (limit, remaining)
    if seconds is None or not all(it.isdecimal() and len(it) < 10 for it in numbers):
        return None
    most, left = map(int, numbers)
    if seconds <= 0 or left >= most or seconds / (most - left) > LONGEST_WAIT:
        return None
    return Allowance(most, left, (most - left) / seconds)


def _duration(text: str) -> float | None:
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    if not re.fullmatch(rf"(?:{_DURATION.pattern})+", text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


def _until(reset: str, date: str) -> float | None:
    try:
        return (datetime.fromisoformat(reset) - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError):
        return None
