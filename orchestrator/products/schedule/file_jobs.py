"""The jobs of a team file."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.agents import Agent, DefinitionError
from orchestrator.products.agent_files.ports import JobEntry
from orchestrator.products.schedule.job import Job


def built_jobs(entries: Iterable[JobEntry], agents: Mapping[str, Agent[Any]]) -> tuple[Job, ...]:
    """Return the jobs of a team file; raise `AgentFileError` with the line of an invalid one."""
    return tuple(_built(it, agents[it.agent]) for it in entries)


def _built(entry: JobEntry, agent: Agent[Any]) -> Job:
    options: dict[str, Any] = {**entry.options}
    schedule: str = options.pop("schedule")
    job = Job(schedule, agent, entry.goal, name=entry.name, **options)
    try:
        # A check only: the zone of the machine is read when the job is set.
        job.spec(zone="UTC", now=time.time())
    except DefinitionError as exc:
        raise entry.at.error(str(exc)) from exc
    return job
