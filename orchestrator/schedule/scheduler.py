"""The scheduler: it begins the runs of jobs when they are due, and delivers their replies.

The run of a job is a session whose id is made of the job and the time, so it begins once, whatever
crashes. The loop asks the ledger which jobs there are, and the rules what of them is due: there is
no queue to lose. It looks again when the next time comes, when a job changes, and at least every
hour, since clocks are set and machines sleep.
"""

import os
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, NoReturn, TypeAlias, assert_never

import attrs
import msgspec
import trio

from agents import Agent, MessageId, UserMessage, raising_one_error
from delegation import (
    Encoded,
    Ending,
    Reply,
    SessionId,
    SessionRecord,
)
from delegation.events import (
    Entry,
    JobOccurred,
    JobPaused,
    JobRemoved,
    JobSet,
)
from delegation.events.jobs import REMEMBERED_RUNS, JobId, JobRecord, JobSpec
from delegation.schedule import Due, due, times_of
from orchestrator.doors.inbound import InboundRequest
from orchestrator.doors.kept import KIND, KeptDoor, is_over
from orchestrator.doors.lifecycle import open_new_session
from orchestrator.errors import ClosedError, UnknownIdError
from orchestrator.event_loop import require_trio
from orchestrator.runtime import Orchestrator
from orchestrator.schedule.job import (
    Job,
    require_names,
    run_of,
    session_of,
    time_text,
)
from orchestrator.schedule.local_zone import local_zone
from orchestrator.schedule.targets import (
    FILE,
    NO_TARGETS,
    ORIGIN,
    SILENT,
    Delivery,
    Target,
    Targets,
)
from orchestrator.services import Services

JOB: Final = "job"
"""The kind of sessions that are runs of jobs, and the label that names the job."""
DUE: Final = "due"
DELIVER: Final = "deliver"
SET_BY: Final = "job_session"
"""The labels of a run: for which time it began, where its replies go, whose the job is."""
DECLARED: Final = "declared_job"
"""The label of a session that a job of a program has for itself."""
LONGEST_SLEEP: Final = 3600.0
PLATFORM: Final = "schedule"
NO_CHATS: Final = frozenset({FILE, ORIGIN, "webhook"})
"""The kinds of targets that are no platforms of chats."""
JobAction: TypeAlias = Literal["run", "pause", "resume", "remove"]
_JOB_FACTS: Final = (JobSet, JobPaused, JobRemoved)


class Scheduler:
    """The jobs of one journal. `open_schedule` opens it."""

    def __init__(
        self,
        services: Services,
        agents: Mapping[str, Agent[Any]],
        *,
        targets: Mapping[str, Target] = NO_TARGETS,
        clock: Callable[[], float] = time.time,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Know jobs; `run_forever` begins their runs.

        Args:
            services: the parts of the orchestrator.
            agents: the agents, by their names.
            targets: where replies can go besides files and the session that set the job.
            clock: the time of day, which may be set.
            environ: the environment, which may name the time zone.
        """
        self._services = services
        self._agents = agents
        self._targets = Targets(services, {ORIGIN: self._deliver_to_origin, **targets})
        self._clock = clock
        self._environ = environ
        self._changed = trio.Event()
        self._given_door: KeptDoor | None = None

    @property
    def _door(self) -> KeptDoor:
        assert self._given_door is not None, "it was not given to `use_door`"
        return self._given_door

    def use_door(self, door: KeptDoor) -> None:
        """Open the sessions of runs by a door, which pushes the replies of `JOB` to `deliver`."""
        self._given_door = door

    def jobs(self) -> Iterator[JobRecord]:
        """Yield all jobs that were set and not removed."""
        for session in self._services.book.ledger.scheduled.values():
            yield from session.jobs.values()

    def find(self, job: str) -> JobRecord:
        """Return a job by its name.

        Raises:
            UnknownIdError: there is none, or several sessions have one of that name.
        """
        return find_job(self.jobs(), job)

    async def declare(self, jobs: Sequence[Job]) -> None:
        """Set the jobs of a program, and remove those that it had before and has no more.

        A job that is as it was stays as it is: paused, or due since the last process ended.

        Raises:
            DefinitionError: one of them cannot be as it is written; nothing was set then.
        """
        await trio.lowlevel.checkpoint()
        now = self._clock()
        zone = local_zone(self._environ)
        specs: list[JobSpec] = []
        for id_, job in require_names(jobs).items():
            # A session that has no job any more may have been evicted.
            await self._services.book.cache.load(session_of(id_))
            earlier = self._declared(id_)
            # A job without a zone keeps the one that it has got.
            kept = zone if earlier is None else earlier.spec.zone
            spec = job.spec(zone=kept, now=now)
            self._require_targets(spec)
            specs.append(spec)
        by_id = {spec.id for spec in specs}
        for record in [*self.jobs()]:
            if self._is_declared(record) and record.spec.id not in by_id:
                self._post(JobRemoved(record.session, record.spec.id))
        for spec, job in zip(specs, jobs, strict=True):
            earlier = self._declared(spec.id)
            if earlier is not None and earlier.spec == spec:
                continue
            if spec.is_once and due_once(spec) <= now:
                continue  # it is over
            session = self._own_session(spec, job.agent)
            self._post(JobSet(session.id, spec, now))

    def set(self, session: SessionId, spec: JobSpec) -> None:
        """Set a job in a session, or set it anew."""
        self._require_targets(spec)
        self._post(JobSet(session, spec, self._clock()))

    def pause(self, job: JobRecord, *, paused: bool) -> None:
        """Pause a job, or let it go on; what would have been due meanwhile is not caught up."""
        if job.paused is not paused:
            self._post(JobPaused(job.session, job.spec.id, paused, self._clock()))

    def remove(self, job: JobRecord) -> None:
        """Remove a job. What runs of it ends in peace."""
        self._post(JobRemoved(job.session, job.spec.id))

    def run_now(self, job: JobRecord) -> SessionId:
        """Begin a run of a job beside its times, and return its session."""
        return self._begin(job, self._clock(), by_hand=True)

    def act(self, job: str, action: JobAction) -> str:
        """Do something with a job, and return the run that it began, if any.

        Raises:
            UnknownIdError: there is no such job.
        """
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
        book = self._services.book

        def wake(_entry: Entry, _encoded: Encoded) -> None:
            self._changed.set()

        with book.subscribers.subscribe_kinds(wake, _JOB_FACTS):
            while True:
                if book.admission.is_stopping:
                    await book.admission.wait_running()
                self._changed = trio.Event()
                upcoming = await self._begin_due()
                seconds = min(LONGEST_SLEEP, max(0.0, upcoming - self._clock()))
                with trio.move_on_after(seconds):
                    await self._changed.wait()

    async def _begin_due(self) -> float:
        """Begin the runs that are due, and return when the next one is."""
        now = self._clock()
        upcoming = now + LONGEST_SLEEP
        for job in [*self.jobs()]:
            found = due(job, now)
            if found.next is not None:
                upcoming = min(upcoming, found.next)
            if found.at is None:
                continue
            # A crash may have left the session of the run, with its message or without.
            await self._services.book.cache.load(run_of(job, found.at))
            if self._is_unchanged(job):
                self._decide(job, found)
        await trio.lowlevel.checkpoint()
        return upcoming

    def _is_unchanged(self, job: JobRecord) -> bool:
        session = self._services.book.ledger.sessions.get(job.session)
        return session is not None and session.jobs.get(job.spec.id) is job

    def _decide(self, job: JobRecord, found: Due) -> None:
        """Begin a run that is due, or record why none begins."""
        assert found.at is not None, "a time is due"
        if why := self._reason_to_skip(job, is_too_late=found.is_too_late):
            fact = self._occurred(job, found.at, missed=found.missed)
            self._post(attrs.evolve(fact, skipped=why))
        else:
            self._begin(job, found.at, missed=found.missed)

    async def deliver(self, session: SessionRecord, reply: Reply) -> None:
        """Deliver a reply of a run to the targets of its job.

        An answer that says that there is nothing to tell is not delivered; a failure always is.
        """
        targets = msgspec.json.decode(session.labels[DELIVER], type=tuple[str, ...])
        is_silent = reply.outcome.succeeded and reply.text.strip() == SILENT
        if is_silent or not targets:
            await trio.lowlevel.checkpoint()
            return
        text = reply.text
        if not reply.outcome.succeeded:
            text = f"Job {session.labels[JOB]} did not succeed. {text}"
            if await self._fails_in_a_row(session):
                text += "\nIt is the third time in a row that it did not succeed."
        await self._targets.deliver(
            Delivery(
                address="",
                job=JobId(session.labels[JOB]),
                due=session.labels[DUE],
                text=text,
                session=session,
                reply=reply,
            ),
            targets,
        )

    def _reason_to_skip(self, job: JobRecord, *, is_too_late: bool) -> str:
        if is_too_late:
            return "no process ran at its time, and it is too late to catch up"
        if job.spec.agent not in self._agents:
            return f"there is no agent {job.spec.agent!r} here"
        last = job.runs[-1] if job.runs else None
        running = self._services.book.ledger.sessions.get(last) if last else None
        if running is not None and not is_over(running):
            return f"the run before it is still under way: {last}"
        return ""

    def _begin(
        self, job: JobRecord, at: float, *, missed: int = 0, by_hand: bool = False
    ) -> SessionId:
        """Open the session of a run, in one step with the fact that says so."""
        self._services.book.admission.require_running()
        spec = job.spec
        fact = self._occurred(job, at, missed=missed, by_hand=by_hand)
        agent = self._agents.get(spec.agent)
        if agent is None:
            raise UnknownIdError(f"there is no agent {spec.agent!r} here")
        ledger = self._services.book.ledger
        request = InboundRequest(
            agent=agent,
            message=UserMessage(spec.goal),
            context=_context(job),
            instructions=_instructions(spec, time_text(at)),
            labels={
                KIND: JOB,
                JOB: spec.id,
                DUE: time_text(at),
                DELIVER: msgspec.json.encode(spec.deliver).decode(),
                SET_BY: job.session,
            },
            owner=ledger.sessions[job.session].owner,
        )
        run = ledger.sessions.get(fact.run)
        if run is None:
            self._door.open_background(request, fact.run)
        elif not run.turns and not run.mail:
            self._door.receive(run, request)
        self._post(fact)
        return fact.run

    def _occurred(
        self, job: JobRecord, at: float, *, missed: int = 0, by_hand: bool = False
    ) -> JobOccurred:
        return JobOccurred(
            job.session,
            job.spec.id,
            at,
            run_of(job, at),
            missed=missed,
            by_hand=by_hand,
        )

    def _post(self, fact: JobSet | JobPaused | JobRemoved | JobOccurred) -> None:
        self._services.book.post(fact)

    def _require_targets(self, spec: JobSpec) -> None:
        self._targets.require(spec.id, spec.deliver)

    def _declared(self, job: JobId) -> JobRecord | None:
        session = self._services.book.ledger.sessions.get(session_of(job))
        return None if session is None else session.jobs.get(job)

    def _is_declared(self, job: JobRecord) -> bool:
        return job.session == session_of(job.spec.id)

    def _own_session(self, spec: JobSpec, agent: Agent[Any]) -> SessionRecord:
        """Return the session that a declared job has for itself."""
        id_ = session_of(spec.id)
        ledger = self._services.book.ledger
        if id_ in ledger.sessions:
            return ledger.sessions[id_]
        session = open_new_session(
            self._services, agent, id_, labels={DECLARED: spec.id}
        )
        self._services.registry.unregister_session(session.id)
        return session

    async def _fails_in_a_row(self, session: SessionRecord) -> bool:
        """Return whether the last runs of a job have all failed."""
        book = self._services.book
        owner = book.ledger.sessions.get(SessionId(session.labels[SET_BY]))
        job = None if owner is None else owner.jobs.get(JobId(session.labels[JOB]))
        runs = () if job is None else job.runs
        failures = 0
        for run in runs:
            await book.cache.load(run)
            record = book.ledger.sessions.get(run)
            outcome = None if record is None else record.last_outcome
            failures += outcome is not None and outcome.ending is not Ending.SUCCEEDED
        return failures == REMEMBERED_RUNS  # noqa: ASYNC910 (its caller waits next)

    async def _deliver_to_origin(self, delivery: Delivery) -> str:
        """Send a reply to the session in which its job was set: it wakes a turn there."""
        await trio.lowlevel.checkpoint()
        origin = SessionId(delivery.session.labels[SET_BY])
        try:
            session = await self._door.find(origin)
        except UnknownIdError:
            return "the session is gone"
        agent = self._agents.get(session.root.agent)
        if agent is None:
            raise UnknownIdError(f"there is no agent {session.root.agent!r} here")
        id_ = MessageId(f"m_{delivery.session.id}_{delivery.reply.turn}")
        text = f"[Job {delivery.job}, due {delivery.due}]\n{delivery.text}"
        try:
            self._door.receive(
                session,
                InboundRequest(agent=agent, message=UserMessage(text, id=id_)),
            )
        except ClosedError:
            return "the session is closed"
        return id_


def find_job(jobs: Iterable[JobRecord], name: str) -> JobRecord:
    """Return the job of a name.

    Raises:
        UnknownIdError: there is none, or several sessions have one of that name.
    """
    found = [it for it in jobs if name in {it.spec.id, full_name(it)}]
    if not found:
        raise UnknownIdError(f"there is no job {name!r}")
    if len(found) > 1:
        names = ", ".join(map(full_name, found))
        raise UnknownIdError(f"several jobs are called {name!r}; say which: {names}")
    return found[0]


def full_name(job: JobRecord) -> str:
    """Return a name of a job that no other has."""
    is_declared = job.session == session_of(job.spec.id)
    return job.spec.id if is_declared else f"{job.session}:{job.spec.id}"


def due_once(spec: JobSpec) -> float:
    """Return the moment of a job that is due once."""
    return times_of(spec.schedule, spec.zone, 0.0).next_after(0.0) or 0.0


def _instructions(spec: JobSpec, due_at: str) -> str:
    return (
        f"A schedule has begun this run: job {spec.id}, due {due_at}. No person waits for it."
        " Your answer is delivered as it is. If there is nothing worth telling, answer"
        f" {SILENT} and nothing else."
    )


def _context(job: JobRecord) -> Mapping[str, str]:
    """Return the variables that tools read: the first chat that the answer goes to."""
    context = {"platform": PLATFORM, "source": PLATFORM, "session_key": full_name(job)}
    for target in job.spec.deliver:
        kind, _, address = target.partition(":")
        if kind in NO_CHATS:
            continue
        chat, _, thread = address.partition(":")
        context["cron_auto_deliver_platform"] = kind
        context["cron_auto_deliver_chat_id"] = chat
        if thread:
            context["cron_auto_deliver_thread_id"] = thread
        break
    return context


@asynccontextmanager
async def open_schedule(
    orchestrator: Orchestrator,
    jobs: Sequence[Job],
    *,
    targets: Mapping[str, Target] = NO_TARGETS,
    clock: Callable[[], float] = time.time,
) -> AsyncGenerator[Scheduler]:
    """Run jobs as long as the block lasts, and go on with the runs of earlier processes.

    Args:
        orchestrator: runs their agents.
        jobs: the jobs; those that an earlier process has set and that are not here are removed.
        targets: where replies can go besides files, by the word before the colon.
        clock: the time of day, which may be set.
    """
    require_trio()
    services = orchestrator.services
    agents = {job.agent.name: job.agent for job in jobs}
    scheduler = Scheduler(services, agents, targets=targets, clock=clock)
    await scheduler.declare(jobs)
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            door = KeptDoor(services, agents, nursery, kinds={JOB: scheduler.deliver})
            scheduler.use_door(door)
            await door.resume_sessions(kind=JOB)
            nursery.start_soon(scheduler.run_forever)
            try:
                yield scheduler
            finally:
                nursery.cancel_scope.cancel(reason="the schedule is closed")
