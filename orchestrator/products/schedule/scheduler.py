"""The scheduler: it begins the runs of jobs when they are due, and delivers their replies.

The run of a job is a session whose id consists of the job and the time, so it begins once, even
after a crash. The loop reads the jobs from the ledger, and asks the rules which are due: there is
no queue to lose. It looks again when the next time comes, when a job changes, and at least every
hour, since clocks are set and machines sleep.
"""

import os
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, assert_never

import trio
from msgspec.structs import replace

from orchestrator.agents import Agent, CallId, DefinitionError, raising_one_error
from orchestrator.delegation import (
    DeliveryCapability,
    Encoded,
    Origin,
    Reply,
    SessionId,
    SessionRecord,
    TaskRecord,
    events,
)
from orchestrator.delegation.events.jobs import JobId, JobRecord, JobSpec
from orchestrator.delegation.schedule import Due, ScheduleError, due, times_of, zone_of
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import SessionState
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.sessions import (
    JobAction,
    JobEdit,
    KeptDoor,
    Orchestrator,
    Sessions,
    current_grants,
    is_over,
    use_grants,
)
from orchestrator.ports.settings import require_trio
from orchestrator.products.schedule import charges
from orchestrator.products.schedule.agent_jobs import AgentJobs, budget_of
from orchestrator.products.schedule.job import (
    Job,
    edited_spec,
    full_name,
    is_declared,
    no_origin,
    require_names,
    run_of,
    session_of,
)
from orchestrator.products.schedule.job_replies import JobReplies
from orchestrator.products.schedule.job_run import run_request
from orchestrator.products.schedule.targets import (
    FILE,
    NO_TARGETS,
    ORIGIN,
    Target,
    require_targets,
    write_file,
)

LINK: Final = Path("/etc/localtime")
FOLDER: Final = "zoneinfo/"


def local_zone(environ: Mapping[str, str], link: Path = LINK) -> str:
    """Return the zone in the variable TZ, else the zone of the machine, else UTC."""
    named = environ.get("TZ", "").removeprefix(":")
    try:
        _, _, linked = str(link.resolve()).rpartition(FOLDER)
    except OSError:
        linked = ""
    for name in (named, linked):
        try:
            zone_of(name)
        except ScheduleError:
            continue
        return name
    return "UTC"


LONGEST_SLEEP: Final = 3600.0
_JOB_FACTS: Final = (events.JobSet, events.JobPaused, events.JobRemoved)


class Scheduler:
    """The jobs of one journal. `open_schedule` opens it."""

    def __init__(
        self,
        sessions: Sessions,
        agents: Mapping[str, Agent[Any]],
        *,
        targets: Mapping[str, Target] = NO_TARGETS,
        clock: Callable[[], float] = time.time,
        environ: Mapping[str, str] = os.environ,
        charge: charges.Charge = charges.charge_no_one,
        inherit: charges.Inherit = charges.inherit_nothing,
        knows_targets: bool = True,
    ) -> None:
        """Create a scheduler; `run_forever` begins the runs of jobs.

        `targets` are kinds besides files and the session that set the job; `knows_targets` if the
        process that begins the jobs has no others. The clock may be set. `charge` charges runs to
        their payers. `inherit` returns the states that a run inherits from the session of its job.
        """
        self._facts = sessions.facts
        self._read = sessions.read
        self._slot = sessions.scheduler
        self._agents = agents
        self._replies = JobReplies(
            self._facts, self._read, targets, charge=charge, knows_targets=knows_targets
        )
        self._charge = charge
        self._inherit = inherit
        self._clock = clock
        self._environ = environ
        self._changed = trio.Event()
        self._given_door: KeptDoor | None = None

    @property
    def _door(self) -> KeptDoor:
        assert self._given_door is not None, "it was not given to `use_door`"
        return self._given_door

    @asynccontextmanager
    async def open(self, door: KeptDoor, jobs: Sequence[Job] | None) -> AsyncGenerator[None]:
        """Begin the jobs of the journal while the block lasts; resume the door's runs in it.

        The door opens the sessions of runs, and pushes the replies of the kind `JOB_RUN` to
        `deliver`. It also has the conversations that set jobs. None leaves declared jobs unchanged.
        """
        self._given_door = door
        self._replies.use_door(door)
        if jobs is not None:
            await self.declare(jobs)
        with self._slot.hold(self), raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.run_forever)
                yield
                nursery.cancel_scope.cancel(reason="the schedule is closed")

    async def deliver(self, session: SessionRecord, reply: Reply) -> None:
        """Deliver a reply of a run to the targets of its job."""
        await self._replies.deliver(session, reply)

    def now(self) -> float:
        """Return the time of day."""
        return self._clock()

    def has_agent(self, name: str) -> bool:
        """Return whether jobs of an agent can begin in this process."""
        return name in self._agents

    def jobs_of(self, task: TaskRecord, origin: Origin, resumed: Container[CallId]) -> AgentJobs:
        """Return the jobs of an agent's session."""
        session = self._read.records.sessions[task.session]
        return AgentJobs(
            self,
            self._facts,
            self._read,
            session,
            prefix=f"{task.call_prefix}_",
            zone=local_zone(self._environ),
            is_reachable=origin.capability is not DeliveryCapability.NONE
            and self._door.stays_open(session),
            resumed=resumed,
        )

    def jobs(self) -> Iterator[JobRecord]:
        """Yield all jobs that are set."""
        for session in self._read.records.scheduled.values():
            yield from session.jobs.values()

    def find(self, job: str) -> JobRecord:
        """Return a job by its name; raise `UnknownIdError` unless exactly one job has it."""
        return find_job(self.jobs(), job)

    async def declare(self, jobs: Sequence[Job]) -> None:
        """Set the jobs of a program, and remove the jobs that it no longer declares.

        An unchanged job keeps its state: paused, or due since the last process ended. Raise
        `DefinitionError` if a job is invalid; then no job is set.
        """
        await trio.lowlevel.checkpoint()
        now = self._clock()
        zone = local_zone(self._environ)
        specs: list[JobSpec] = []
        for id_, job in require_names(jobs).items():
            # A session without jobs may have been evicted.
            await self._facts.load(session_of(id_))
            earlier = self._declared(id_)
            # A job without a zone keeps the zone that it was given first.
            own_zone = zone if earlier is None else earlier.spec.zone
            spec = job.spec(zone=own_zone, now=now)
            self._require_targets(spec)
            if ORIGIN in spec.deliver:
                raise no_origin(id_)
            specs.append(spec)
        kept = {session_of(spec.id) for spec in specs}
        for session in [*self._read.records.scheduled.values()]:
            if session.kind is SessionKind.JOB and session.id not in kept:
                # Remove the jobs that its runs have set, too.
                for removed in [*session.jobs]:
                    self._post(events.JobRemoved(session.id, removed))
        for spec in specs:
            earlier = self._declared(spec.id)
            if earlier is not None and earlier.spec == spec:
                continue
            if spec.is_once and due_once(spec) <= now:
                continue  # its time is over
            self._open_own_session(spec)
            self._post(events.JobSet(session_of(spec.id), spec, now))

    def set(self, session: SessionId, spec: JobSpec, *, call: str = "") -> JobRecord:
        """Set a job in a session, or replace it."""
        self._require_targets(spec)
        self._post(events.JobSet(session, spec, self._clock(), call))
        return self._read.records.sessions[session].jobs[spec.id]

    def edit(self, job: str, edit: JobEdit) -> None:
        """Change a job: no further run of its old schedule begins.

        Raises:
            UnknownIdError: there is no such job.
            DefinitionError: the changed job would be invalid.
        """
        record = self.find(job)
        spec = edited_spec(record.spec, edit, self._clock())
        if edit.deliver is not None:
            self._require_targets(spec)
            if ORIGIN in spec.deliver and is_declared(record):
                raise no_origin(spec.id)
        self._post(events.JobSet(record.session, spec, self._clock()))

    def pause(self, job: JobRecord, *, paused: bool) -> None:
        """Pause a job, or continue it; runs that were due meanwhile are not caught up."""
        if job.paused is not paused:
            self._post(events.JobPaused(job.session, job.spec.id, paused, self._clock()))

    def remove(self, job: JobRecord) -> None:
        """Remove a job. Its current runs continue to their end."""
        self._post(events.JobRemoved(job.session, job.spec.id))

    def run_now(
        self, job: JobRecord, *, states: tuple[SessionState, ...] | None = None
    ) -> SessionId:
        """Begin a run of a job outside its schedule, and return its session.

        `states` name the payer of the run, by default as the job does. Raise `UnpaidError` if the
        payer cannot pay for it.
        """
        if states is not None:
            return self._begin(job, self._clock(), by_hand=True, states=states)
        session = self._read.records.sessions[job.session]
        with self._charge(session, False):
            return self._begin(job, self._clock(), by_hand=True)

    def act(self, job: str, action: JobAction) -> str:
        """Apply an action to a job, and return the run that it began; raise `UnknownIdError`."""
        record = self.find(job)
        match action:
            case "run":
                return self.run_now(record)
            case "pause" | "resume":
                self.pause(record, paused=action == "pause")
            case "remove":
                self.remove(record)
            case _:
                assert_never(action)
        return ""

    async def run_forever(self) -> NoReturn:
        """Begin the runs of jobs when they are due."""

        def wake(_entry: events.Entry, _encoded: Encoded) -> None:
            self._changed.set()

        with self._read.subscribe(wake, kinds=_JOB_FACTS):
            while True:
                if self._read.is_stopping:
                    await self._facts.wait_running()
                self._changed = trio.Event()
                upcoming = await self._begin_due()
                seconds = min(LONGEST_SLEEP, max(0.0, upcoming - self._clock()))
                with trio.move_on_after(seconds):
                    await self._changed.wait()

    async def _begin_due(self) -> float:
        """Begin the due runs, and return the time of the next one."""
        now = self._clock()
        upcoming = now + LONGEST_SLEEP
        for job in [*self.jobs()]:
            found = due(job, now)
            if found.next is not None:
                upcoming = min(upcoming, found.next)
            if found.at is None:
                continue
            # A crash may have left the session of the run, with or without its message.
            await self._facts.load(run_of(job, found.at))
            if self._is_unchanged(job) and not self._read.is_stopping:
                self._decide(job, found)
        await trio.lowlevel.checkpoint()
        return upcoming

    def _is_unchanged(self, job: JobRecord) -> bool:
        session = self._read.records.sessions.get(job.session)
        return session is not None and session.jobs.get(job.spec.id) is job

    def _decide(self, job: JobRecord, found: Due) -> None:
        """Begin a due run, or record why it does not begin."""
        assert found.at is not None, "a time is due"
        why = self._reason_to_skip(job, is_too_late=found.is_too_late)
        if not why:
            session = self._read.records.sessions[job.session]
            try:
                with self._charge(session, False):
                    self._begin(job, found.at, missed=found.missed)
            except (charges.UnpaidError, DefinitionError) as exc:
                # The key of its model may be missing. The other jobs begin all the same.
                why = str(exc)
        if why:
            fact = self._occurred(job, found.at, missed=found.missed)
            self._post(replace(fact, skipped=why))

    def _reason_to_skip(self, job: JobRecord, *, is_too_late: bool) -> str:
        if is_too_late:
            return "no process ran at its time, and it is too late to catch up"
        if job.spec.agent not in self._agents:
            return f"this process has no agent {job.spec.agent!r}"
        last = job.runs[-1] if job.runs else None
        running = self._read.records.sessions.get(last) if last else None
        if running is not None and not is_over(running):
            return f"the run before it is still under way: {last}"
        return ""

    def _begin(
        self,
        job: JobRecord,
        at: float,
        *,
        missed: int = 0,
        by_hand: bool = False,
        states: tuple[SessionState, ...] | None = None,
    ) -> SessionId:
        """Open the session of a run, in one step with the fact about it."""
        self._facts.require_running()
        spec = job.spec
        fact = self._occurred(job, at, missed=missed, by_hand=by_hand)
        agent = self._agents.get(spec.agent)
        if agent is None:
            raise UnknownIdError(f"this process has no agent {spec.agent!r}")
        ledger = self._read.records
        session = ledger.sessions[job.session]
        if states is None:
            states = self._inherit(session)
        request = run_request(job, at, agent, owner=session.owner, states=states)
        run = ledger.sessions.get(fact.run)
        payers = current_grants(self._facts)
        with use_grants((*payers, *budget_of(job))):
            if run is None:
                self._door.open_background(request, fact.run)
            elif not run.turns and not run.mail:
                self._door.receive(run, request)
        self._post(fact)
        return fact.run

    def _occurred(
        self, job: JobRecord, at: float, *, missed: int = 0, by_hand: bool = False
    ) -> events.JobOccurred:
        return events.JobOccurred(
            job.session, job.spec.id, at, run_of(job, at), missed=missed, by_hand=by_hand
        )

    def _post(
        self, fact: events.JobSet | events.JobPaused | events.JobRemoved | events.JobOccurred
    ) -> None:
        self._facts.post(fact)

    def _require_targets(self, spec: JobSpec) -> None:
        self._replies.targets.require(spec.id, spec.deliver)

    def _declared(self, job: JobId) -> JobRecord | None:
        session = self._read.records.sessions.get(session_of(job))
        return None if session is None else session.jobs.get(job)

    def _open_own_session(self, spec: JobSpec) -> None:
        """Open the session of a declared job, unless it exists. This is not a run."""
        id_ = session_of(spec.id)
        if id_ not in self._read.records.sessions:
            kind = SessionKind.JOB
            self._facts.post(events.SessionOpened(id_, kind.value, kind=kind))


def require_jobs(
    jobs: Sequence[Job],
    targets: Mapping[str, Target] = NO_TARGETS,
    *,
    environ: Mapping[str, str] = os.environ,
    now: float,
) -> None:
    """Raise a `DefinitionError` if a job is invalid, before anything is opened."""
    kinds = {FILE: write_file, **targets}
    for id_, job in require_names(jobs).items():
        spec = job.spec(zone=local_zone(environ), now=now)
        if ORIGIN in spec.deliver:
            raise no_origin(id_)
        require_targets(id_, spec.deliver, kinds)


def find_job(jobs: Iterable[JobRecord], name: str) -> JobRecord:
    """Return the job with a name; raise `UnknownIdError` unless exactly one job has it."""
    found = [it for it in jobs if name in {it.spec.id, full_name(it)}]
    # An agent may give its job the name of a program's job; the full name finds the latter.
    found = [it for it in found if full_name(it) == name] or found
    if not found:
        raise UnknownIdError(f"there is no job {name!r}")
    if len(found) > 1:
        names = ", ".join(map(full_name, found))
        raise UnknownIdError(f"several jobs have the name {name!r}; use one of: {names}")
    return found[0]


def due_once(spec: JobSpec) -> float:
    """Return the moment of a job that is due once."""
    return times_of(spec.schedule, spec.zone, 0.0).next_after(0.0) or 0.0


@asynccontextmanager
async def open_schedule(
    orchestrator: Orchestrator,
    jobs: Sequence[Job],
    *,
    agents: Iterable[Agent[Any]] = (),
    targets: Mapping[str, Target] = NO_TARGETS,
    clock: Callable[[], float] = time.time,
) -> AsyncGenerator[Scheduler]:
    """Run jobs for the duration of the block, and continue the runs of earlier processes.

    Args:
        orchestrator: runs the agents of the jobs.
        jobs: the jobs; jobs that an earlier process declared and that are missing here are removed.
        agents: further agents that may set jobs in their own sessions.
        targets: the kinds of targets, besides files, by the word before the colon.
        clock: returns the time of day, which may be set.
    """
    require_trio()
    sessions = orchestrator.sessions
    by_name = {it.name: it for it in (*agents, *(job.agent for job in jobs))}
    scheduler = Scheduler(sessions, by_name, targets=targets, clock=clock)
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            door = KeptDoor(
                sessions, by_name, nursery, kinds={SessionKind.JOB_RUN: scheduler.deliver}
            )
            async with scheduler.open(door, jobs):
                await door.resume_sessions(kind=SessionKind.JOB_RUN)
                yield scheduler
            nursery.cancel_scope.cancel(reason="the schedule is closed")
