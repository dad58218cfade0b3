"""The names, days and months of common budgets."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import trio

from orchestrator import budget, open_orchestrator
from orchestrator.agents import Agent, DefinitionError, ScriptedModel
from orchestrator.agents.budget import BlockBudget
from orchestrator.delegation import Ending, Outcome
from orchestrator.kernel.common_budgets import common_grant, resets_at

DAY = 86_400


def grants_of(every: Any, zone: str, *moments: str) -> list[str]:
    """Return the last part of the grant's id at each moment, which is in UTC."""
    block = BlockBudget(usd=50, shared="team", every=every, zone=zone)
    times = [datetime.fromisoformat(f"{it}+00:00").timestamp() for it in moments]
    return [common_grant(block, at).id.rpartition("|")[2] for at in times]


def test_a_day_begins_at_midnight_of_its_zone() -> None:
    days = grants_of("day", "Europe/Vienna", "2026-11-18T22:59:59", "2026-11-18T23:00:00")

    assert days == ["2026-11-18", "2026-11-19"]


def test_a_day_of_23_or_25_hours_is_one_day() -> None:
    # The clocks of Vienna go forward on 29 March 2026 and back on 25 October 2026.
    spring = ("2026-03-28T22:59:59", "2026-03-28T23:00:00", "2026-03-29T21:59:59")
    autumn = ("2026-10-24T21:59:59", "2026-10-24T22:00:00", "2026-10-25T22:59:59")

    assert grants_of("day", "Europe/Vienna", *spring) == ["2026-03-28", "2026-03-29", "2026-03-29"]
    assert grants_of("day", "Europe/Vienna", "2026-03-29T22:00:00") == ["2026-03-30"]
    assert grants_of("day", "Europe/Vienna", *autumn) == ["2026-10-24", "2026-10-25", "2026-10-25"]
    assert grants_of("day", "Europe/Vienna", "2026-10-25T23:00:00") == ["2026-10-26"]


def test_a_month_ends_by_the_calendar() -> None:
    moments = ("2028-02-29T14:59:59", "2028-02-29T15:00:00", "2028-12-31T15:00:00")

    assert grants_of("month", "Asia/Tokyo", *moments) == ["2028-02", "2028-03", "2029-01"]


@pytest.mark.parametrize(
    ("every", "at", "expected"),
    [
        ("day", "2026-12-31T12:00:00", "2027-01-01T00:00:00+01:00"),
        ("day", "2026-03-28T12:00:00", "2026-03-29T00:00:00+01:00"),
        ("day", "2026-03-29T12:00:00", "2026-03-30T00:00:00+02:00"),
        ("month", "2026-03-15T12:00:00", "2026-04-01T00:00:00+02:00"),
        ("month", "2026-12-15T12:00:00", "2027-01-01T00:00:00+01:00"),
        ("month", "2028-01-31T12:00:00", "2028-02-01T00:00:00+01:00"),
    ],
)
def test_an_account_names_its_next_beginning(every: Any, at: str, expected: str) -> None:
    block = BlockBudget(usd=50, shared="team", every=every, zone="Europe/Vienna")
    moment = datetime.fromisoformat(at).replace(tzinfo=ZoneInfo("Europe/Vienna"))

    begins = resets_at(common_grant(block, moment.timestamp()).id)

    assert begins is not None
    assert begins.isoformat() == expected


def test_an_account_without_a_calendar_never_starts_again() -> None:
    block = BlockBudget(usd=50, shared="team")

    assert common_grant(block, 0.0) == common_grant(block, 9e8)
    assert resets_at(common_grant(block, 0.0).id) is None


async def test_a_run_is_paid_by_the_day_on_which_it_starts() -> None:
    agent = Agent("talker", model=ScriptedModel.always("yes"))
    outcomes: list[Outcome] = []
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=1, shared="team", every="day", zone="Asia/Tokyo"):
            for seconds in (0, DAY, 0, 0):
                outcomes.append((await orchestrator.run(agent, "go")).outcome)
                await trio.sleep(seconds)

    assert [it.ending for it in outcomes] == [Ending.SUCCEEDED, Ending.OVER_BUDGET] * 2
    assert "it starts again at" in outcomes[3].error
    assert "Asia/Tokyo" in outcomes[3].error


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"every": "day"}, "needs the name of an account"),
        ({"shared": "a|b"}, "is not a name"),
        ({"shared": "x" * 101}, "is not a name"),
        ({"shared": "a\nb"}, "is not a name"),
        ({"shared": "team", "tasks": 3}, "cannot limit tasks"),
        ({"shared": "team", "seconds": 3}, "cannot limit seconds"),
        ({"shared": "team", "depth": 3}, "cannot limit depth"),
        ({"shared": "team", "every": "week"}, "must be 'day' or 'month'"),
        ({"shared": "team", "every": "day", "zone": "Vienna"}, "there is no time zone 'Vienna'"),
    ],
)
def test_a_wrong_common_budget_is_refused(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem), budget(usd=1, **wrong):
        pass
