"""`/v1/jobs`: agents that begin by the clock, in any journal of the server.

A client changes the times and the goal of a job, and never its targets: the operator names the
files and addresses that replies go to.
"""

from typing import Annotated, Final, Literal

import msgspec
import trio
from starlette.responses import Response

from orchestrator.agents import DefinitionError
from orchestrator.delegation import SessionId
from orchestrator.delegation.events import JobOccurred
from orchestrator.delegation.events.jobs import JobRecord
from orchestrator.delegation.schedule import due
from orchestrator.ports.errors import UnknownIdError
from orchestrator.products.schedule.ports import JobEdit, full_name, is_declared
from orchestrator.products.server.api.lookup import all_bodies, other_answers, read_run
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Key, Scope
from orchestrator.products.server.operation import Answer, Operation, doc
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.session_status import State, state_of
from orchestrator.products.server.transport.errors import HttpError, not_found

MOST_TIMES: Final = 100
"""The most times in the history of a job."""


class Job(msgspec.Struct, kw_only=True):
    """An agent that begins by the clock."""

    id: Annotated[
        str, doc("The name of the job; the session comes before it if an agent has set it.")
    ]
    object: Literal["job"] = "job"
    agent: str
    goal: str
    schedule: Annotated[str, doc("Five fields of cron, `every 2h`, or `at` a time.")]
    zone: str
    catch_up: Annotated[float, doc("The most seconds that it may begin late.")]
    session: Annotated[str | None, doc("The session that set it; null: the program set it.")]
    targets: Annotated[list[str], doc("The kinds of its targets.")]
    paused: bool
    next: Annotated[float | None, doc("The next time, in seconds since the epoch.")]
    last_run: str | None


class Jobs(msgspec.Struct, kw_only=True):
    """All jobs."""

    object: Literal["list"] = "list"
    data: list[Job]


class JobTime(msgspec.Struct, kw_only=True):
    """One time of a job: the run that began, or why none did."""

    object: Literal["job.time"] = "job.time"
    due: float
    run: Annotated[str | None, doc("The run that began; null if none did.")]
    status: Annotated[State | None, doc("The status of the run; null if it was deleted.")]
    skipped: Annotated[str, doc("The reason why no run began.")]
    missed: Annotated[int, doc("The number of missed times before it.")]
    by_hand: Annotated[bool, doc("A person began it.")]


class JobTimes(msgspec.Struct, kw_only=True):
    """The last times of a job, newest first."""

    object: Literal["list"] = "list"
    data: list[JobTime]


class ChangedJob(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The changes of a job; fields that are left out stay."""

    schedule: Annotated[
        str | None, doc("`0 8 * * MON`, `every 2h`, `in 30m` or `2026-12-24T18:00`.")
    ] = None
    goal: str | None = None
    zone: Annotated[str | None, doc("Such as Europe/Berlin.")] = None
    catch_up: Annotated[str | None, doc("The longest delay of a start, such as `2h`.")] = None


class BegunRun(msgspec.Struct, kw_only=True):
    """The run of a job that a person began."""

    id: str
    object: Literal["run"] = "run"
    job: str


class RemovedJob(msgspec.Struct, kw_only=True):
    """A job that was removed."""

    id: str
    object: Literal["job"] = "job"
    deleted: Literal[True] = True


_JOB: Final = Answer("The present state of the job", Job)


@Operation("GET", "/v1/jobs", Scope.READ, Answer("All jobs", Jobs))
async def list_jobs(call: ApiCall) -> Response:
    """List jobs, which begin by the clock; an admin's key sees the jobs of all owners."""
    bodies = await all_bodies(call, job_bodies)
    for answer in await other_answers(call):
        bodies += msgspec.json.decode(answer, type=Jobs).data
    return json_response(Jobs(data=bodies))


def job_bodies(journal: ServedJournal, key: Key) -> list[Job]:
    """Return the jobs of a journal that the key sees."""
    return [
        _body_of(journal, it)
        for it in journal.scheduler.jobs()
        if journal.owners.sees(key, it.session)
    ]


def _body_of(journal: ServedJournal, job: JobRecord) -> Job:
    spec = job.spec
    return Job(
        id=full_name(job),
        agent=spec.agent,
        goal=spec.goal,
        schedule=spec.schedule,
        zone=spec.zone,
        catch_up=spec.catch_up,
        session=None if is_declared(job) else job.session,
        targets=[target.partition(":")[0] for target in spec.deliver],
        paused=job.paused,
        next=due(job, journal.scheduler.now()).next,
        last_run=job.runs[-1] if job.runs else None,
    )


def _find(call: ApiCall) -> JobRecord:
    """Return the job of a request, if its key sees it."""
    name = call.path("job")
    for job in call.journal.scheduler.jobs():
        if full_name(job) == name and call.sees(job.session):
            return job
    raise not_found(f"there is no job {name!r}")


async def _show(call: ApiCall) -> Response:
    """Respond with the present state of a job, once it is durable."""
    return await call.durable_response(_body_of(call.journal, _find(call)))


@Operation("GET", "/v1/jobs/{job}", Scope.READ, _JOB)
async def get_job(call: ApiCall) -> Response:
    """Return a job, and the time when it begins next."""
    return await _show(call)


@Operation("GET", "/v1/jobs/{job}/history", Scope.READ, Answer("The times, newest first", JobTimes))
async def get_job_history(call: ApiCall) -> Response:
    """List the last times of a job: its runs, and why others did not begin."""
    job = _find(call)
    entries = await call.journal.read.entries(job.session)
    facts = [it.event for it in entries if isinstance(it.event, JobOccurred)]
    of_job = [it for it in facts if it.job == job.spec.id][-MOST_TIMES:]
    times = [await _time_of(call, it) for it in reversed(of_job)]
    return json_response(JobTimes(data=times))


async def _time_of(call: ApiCall, fact: JobOccurred) -> JobTime:
    status = None
    if not fact.skipped:
        status = await _status_of(call, fact.run)
    return JobTime(  # noqa: ASYNC910 (its caller has checkpointed)
        due=fact.at,
        run=None if fact.skipped else fact.run,
        status=status,
        skipped=fact.skipped,
        missed=fact.missed,
        by_hand=fact.by_hand,
    )


async def _status_of(call: ApiCall, run: SessionId) -> State | None:
    await trio.lowlevel.checkpoint()
    try:
        return state_of((await read_run(call, run)).session)
    except UnknownIdError:
        return None  # it was deleted


# A changed goal is run later, so changing a job needs the scope to run.
@Operation("POST", "/v1/jobs/{job}", Scope.RUN, _JOB, body=ChangedJob, errors=(422,))
async def edit_job(call: ApiCall) -> Response:
    """Change the schedule or the goal of a job; its times count anew from now on."""
    body = await call.body(ChangedJob)
    await call.take_texts(filter(None, [body.goal]))
    job = _find(call)
    call.record(full_name(job))
    edit = JobEdit(schedule=body.schedule, goal=body.goal, zone=body.zone, catch_up=body.catch_up)
    if edit == JobEdit():
        raise HttpError(
            400, "the body changes nothing: set at least one field", code="invalid_body"
        )
    try:
        call.journal.scheduler.edit(full_name(job), edit)
    except DefinitionError as exc:
        raise HttpError(422, str(exc), code="invalid_job") from exc
    return await _show(call)


@Operation(
    "POST",
    "/v1/jobs/{job}/run",
    Scope.RUN,
    Answer("The run has begun", BegunRun, status=202),
    errors=(503,),
)
async def run_job(call: ApiCall) -> Response:
    """Begin a run of a job now; its next time stays."""
    await trio.lowlevel.checkpoint()
    job = _find(call)
    with call.begin_run():
        run = call.journal.scheduler.run_now(job, states=call.key_states)
        call.record(full_name(job))
    return await call.durable_response(BegunRun(id=run, job=full_name(job)), 202, x_run_id=run)


@Operation("POST", "/v1/jobs/{job}/pause", Scope.STEER, _JOB)
async def pause_job(call: ApiCall) -> Response:
    """Pause a job: no run begins until the job is resumed."""
    return await _set_paused(call, paused=True)


@Operation("POST", "/v1/jobs/{job}/resume", Scope.STEER, _JOB)
async def resume_job(call: ApiCall) -> Response:
    """Resume a job; it does not catch up on the times that passed meanwhile."""
    return await _set_paused(call, paused=False)


async def _set_paused(call: ApiCall, *, paused: bool) -> Response:
    job = _find(call)
    call.record(full_name(job))
    call.journal.scheduler.pause(job, paused=paused)
    return await _show(call)


@Operation(
    "DELETE", "/v1/jobs/{job}", Scope.STEER, Answer("The job is removed", RemovedJob), errors=(409,)
)
async def remove_job(call: ApiCall) -> Response:
    """Remove a job that an agent has set; its present run goes on."""
    job = _find(call)
    if is_declared(job):
        raise HttpError(
            409,
            f"the program sets job {job.spec.id!r}, so the job would come back: remove it there,"
            " or pause it",
            code="declared_job",
        )
    call.record(full_name(job))
    call.journal.scheduler.remove(job)
    return await call.durable_response(RemovedJob(id=full_name(job)))
