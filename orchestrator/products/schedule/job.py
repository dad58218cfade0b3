"""A job that a program declares: its schedule, its agent, its goal, and its targets."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs
from msgspec.structs import replace

from orchestrator.agents import Agent, DefinitionError, well_formed
from orchestrator.delegation import SessionId
from orchestrator.delegation.events.jobs import JobId, JobRecord, JobSpec
from orchestrator.delegation.schedule import (
    LIFETIME,
    ScheduleError,
    canonical_schedule,
    duration,
    job_id,
    zone_of,
)
from orchestrator.ports.sessions import JobEdit
from orchestrator.products.schedule.targets import ORIGIN

DEFAULT_CATCH_UP: Final = "2h"


def _targets(deliver: str | Iterable[str]) -> tuple[str, ...]:
    return (deliver,) if isinstance(deliver, str) else tuple(deliver)


@attrs.frozen
class Job:
    """An agent that the clock starts: `Job("0 8 * * MON", editor, "Write the brief.")`."""

    schedule: str
    """`0 8 * * MON`, `every 2h`, or a moment such as `2026-12-24T18:00`."""
    agent: Agent[Any]
    goal: Any
    """A text, or the input of a pipeline."""
    name: str = attrs.field(default="", kw_only=True)
    """The name to pause, run and remove the job; by default the name of its agent."""
    deliver: tuple[str, ...] = attrs.field(default=(), converter=_targets, kw_only=True)
    """The targets of its replies: `file:PATH`, or a kind that the program offers, with an address;
    one or several."""
    zone: str = attrs.field(default="", kw_only=True)
    """The name of a time zone; by default the zone of the machine that first sets the job."""
    catch_up: str = attrs.field(default=DEFAULT_CATCH_UP, kw_only=True)
    """How late a run may begin if no process ran at its time."""
    may_schedule: bool = attrs.field(default=False, kw_only=True)
    """Whether its runs may set jobs, if the agent `schedules`."""

    @property
    def id(self) -> JobId:
        return JobId(self.name or self.agent.name)

    def spec(self, *, zone: str, now: float) -> JobSpec:
        """Return the description of the job for the journal, or raise `DefinitionError`."""
        if self.schedule.strip().lower().startswith("in "):
            raise DefinitionError(
                f"job {self.id!r}: {self.schedule!r} would start again with every start of the"
                " program; give an exact time, such as 2026-12-24T18:00"
            )
        try:
            # A file may keep a job whose moment is over.
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
    """Return jobs by their names, or raise if two have the same name."""
    found: dict[JobId, Job] = {}
    for job in jobs:
        if found.setdefault(job.id, job) is not job:
            raise DefinitionError(
                f"two jobs have the name {job.id!r}: give one of them another name=..."
            )
    return found


def session_of(job: JobId) -> SessionId:
    """Return the session of a job that a program declares."""
    return SessionId(f"j_{_digest(job)}")


def run_of(job: JobRecord, at: float) -> SessionId:
    """Return the id of the session of a job's run at one of its times; it is always the same."""
    return SessionId(f"r_{_digest(f'{job.session} {job.spec.id} {at!r}')}")


def is_declared(job: JobRecord) -> bool:
    """Return whether a program declared a job; if not, an agent set it."""
    return job.session == session_of(job.spec.id)


def full_name(job: JobRecord) -> str:
    """Return a unique name of a job."""
    return job.spec.id if is_declared(job) else f"{job.session}:{job.spec.id}"


def session_of_name(name: str) -> SessionId:
    """Return the session of a job by its unique name."""
    session, _, job = name.rpartition(":")
    return SessionId(session) if session else session_of(JobId(job))


def time_text(at: float) -> str:
    """Return a time in the form of instructions and file names."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H%M%SZ")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def no_origin(job: JobId) -> DefinitionError:
    """Return the error for a job without a conversation to answer in."""
    return DefinitionError(
        f"job {job!r} delivers to {ORIGIN!r}, which is for jobs of a session: this one has no"
        " conversation to answer in"
    )


def edited_spec(spec: JobSpec, edit: JobEdit, now: float) -> JobSpec:
    """Return the job with the change of a person; raise `DefinitionError` if it is not possible."""
    zone = spec.zone if edit.zone is None else edit.zone
    goal = spec.goal if edit.goal is None else well_formed(edit.goal.strip())
    if not goal:
        raise DefinitionError(f"job {spec.id!r}: the goal cannot be empty")
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
    return replace(
        spec,
        schedule=schedule,
        zone=zone,
        goal=goal,
        deliver=spec.deliver if edit.deliver is None else edit.deliver,
        catch_up=catch_up,
        # A person who changes a job of an agent keeps it for another month.
        until=None if spec.until is None else now + LIFETIME,
    )
