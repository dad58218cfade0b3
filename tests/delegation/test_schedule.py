"""The times of jobs: what a schedule means, and which of its times is due."""

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orchestrator.delegation import SessionId
from orchestrator.delegation.events.jobs import JobId, JobRecord, JobSpec
from orchestrator.delegation.schedule import (
    Due,
    ScheduleError,
    canonical_schedule,
    due,
    duration,
    next_text,
    times_of,
)

BERLIN = "Europe/Berlin"
NEW_YORK = "America/New_York"
NOON = datetime(2026, 11, 17, 12, 0, tzinfo=UTC).timestamp()
HOUR = 3600.0
DAY = 24 * HOUR


def local(text: str, zone: str = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def job(
    schedule: str, *, set_at: float, zone: str = BERLIN, catch_up: float = 2 * HOUR
) -> JobRecord:
    stored = canonical_schedule(schedule, zone, set_at)
    spec = JobSpec(
        id=JobId("brief"),
        schedule=stored,
        zone=zone,
        agent="editor",
        goal="Write.",
        catch_up=catch_up,
    )
    return JobRecord(spec, SessionId("s_1"), set_at=set_at, since=set_at)


def runs_until(record: JobRecord, end: float) -> Iterator[tuple[float, Due]]:
    """Yield what is due at each time at which a clock that works would look."""
    now = record.set_at
    while (found := due(record, now)).next is not None or found.at is not None:
        if found.at is not None:
            yield now, found
            record = replace(record, last_at=found.at)
        elif found.next is None or found.next > end:
            return
        else:
            now = found.next


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, "UTC", "Asia/Kathmandu"])
def test_a_daily_job_runs_once_on_every_day_of_a_year(zone: str) -> None:
    start = local("2026-01-01T00:00", zone)
    times = list(runs_until(job("30 2 * * *", set_at=start, zone=zone), start + 365 * DAY))
    days = [datetime.fromtimestamp(now, ZoneInfo(zone)).date() for now, _ in times]

    assert len(days) == len(set(days)) == 365
    assert all(not found.missed and not found.is_too_late for _, found in times)


def test_a_time_that_the_change_of_clocks_leaves_out_comes_when_the_clock_goes_on() -> None:
    times = times_of("30 2 * * *", BERLIN, 0.0)

    assert times.next_after(local("2026-03-29T00:00")) == local("2026-03-29T03:00")


def test_a_time_that_comes_twice_counts_once_unless_the_fields_name_every_hour() -> None:
    midnight, four = local("2026-10-25T00:00"), local("2026-10-25T04:00")
    daily = list(runs_until(job("30 2 * * *", set_at=midnight), four))
    half_hourly = list(runs_until(job("*/30 * * * *", set_at=midnight), four))

    assert len(daily) == 1
    # Two o'clock comes twice: four hours by the clock are five.
    assert len(half_hourly) == 10


@pytest.mark.parametrize(
    ("schedule", "times"),
    [
        ("*/30 2 * * *", ["02:00", "02:30"]),
        ("0,30 2 * * *", ["02:00", "02:30"]),
        ("0 */2 * * *", ["00:00", "02:00", "04:00"]),
        ("30 0-23 * * *", ["00:30", "01:30", "02:30", "02:30", "03:30", "04:30"]),
    ],
)
def test_minutes_of_an_hour_that_comes_twice_count_once(schedule: str, times: list[str]) -> None:
    night = job(schedule, set_at=local("2026-10-24T23:59"))
    found = [it.at or 0.0 for _, it in runs_until(night, local("2026-10-25T05:00"))]
    zone = ZoneInfo(BERLIN)
    assert [f"{datetime.fromtimestamp(at, zone):%H:%M}" for at in found] == times


def test_a_missed_minute_of_an_hour_that_comes_twice_is_due_in_the_second_hour() -> None:
    night = replace(
        job("*/30 2 * * *", set_at=local("2026-10-24T12:00")), last_at=local("2026-10-25T02:00")
    )
    again = local("2026-10-25T02:10") + HOUR
    assert due(night, again).at == local("2026-10-25T02:30")


def test_minutes_of_an_hour_that_is_left_out_are_one_time() -> None:
    night = job("*/30 2 * * *", set_at=local("2027-03-28T00:00"))
    found = [it.at for _, it in runs_until(night, local("2027-03-28T12:00"))]
    assert found == [local("2027-03-28T03:00")]


def test_every_two_hours_is_two_real_hours_over_the_change_of_clocks() -> None:
    start = local("2026-10-24T22:15")
    times = [now for now, _ in runs_until(job("every 2h", set_at=start), start + DAY)]

    assert times == [start + number * 2 * HOUR for number in range(1, 13)]


@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 1 * *", "5 4 * * SUN"]),
    st.sampled_from([BERLIN, NEW_YORK, "Australia/Lord_Howe", "UTC"]),
    st.floats(local("2026-01-01T00:00"), local("2027-12-31T00:00")),
)
def test_the_last_time_and_the_next_time_are_neighbours(
    schedule: str, zone: str, now: float
) -> None:
    times = times_of(schedule, zone, 0.0)
    last, following = times.last_until(now), times.next_after(now)
    assert last is not None
    assert following is not None

    assert last <= now < following
    assert times.next_after(last) == following
    assert times.last_until(last) == last


@given(st.floats(60, 10 * DAY), st.floats(0, NOON), st.integers(0, 10_000))
def test_every_interval_finds_its_own_times_despite_rounding(
    seconds: float, since: float, number: int
) -> None:
    times = times_of(f"every {seconds:.2f}s", "UTC", since)
    at = times.next_after(since)
    assert at is not None
    assert times.last_until(at) == at
    assert times.last_until(since) is None
    later = at + number * float(f"{seconds:.2f}")
    last = times.last_until(later)
    assert last is not None
    assert last == pytest.approx(later, abs=1e-3)


def test_three_days_without_a_process_are_one_late_run() -> None:
    record = job("0 * * * *", set_at=NOON, catch_up=HOUR)

    found = due(record, NOON + 3 * DAY + 60)

    assert found == Due(NOON + 3 * DAY, missed=71, next=NOON + 3 * DAY + HOUR)


def test_a_run_later_than_its_catch_up_time_is_too_late() -> None:
    record = job("0 8 * * *", set_at=local("2026-11-17T12:00"))

    found = due(record, local("2026-11-18T10:00"))
    assert not found.is_too_late, "just in time"
    found = due(record, local("2026-11-18T10:01"))
    assert found.is_too_late
    assert found.at == local("2026-11-18T08:00")


def test_a_job_is_not_due_before_it_was_set_nor_while_it_is_paused() -> None:
    record = job("0 8 * * *", set_at=local("2026-11-17T09:00"))

    assert due(record, local("2026-11-17T09:00")).at is None
    paused = replace(record, paused=True)
    assert due(paused, local("2026-11-18T08:00")) == Due()
    resumed = replace(record, since=local("2026-11-18T09:00"))
    assert due(resumed, local("2026-11-18T09:00")).at is None


def test_a_clock_set_back_makes_no_job_due_again() -> None:
    eight = local("2026-11-18T08:00")
    record = replace(job("0 8 * * *", set_at=NOON), last_at=eight)

    for back in (0.0, 60.0, HOUR, 2 * DAY):
        assert due(record, eight - back).at is None
    assert due(record, eight - HOUR).next == eight + DAY


def test_missed_times_are_counted_up_to_a_thousand() -> None:
    record = job("* * * * *", set_at=NOON)

    assert due(record, NOON + 30 * DAY).missed == 1000
    every = job("every 1m", set_at=NOON)
    assert due(every, NOON + 30 * DAY).missed == 30 * 24 * 60 - 1


def test_a_moment_is_due_once() -> None:
    record = job("in 30m", set_at=NOON)

    assert record.spec.is_once
    assert due(record, NOON) == Due(next=NOON + 1800)
    assert due(record, NOON + 1801) == Due(NOON + 1800)
    done = replace(record, last_at=NOON + 1800)
    assert due(done, NOON + 1801) == Due()


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("0 8 * * mon", "0 8 * * MON"),
        ("  */5  *  * * *", "*/5 * * * *"),
        ("every 2H", "every 2h"),
        ("Every 1d 12h", "every 1d 12h"),
        ("in 90s", "at 2026-11-17T13:01:30+01:00"),
        ("2026-12-24T18:00", "at 2026-12-24T18:00:00+01:00"),
        ("2026-12-24T18:00:00Z", "at 2026-12-24T18:00:00+00:00"),
        ("2026-12-24", "at 2026-12-24T00:00:00+01:00"),
        ("at 2026-12-24T18:00", "at 2026-12-24T18:00:00+01:00"),
    ],
)
def test_a_schedule_is_stored_in_one_form(text: str, stored: str) -> None:
    assert canonical_schedule(text, BERLIN, NOON) == stored


@given(st.sampled_from(["0 8 * * MON", "every 90m", "2027-01-01T00:00"]))
def test_a_stored_schedule_stays_canonical(text: str) -> None:
    stored = canonical_schedule(text, BERLIN, NOON)

    assert canonical_schedule(stored, BERLIN, NOON) == stored


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("* * * *", "it has 4 fields"),
        ("* * * * * *", "it has 6 fields"),
        ("60 * * * *", "bad minute"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("daily", "it has 1 fields"),
        ("", "it has 0 fields"),
        ("every 0m", "too often"),
        ("every 1s", "too often"),
        ("every now and then", "is not a duration"),
        ("in a while", "is not a duration"),
        ("2026-11-17T08:00", "is over"),
        (f"{'9' * 5000} * * * *", "may have 200"),
        (f"every 1h{' 0s' * 100}", "may have 200"),
    ],
)
def test_an_invalid_schedule_is_refused_with_a_sentence(text: str, problem: str) -> None:
    with pytest.raises(ScheduleError, match=problem):
        canonical_schedule(text, BERLIN, NOON)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "Europe"])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(ScheduleError, match="no time zone"):
        canonical_schedule("0 8 * * *", zone, NOON)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("2h", 7200), ("1h 30m", 5400), ("1.5d", 129_600)]
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def test_the_next_time_is_shown_in_the_zone_of_the_job() -> None:
    daily = job("0 8 * * *", set_at=NOON)
    assert next_text(daily, NOON) == "Wed 2026-11-18 08:00 CET"
    assert next_text(replace(daily, paused=True), NOON) == "paused"
    once = job("2026-11-17T14:00", set_at=NOON)
    assert next_text(once, NOON + DAY) == "never again"
