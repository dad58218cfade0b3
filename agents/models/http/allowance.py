"""The requests and tokens that a provider still allows, from the headers of its answers.

OpenAI and the services like it send `x-ratelimit-*-requests` and `x-ratelimit-*-tokens`, with a
duration such as `6m0s`. Anthropic sends `anthropic-ratelimit-requests-*`, and the same for tokens,
input tokens and output tokens, with a time by its own clock.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from orchestrator.agents.models.call_order import Allowance, AllowedUnit

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS: Final[Mapping[str, float]] = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
LONGEST_HEADER: Final = 64
LONGEST_WAIT: Final = 120
"""The most seconds for one more request; a provider that says more is asked, and may refuse."""


def read_allowances(headers: Mapping[str, str]) -> Iterator[Allowance]:
    """Yield the allowances of an answer, as far as its headers can be read."""
    for unit in AllowedUnit:
        name = unit.value.replace("_", "-")
        reset = headers.get(f"x-ratelimit-reset-{name}", "")
        if reset:
            known = (
                headers.get(f"x-ratelimit-limit-{name}", ""),
                headers.get(f"x-ratelimit-remaining-{name}", ""),
            )
            seconds = _duration(reset)
        elif reset := headers.get(f"anthropic-ratelimit-{name}-reset", ""):
            known = (
                headers.get(f"anthropic-ratelimit-{name}-limit", ""),
                headers.get(f"anthropic-ratelimit-{name}-remaining", ""),
            )
            seconds = _until(reset, headers.get("date", ""))
        else:
            continue
        if (allowance := _allowance(unit, *known, seconds)) is not None:
            yield allowance


def _allowance(
    unit: AllowedUnit, limit: str, remaining: str, seconds: float | None
) -> Allowance | None:
    numbers = (limit, remaining)
    if seconds is None or not all(it.isdecimal() and len(it) < 10 for it in numbers):
        return None
    most, left = map(int, numbers)
    if seconds <= 0 or left >= most or seconds / (most - left) > LONGEST_WAIT:
        return None
    return Allowance(unit, most, left, (most - left) / seconds)


def _duration(text: str) -> float | None:
    if len(text) > LONGEST_HEADER:
        return None
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    if not re.fullmatch(rf"(?:{_DURATION.pattern})+", text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


def _until(reset: str, date: str) -> float | None:
    if len(reset) > LONGEST_HEADER:
        return None
    try:
        return (datetime.fromisoformat(reset) - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError):
        return None
