"""A job as a program writes it: when, which agent, what for, and who gets the answer."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from orchestrator.agents import Agent, DefinitionError, well_formed
from orchestrator.delegation import SessionId
from orchestrator.delegation.events.jobs import JobId, JobRecord, JobSpec
from orchestrator.delegation.schedule import (
    ScheduleError,
    canonical_schedule,
    duration,
    job_id,
    zone_of,
)
from orchestrator.kernel.engine.scheduler_slot import JobEdit
from orchestrator.products.schedule.targets import ORIGIN

DEFAULT_CATCH_UP: Final = "2h"


def _targets(deliver: str | Iterable[str]) -> tuple[str, ...]:
    return (deliver,) if isinstance(deliver, str) else tuple(deliver)


@attrs.frozen
class Job:
    """An agent that begins by the clock: `Job("0 8 * * MON", editor, "Write the brief.")`."""

    schedule: str
    """`0 8 * * MON`, `every 2h`, or a moment such as `2026-12-24T18:00`."""
    agent: Agent[Any]
    goal: Any
    """A text, or the input that a pipeline takes."""
    name: str = attrs.field(default="", kw_only=True)
    """By which it is paused, run and removed; by default the name of its agent."""
    deliver: tuple[str, ...] = attrs.field(default=(), converter=_targets, kw_only=True)
    """Where its replies go: `file:PATH`, or a kind that the program has and an address; one, or
    several."""
    zone: str = attrs.field(default="", kw_only=True)
    """The name of a time zone; by default that of the machine on which the job is first set."""
    catch_up: str = attrs.field(default=DEFAULT_CATCH_UP, kw_only=True)
    """How late it may begin, when no process ran at its time."""
    may_schedule: bool = attrs.field(default=False, kw_only=True)
    """Whether its runs may set jobs, if the agent `schedules`."""

    @property
    def id(self) -> JobId:
        return JobId(self.name or self.agent.name)

    def spec(self, *, zone: str, now: float) -> JobSpec:
        """Return what the journal says of it.

        Args:
            zone: the zone of a job that names none.
            now: the time at which it is set.

        Raises:
            DefinitionError: it cannot be as it is written.
        """
        if self.schedule.strip().lower().startswith("in "):
            raise DefinitionError(
                f"job {self.id!r}: {self.schedule!r} would begin anew with every start of the"
                " program; write the moment: 2026-12-24T18:00"
            )
        try:
            # A moment that is over is no mistake of a file that stays as it is.
            since = 0.0 if is_moment(self.schedule) else now
            return JobSpec(
                id=job_id(self.id),
                schedule=canonical_schedule(self.schedule, self.zone or zone, since),
                zone=self.zone or zone,
                agent=self.agent.name,
                goal=well_formed(self.agent.as_goal(self.goal)),
                deliver=self.deliver,
                catch_up=duration(self.catch_up),
                may_schedule=self.may_schedule,
            )
        except ScheduleError as exc:
            raise DefinitionError(f"job {self.id!r}: {exc}") from exc


def is_moment(schedule: str) -> bool:
    """Return whether a schedule is one moment."""
    try:
        datetime.fromisoformat(schedule.strip())
    except ValueError:
        return False
    return True


def require_names(jobs: Sequence[Job]) -> Mapping[JobId, Job]:
    """Return jobs by their names, or raise if two have the same."""
    found: dict[JobId, Job] = {}
    for job in jobs:
        if found.setdefault(job.id, job) is not job:
            raise DefinitionError(
                f"two jobs are called {job.id!r}: give one of them another name=..."
            )
    return found


def session_of(job: JobId) -> SessionId:
    """Return the session that a job of a program has for itself."""
    return SessionId(f"j_{_digest(job)}")


def run_of(job: JobRecord, at: float) -> SessionId:
    """Return the session of the run of a job at one of its times: always the same."""
    return SessionId(f"r_{_digest(f'{job.session} {job.spec.id} {at!r}')}")


def is_declared(job: JobRecord) -> bool:
    """Return whether a job is of a program, and was not set by an agent."""
    return job.session == session_of(job.spec.id)


def full_name(job: JobRecord) -> str:
    """Return a name of a job that no other has."""
    return job.spec.id if is_declared(job) else f"{job.session}:{job.spec.id}"


def session_of_name(name: str) -> SessionId:
    """Return the session of a job by a name that no other has."""
    session, _, job = name.rpartition(":")
    return SessionId(session) if session else session_of(JobId(job))


def time_text(at: float) -> str:
    """Return a time as instructions and file names have it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H%M%SZ")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def no_origin(job: JobId) -> DefinitionError:
    """Return the error of a job that would answer in a conversation that it does not have."""
    return DefinitionError(
        f"job {job!r} delivers to {ORIGIN!r}, which is for jobs of a session: this one has no"
        " conversation to answer in"
    )


def edited_spec(spec: JobSpec, edit: JobEdit, now: float) -> JobSpec:
    """Return the job with a change of a person.

    Raises:
        DefinitionError: the change is not possible.
    """
    zone = spec.zone if edit.zone is None else edit.zone
    goal = spec.goal if edit.goal is None else well_formed(edit.goal.strip())
    if not goal:
        raise DefinitionError(f"job {spec.id!r} has a goal: it cannot be empty")
    try:
        zone_of(zone)
        schedule = spec.schedule
        if edit.schedule is not None:
            schedule = canonical_schedule(edit.schedule, zone, now)
        catch_up = spec.catch_up
        if edit.catch_up is not None:
            catch_up = duration(edit.catch_up)
    except ScheduleError as exc:
        raise DefinitionError(f"job {spec.id!r}: {exc}") from exc
    return attrs.evolve(
        spec,
        schedule=schedule,
        zone=zone,
        goal=goal,
        deliver=spec.deliver if edit.deliver is None else edit.deliver,
        catch_up=catch_up,
    )
