"""Jobs: work that begins by the clock."""

from typing import Final, NewType

import msgspec

from orchestrator.delegation.task import SessionId

JobId = NewType("JobId", str)

ONCE: Final = "at "
"""How the schedule of a job begins that is due once."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The work and the times of a job: all that the next process needs."""

    id: JobId
    schedule: str
    """Five fields of cron, `every 2h`, or `at` and a moment with its offset."""
    zone: str
    """The name of the time zone for the fields of cron."""
    agent: str
    goal: str
    deliver: tuple[str, ...] = ()
    """Where its replies go: `file:PATH`, `origin`, or an address of a kind that the program has."""
    catch_up: float = 7200.0
    """How many seconds late it may begin, when no process ran at its time."""
    may_schedule: bool = False
    """Whether its runs may set jobs, if their agent may."""
    until: float | None = None
    """Its end, in seconds since the epoch: no later time is due. None is no end."""

    @property
    def is_once(self) -> bool:
        return self.schedule.startswith(ONCE)


REMEMBERED_RUNS: Final = 3
"""The number of remembered runs of a job: failures in a row are reported up to it."""


class JobRecord(msgspec.Struct, frozen=True, gc=False):
    """A job, and what became of its times."""

    spec: JobSpec
    session: SessionId
    set_at: float
    """The time of its last change: `every` counts from then."""
    since: float
    """No time until then is due: it was set then, or went on after a pause."""
    paused: bool = False
    last_at: float = 0.0
    """The last time of its schedule that a run began at, or that was skipped."""
    runs: tuple[SessionId, ...] = ()
    """Its last runs, oldest first."""
