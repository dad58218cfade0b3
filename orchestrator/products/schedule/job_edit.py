"""A job as it becomes when a person changes it."""

import attrs

from orchestrator.agents import DefinitionError, well_formed
from orchestrator.delegation.events.jobs import JobId, JobSpec
from orchestrator.delegation.schedule import ScheduleError, canonical_schedule, duration, zone_of
from orchestrator.kernel.engine.scheduler_slot import JobEdit
from orchestrator.products.schedule.targets import ORIGIN


def no_origin(job: JobId) -> DefinitionError:
    """Return the error of a job that would answer in a conversation that it does not have."""
    return DefinitionError(
        f"job {job!r} delivers to {ORIGIN!r}, which is for jobs of a session: this one has no"
        " conversation to answer in"
    )


def edited_spec(spec: JobSpec, edit: JobEdit, now: float) -> JobSpec:
    """Return a job as it becomes.

    Raises:
        DefinitionError: it cannot be so.
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
