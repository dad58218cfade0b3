"""The budgets of common accounts: their checks, and their days and months.

A day or a month is a part of the account's id: each one is an account of its own. The calendar of
a zone names it, so a day of 23 or 25 hours is one day.
"""

from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from orchestrator.agents import Budget, DefinitionError
from orchestrator.agents.budget import BlockBudget
from orchestrator.delegation import Grant
from orchestrator.delegation.schedule import ScheduleError, zone_of

LONGEST_NAME: Final = 100
_DAY: Final = len("2026-11-18")
_MARK: Final = "|"
"""Stands between the name, the zone and the date in an id."""


def require_common(block: BlockBudget) -> None:
    """Raise `DefinitionError` if a block cannot have a common account."""
    name = block.shared
    if not name:
        raise DefinitionError(
            "budget(every=..., zone=...) needs the name of an account: shared=..."
        )
    if len(name) > LONGEST_NAME or not name.isprintable() or _MARK in name:
        raise DefinitionError(
            f"budget(shared={name[:LONGEST_NAME]!r}) is not a name: use at most {LONGEST_NAME}"
            f" printable characters without {_MARK!r}"
        )
    for kind in ("seconds", "tasks", "depth"):
        if getattr(block, kind) is not None:
            raise DefinitionError(
                f"budget(shared={name!r}) cannot limit {kind}, which one journal counts: limit usd,"
                f" tokens or calls, and put a budget({kind}=...) inside it"
            )
    if block.every not in {None, "day", "month"}:
        raise DefinitionError(f"budget(every={block.every!r}) must be 'day' or 'month'")
    try:
        zone_of(block.zone)
    except ScheduleError as exc:
        raise DefinitionError(f"budget(zone=...): {exc}") from exc


def common_grant(block: BlockBudget, at: float | None) -> Grant:
    """Return the grant of a common account at a time; None is any time, for comparisons."""
    name, account = block.name or block.shared, block.shared
    if block.every is not None and at is not None:
        day = datetime.fromtimestamp(at, zone_of(block.zone)).date().isoformat()
        label = day if block.every == "day" else day[: len("2026-11")]
        name, account = f"{name} {label}", f"{account}{_MARK}{block.zone}{_MARK}{label}"
    budget = Budget(usd=block.usd, tokens=block.tokens, calls=block.calls, name=name)
    return Grant.common(account, budget)


def resets_at(account: str) -> datetime | None:
    """Return when the next day or month of an account begins; None if it never starts again."""
    _, *window = account.split(_MARK)
    if len(window) != 2:
        return None
    zone, label = window
    day = date.fromisoformat(label if len(label) == _DAY else f"{label}-01")
    step = timedelta(days=1 if len(label) == _DAY else 31)
    following = day + step
    if len(label) != _DAY:
        following = following.replace(day=1)
    return datetime(following.year, following.month, following.day, tzinfo=ZoneInfo(zone))
