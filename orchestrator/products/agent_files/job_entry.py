"""A job as a team file writes it: the key `schedule`, with the line of each value."""

from collections.abc import Mapping
from typing import Final

import attrs

from orchestrator.agents.nearest_name import did_you_mean
from orchestrator.products.agent_files.located import Located

KEYS: Final = (*("when", "agent", "goal", "deliver", "zone", "catch_up", "may_schedule"),)
EXAMPLE: Final = 'brief: {when: "0 8 * * MON", goal: Write the brief.}'


@attrs.frozen(kw_only=True)
class JobEntry:
    """A job that is not built yet."""

    name: str
    agent: str
    goal: str
    options: Mapping[str, str | tuple[str, ...] | bool]
    """Its other settings, by the names of the fields of `Job`."""
    at: Located
    """Where its definition begins."""


def read_schedule(
    schedule: Located | None, agents: Mapping[str, object], lead: str | None
) -> tuple[JobEntry, ...]:
    """Return the jobs of a team file; jobs without an agent belong to the lead."""
    if schedule is None:
        return ()
    only = next(iter(agents)) if len(agents) == 1 else None
    return tuple(
        _read_job(name, job, agents, lead or only)
        for name, job in schedule.as_mapping("schedule", EXAMPLE).items()
    )


def _read_job(name: str, job: Located, agents: Mapping[str, object], lead: str | None) -> JobEntry:
    fields = job.as_mapping(f"job {name!r}", 'when: "0 8 * * MON"')
    for key, value in fields.items():
        if key not in KEYS:
            value.refuse(f"a job has no key {key!r}; {did_you_mean(key, KEYS)}")
    for key in ("when", "goal"):
        if key not in fields:
            job.refuse(f"job {name!r} has no {key!r}: write {EXAMPLE!r}")
    agent = lead if "agent" not in fields else fields["agent"].as_text("agent")
    if agent is None:
        job.refuse(f"say which agent job {name!r} is for, with the key 'agent'")
    if agent not in agents:
        where = fields.get("agent", job)
        where.refuse(f"there is no agent {agent!r}; {did_you_mean(agent, agents)}")
    return JobEntry(
        name=name,
        agent=agent,
        goal=fields["goal"].as_text("goal"),
        options=_options(fields),
        at=job,
    )


def _options(fields: Mapping[str, Located]) -> Mapping[str, str | tuple[str, ...] | bool]:
    options: dict[str, str | tuple[str, ...] | bool] = {"schedule": fields["when"].as_text("when")}
    for key in ("zone", "catch_up"):
        if key in fields:
            options[key] = fields[key].as_text(key)
    if "deliver" in fields:
        targets = fields["deliver"].as_names("targets")
        options["deliver"] = tuple(it.as_text("a target") for it in targets)
    if "may_schedule" in fields:
        options["may_schedule"] = fields["may_schedule"].as_bool("may_schedule")
    return options
