"""The times of jobs: the meaning of a schedule, and its due time.

No clock is read here. A time is a number of seconds since the epoch. The time zone is part of the
job, so moving the machine changes nothing.

* `0 8 * * MON`        five fields, as Debian's cron reads them, in the zone of the job. A time that
                       the change of clocks leaves out comes when the clock goes on; one that comes
                       twice counts once, unless the fields name every hour
* `every 2h`           two real hours after the job was set, and so on; a minute is the least
* `in 30m`             once
* `2026-12-24T18:00`   once, in the zone of the job unless an offset says otherwise
"""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import attrs

from orchestrator.delegation.errors import DelegationError
from orchestrator.delegation.events.jobs import ONCE, JobId, JobRecord

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
SHORTEST: Final = 60
"""How many seconds lie between two times at least."""
LONGEST: Final = 3653 * 86_400
"""How many seconds a duration has at most: ten years."""
LIFETIME: Final = 30 * 86_400.0
"""The seconds after which a recurring job of an agent ends, unless it is set or changed again."""
LAST_YEAR: Final = 2999
LONGEST_TEXT: Final = 200
"""How many characters a schedule has at most: it is read whenever its times are looked for."""
MOST_COUNTED: Final = 1000
"""How many missed times are counted; of more it is said that there are more."""
FIELDS: Final = 5
EVERY_HOUR: Final = frozenset({"*", "*/1", "0-23"})
LONGEST_FOLD: Final = 3 * 3600
"""A time after which no clock that was set back is still behind, in seconds."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?\s*[smhdw]\s*)+")
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_EXAMPLES: Final = "`0 8 * * MON`, `every 2h` or `2026-12-24T18:00`"


class ScheduleError(DelegationError):
    """A text names no time that a job can have."""


@attrs.frozen
class Cron:
    """The minutes that five fields name, in one zone."""

    fields: str
    zone: ZoneInfo

    def last_until(self, time: float) -> float | None:
        """Return the last time until then, which may be then."""
        # The search leaves out where it begins: the next full minute.
        start = _moment((time // 60 + 1) * 60, self.zone)
        if start.fold:
            # The hour comes twice, and its later minutes came before.
            start = _moment(time + LONGEST_FOLD, self.zone)
        times = self._search(start, reverse=True)
        return next((at for at in times if at <= time), None)

    def next_after(self, time: float) -> float | None:
        """Return the first time after then; None if there is none."""
        times = self._search(_moment(time, self.zone), reverse=False)
        return next((at for at in times if at > time), None)

    def _search(self, start: datetime, *, reverse: bool) -> Iterator[float]:
        from cronsim import CronSim

        found = CronSim(_fixed(self.fields), start, reverse=reverse)
        return (moment.timestamp() for moment in found)


def _fixed(fields: str) -> str:
    """Return fields in which only an hour that is every hour has a star.

    A star in the minutes or hours makes cron count the times that come twice as two.
    """
    minute, hour, days = fields.split(" ", 2)
    if hour in EVERY_HOUR:
        return f"{minute} * {days}"
    return f"{minute.replace('*', '0-59')} {hour.replace('*', '0-23')} {days}"


@attrs.frozen
class Every:
    """The times that follow a beginning at equal distances."""

    seconds: float
    since: float

    def last_until(self, time: float) -> float | None:
        number = self.number_until(time)
        return self.since + number * self.seconds if number else None

    def next_after(self, time: float) -> float | None:
        return self.since + (self.number_until(time) + 1) * self.seconds

    def number_until(self, time: float) -> int:
        """Return how many times there are until then."""
        # A time that was computed here must count, whatever the rounding of floats.
        return max(0, math.floor((time - self.since) / self.seconds + 1e-6))


@attrs.frozen
class Once:
    """One moment."""

    at: float

    def last_until(self, time: float) -> float | None:
        return self.at if self.at <= time else None

    def next_after(self, time: float) -> float | None:
        return self.at if self.at > time else None


Times: TypeAlias = Cron | Every | Once


def job_id(name: str) -> JobId:
    """Return the id of a job by its name, or raise a `ScheduleError` if that is none."""
    if NAME.fullmatch(name) is None:
        raise ScheduleError(
            f"{name!r} is not a name for a job: up to 64 letters, digits, dots, - and _"
        )
    return JobId(name)


def canonical_schedule(text: str, zone: str, now: float) -> str:
    """Return the stored form of a schedule, or raise a `ScheduleError` that names the problem.

    A relative time becomes a moment.
    """
    place = zone_of(zone)
    schedule = " ".join(text.split())
    if len(schedule) > LONGEST_TEXT:
        raise ScheduleError(
            f"the schedule has {len(schedule)} characters, and may have {LONGEST_TEXT}"
        )
    if schedule.lower().startswith("every "):
        seconds = duration(schedule[len("every ") :])
        if seconds < SHORTEST:
            raise ScheduleError(f"{text!r} is too often: once a minute is the most")
        return f"every {schedule[len('every ') :].lower()}"
    if schedule.lower().startswith("in "):
        seconds = duration(schedule[len("in ") :])
        return _once(datetime.fromtimestamp(now + seconds, UTC).astimezone(place))
    moment = _read_moment(schedule, place)
    if moment is not None:
        if moment.timestamp() <= now:
            raise ScheduleError(f"{text!r} is over: {_once(moment)[len(ONCE) :]}")
        if moment.year > LAST_YEAR:
            raise ScheduleError(f"{text!r} is too far ahead: {LAST_YEAR} is the last year")
        return _once(moment)
    _require_fields(text, schedule, place)
    return schedule.upper()


def _once(moment: datetime) -> str:
    return ONCE + moment.isoformat(timespec="seconds")


def _read_moment(schedule: str, place: ZoneInfo) -> datetime | None:
    try:
        moment = datetime.fromisoformat(schedule.removeprefix(ONCE))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=place)


def _require_fields(text: str, schedule: str, place: ZoneInfo) -> None:
    from cronsim import CronSimError

    count = len(schedule.split())
    if count != FIELDS:
        raise ScheduleError(
            f"{text!r} is not a schedule: it has {count} fields, and cron has five; write"
            f" {_EXAMPLES}"
        )
    try:
        Cron(schedule.upper(), place).next_after(0.0)
    except CronSimError as exc:
        raise ScheduleError(
            f"{text!r} is not a schedule: {str(exc).lower()}; write {_EXAMPLES}"
        ) from exc


def duration(text: str) -> float:
    """Return the seconds of a text such as `90m` or `1h 30m`."""
    if _DURATION.fullmatch(text.strip().lower()) is None:
        raise ScheduleError(f"{text!r} is not a duration: write 30m, 2h or 1d 12h")
    amounts = _AMOUNT.findall(text.lower())
    seconds = sum(float(number) * _UNITS[unit] for number, unit in amounts)
    if seconds > LONGEST:
        raise ScheduleError(f"{text!r} is too long: ten years are the most")
    return seconds


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its name."""
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError) as exc:
        raise ScheduleError(
            f"there is no time zone {name!r}: write Europe/Berlin, America/New_York or UTC"
        ) from exc


@lru_cache(maxsize=1024)
def times_of(schedule: str, zone: str, since: float) -> Times:
    """Return the times of a schedule from `canonical_schedule`; `every` counts from `since`."""
    if schedule.startswith("every "):
        return Every(duration(schedule[len("every ") :]), since)
    if schedule.startswith(ONCE):
        return Once(datetime.fromisoformat(schedule[len(ONCE) :]).timestamp())
    return Cron(schedule, zone_of(zone))


def _moment(time: float, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(time, zone)


@attrs.frozen
class Due:
    """The time at which a job is due, and when to look again."""

    at: float | None = None
    """The due time, or None."""
    missed: int = 0
    """How many times before it went by without a run."""
    is_too_late: bool = False
    """It is due for longer than the job is caught up."""
    next: float | None = None
    """The first time that is not due yet; None if there is none, or the job is paused."""


def due(record: JobRecord, now: float) -> Due:
    """Return what of a job is due. Times that were missed are one, the last.

    Times before the job was set, or while it was paused, are never due. A clock that is set back
    makes nothing due again.
    """
    if record.paused:
        return Due()
    times = times_of(record.spec.schedule, record.spec.zone, record.set_at)
    after = max(record.since, record.last_at)
    end = math.inf if record.spec.until is None else record.spec.until
    last = times.last_until(min(now, end))
    upcoming = times.next_after(max(now, after))
    if upcoming is not None and upcoming > end:
        upcoming = None
    if last is None or last <= after:
        return Due(next=upcoming)
    return Due(
        at=last,
        missed=_count(times, after, last),
        is_too_late=now - last > record.spec.catch_up,
        next=upcoming,
    )


def _count(times: Times, after: float, last: float) -> int:
    """Return how many times lie between two, which do not count."""
    if isinstance(times, Every):
        return times.number_until(last) - times.number_until(after) - 1
    count = 0
    at = times.next_after(after)
    while at is not None and at < last and count < MOST_COUNTED:
        count += 1
        at = times.next_after(at)
    return count


def next_text(job: JobRecord, now: float) -> str:
    """Return when a job begins next, in its own time zone."""
    if job.paused:
        return "paused"
    at = due(job, now).next
    return "never again" if at is None else moment_text(at, job.spec.zone)


def moment_text(at: float, zone: str) -> str:
    """Return a time as people read it, with the name of its zone."""
    return f"{_moment(at, zone_of(zone)):%a %Y-%m-%d %H:%M %Z}"
