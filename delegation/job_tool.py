"""`job`: an agent sets, lists and removes jobs of its own session with it.

A job is a promise, so it can be set only in a session that can receive results later and whose
process starts jobs. A model gives a time and a goal, never a target: the answers of its jobs come
to the session that set them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from orchestrator.agents import (
    Agent,
    Tool,
    ToolCall,
    ToolError,
    arguments_schema,
    read_arguments,
    well_formed,
)
from orchestrator.delegation.events.jobs import ONCE, JobId, JobRecord, JobSpec
from orchestrator.delegation.schedule import (
    LIFETIME,
    SHORTEST,
    ScheduleError,
    canonical_schedule,
    duration,
    job_id,
    moment_text,
    next_text,
)
from orchestrator.delegation.tools.results import as_json

JOB_TOOL: Final = "job"
MAX_GOAL: Final = 8_000
"""How many characters the goal of a job has at most."""
CATCH_UP: Final = 7200.0
CATCH_UP_ONCE: Final = 86_400.0
"""One-time jobs, such as a reminder, start late rather than never."""


class ControlJobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `job`."""

    action: Annotated[
        Literal["set", "list", "remove"],
        msgspec.Meta(
            description="set: begin an agent by the clock; the same name again changes the job."
            " list: your jobs, and what time it is. remove: end a job."
        ),
    ]
    name: Annotated[
        str,
        msgspec.Meta(
            description="set and remove: which job, such as `morning-brief`. Letters, digits,"
            " dots, - and _."
        ),
    ] = ""
    schedule: Annotated[
        str,
        msgspec.Meta(
            description="set: when. `0 8 * * MON` (cron), `every 2h`, `in 30m`, or"
            " `2026-12-24T18:00`."
        ),
    ] = ""
    goal: Annotated[
        str,
        msgspec.Meta(
            description="set: what to do then, in full. The run sees nothing of this"
            " conversation; its answer comes here as a message."
        ),
    ] = ""
    zone: Annotated[
        str,
        msgspec.Meta(
            description="set: the time zone of the schedule, such as Europe/Berlin. Left out:"
            " that of the machine."
        ),
    ] = ""


class SessionJobs(Protocol):
    """The jobs that the agents of one session have set."""

    @property
    def zone(self) -> str:
        """The time zone of this machine."""
        ...

    @property
    def agent(self) -> str:
        """The agent that runs them."""
        ...

    @property
    def deliver(self) -> tuple[str, ...]:
        """Where their replies go."""
        ...

    @property
    def is_begun_by_job(self) -> bool:
        """Whether the answer of a job began the turn, and no person has written since."""
        ...

    def now(self) -> float:
        """Return the time of day."""
        ...

    async def jobs(self) -> Sequence[JobRecord]:
        """Return them all."""
        ...

    def require_settable(self) -> None:
        """Raise a `ToolError` that says why none can be set here, unless one can."""
        ...

    async def set(self, spec: JobSpec, call: str) -> JobRecord | None:
        """Set a job once for each call, or None if it is over by now; raise `ToolError`."""
        ...

    async def remove(self, job: JobId, call: str) -> None:
        """Remove a job, once for each call; raise `ToolError` if there is none."""
        ...


def job_tool(agent: Agent[Any], *, prefix: str, find: Callable[[], SessionJobs]) -> Tool:
    """Return the tool for one session of an agent.

    `prefix` makes the ids of calls those of this session. `find` returns the jobs of the session,
    or raises a `ToolError`: none begin here.
    """

    async def run(call: ToolCall) -> str:
        given = read_arguments(call, ControlJobs)
        jobs, key = find(), f"{prefix}_{call.id}"
        if given.action == "list":
            return await _list(jobs)
        try:
            if given.action == "set":
                return await _set(jobs, given, key)
            await jobs.remove(job_id(given.name), key)
        except ScheduleError as exc:
            raise ToolError(str(exc)) from exc
        return as_json({"removed": given.name})

    return Tool(
        name=JOB_TOOL,
        description="Have work done later or again and again, by the clock: set, list and remove"
        " jobs of this conversation. When a job is due, you begin anew with its goal, and the"
        " answer comes to this conversation.",
        parameters=_parameters(),
        run=run,
        machine=lambda call: _machine_use(call, find),
        # A call that is repeated after a crash sets no job twice.
        idempotent=True,
        # It posts facts, and the work that they start waits until they are durable.
        acts_outside=False,
    )


def _machine_use(call: ToolCall, find: Callable[[], SessionJobs]) -> Literal["job"] | None:
    """Return "job" for a call that sets a job that comes again, or one after another."""
    if call.arguments.get("action") != "set":
        return None
    try:
        schedule = canonical_schedule(str(call.arguments.get("schedule", "")), "UTC", 0.0)
        is_again = not schedule.startswith(ONCE) or find().is_begun_by_job
    except (ScheduleError, ToolError):
        return None  # the call fails
    return "job" if is_again else None


@cache
def _parameters() -> Mapping[str, Any]:
    return arguments_schema(ControlJobs)


async def _set(jobs: SessionJobs, given: ControlJobs, call: str) -> str:
    jobs.require_settable()
    spec = _spec(jobs, given)
    job = await jobs.set(spec, call)
    if job is None:
        return as_json({"set": spec.id, "note": "It has begun already, and is over."})
    note = "Its answer comes to this conversation as a message."
    return as_json({"set": spec.id, **_shown(job, jobs.now()), "note": note})


def _spec(jobs: SessionJobs, given: ControlJobs) -> JobSpec:
    """Return the job that a model requests, or raise its problem."""
    id_, now = job_id(given.name), jobs.now()
    zone = given.zone.strip() or jobs.zone
    words = given.schedule.lower().split(maxsplit=1)
    if words[:1] == ["in"] and duration(words[-1]) < SHORTEST:
        raise ToolError(f"{given.schedule!r} is too soon: a minute is the least")
    goal = given.goal.strip()
    if not goal:
        raise ToolError("say what to do when the job is due, in `goal`")
    if len(goal) > MAX_GOAL:
        raise ToolError(
            f"the goal has {len(goal)} characters, and may have {MAX_GOAL}: write a shorter one"
        )
    spec = JobSpec(
        id=id_,
        schedule=canonical_schedule(given.schedule, zone, now),
        zone=zone,
        agent=jobs.agent,
        goal=well_formed(goal),
        deliver=jobs.deliver,
        catch_up=CATCH_UP,
    )
    if spec.is_once:
        return replace(spec, catch_up=CATCH_UP_ONCE)
    return replace(spec, until=now + LIFETIME)


async def _list(jobs: SessionJobs) -> str:
    now = jobs.now()
    listed = [
        {"name": it.spec.id, **_shown(it, now), "goal": it.spec.goal} for it in await jobs.jobs()
    ]
    return as_json({"now": moment_text(now, jobs.zone), "jobs": listed})


def _shown(job: JobRecord, now: float) -> Mapping[str, str]:
    spec = job.spec
    shown = {"schedule": spec.schedule, "zone": spec.zone, "next": next_text(job, now)}
    return shown if spec.until is None else {**shown, "ends": moment_text(spec.until, spec.zone)}
