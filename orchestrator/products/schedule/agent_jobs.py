"""The jobs that the agent of one session sets: the port `SessionJobs` of the tool `job`.

A run of a job has no conversation. The jobs that it sets are kept in the session of its own job, so
that all runs of that job see them, and their answers go to the targets of that job.
"""

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Final

import trio
from msgspec.structs import replace

from orchestrator.agents import Budget, CallId, ToolError, UserMessage
from orchestrator.delegation import Grant, SessionId, SessionRecord
from orchestrator.delegation.events import JobRemoved, JobSet
from orchestrator.delegation.events.jobs import JobId, JobRecord, JobSpec
from orchestrator.ports.journals import Facts
from orchestrator.ports.reads import ReadApi
from orchestrator.products.schedule.job import is_declared, session_of
from orchestrator.products.schedule.job_run import ANSWER_PREFIX, JobRunState
from orchestrator.products.schedule.targets import ORIGIN

if TYPE_CHECKING:
    from orchestrator.products.schedule.scheduler import Scheduler

MOST_JOBS: Final = 20
"""The most jobs of a session."""
MOST_TOKENS: Final = 3_000_000
"""The most tokens that all runs of a job may use, from the time when it was set."""


def budget_of(job: JobRecord) -> tuple[Grant, ...]:
    """Return the budget that all runs of a job share, if an agent has set the job."""
    if is_declared(job):
        return ()
    budget = Budget(tokens=MOST_TOKENS, name=f"of job {job.spec.id}")
    return (Grant.standing(f"job:{job.session}:{job.spec.id}:{job.set_at!r}", budget),)


class AgentJobs:
    """The jobs that the agent of one session has set."""

    def __init__(
        self,
        scheduler: "Scheduler",
        facts: Facts,
        read: ReadApi,
        session: SessionRecord,
        *,
        prefix: str,
        zone: str,
        is_reachable: bool,
        resumed: Container[CallId],
    ) -> None:
        """Manage the jobs of a session; `resumed` are the calls that a crash has interrupted."""
        self._scheduler = scheduler
        self._facts = facts
        self._read = read
        self._session = session
        self._prefix = prefix
        self.zone: Final = zone
        self._is_reachable = is_reachable
        self._resumed = resumed

    @property
    def _kept_in(self) -> SessionId:
        """The session that keeps the jobs; for a run of a job, the session of that job."""
        return self._session.state(JobRunState).session or self._session.id

    @property
    def agent(self) -> str:
        return self._session.root.agent

    @property
    def deliver(self) -> tuple[str, ...]:
        run = self._session.state(JobRunState)
        return run.deliver if run.session else (ORIGIN,)

    @property
    def is_begun_by_job(self) -> bool:
        messages = reversed(self._session.root.transcript)
        last = next((it for it in messages if isinstance(it, UserMessage)), None)
        return last is not None and str(last.id).startswith(ANSWER_PREFIX)

    def now(self) -> float:
        return self._scheduler.now()

    async def jobs(self) -> Sequence[JobRecord]:
        await trio.lowlevel.checkpoint()
        await self._facts.load(self._kept_in)
        session = self._read.records.sessions.get(self._kept_in)
        found = () if session is None else session.jobs.values()
        return [it for it in found if not is_declared(it)]

    def require_settable(self) -> None:
        run = self._session.state(JobRunState)
        if run.session and not run.may_schedule:
            raise ToolError(
                "the job was not set: a schedule started this run, and its job does not allow its"
                " runs to set jobs; do the work now"
            )
        if not self._is_reachable:
            raise ToolError(
                "the job was not set: this session cannot receive results after its turn has ended;"
                " do the work now, or tell the user to ask in a conversation that can receive"
                " results later"
            )
        if not self._scheduler.has_agent(self.agent):
            raise ToolError(
                f"the job was not set: the process that begins jobs has no agent {self.agent!r}"
            )

    async def set(self, spec: JobSpec, call: str) -> JobRecord | None:
        has_set = self._is_resumed(call) and await self._has_set(call)
        known = {it.spec.id: it for it in await self.jobs()}
        earlier = known.get(spec.id)
        if has_set or (
            earlier is not None and earlier.spec == replace(spec, until=earlier.spec.until)
        ):
            return earlier
        if earlier is None and len(known) >= MOST_JOBS:
            raise ToolError(
                f"this session already has {MOST_JOBS} jobs, the most that it may have: remove one,"
                " or change one by setting it again under its name"
            )
        if session_of(spec.id) == self._kept_in:
            raise ToolError(
                f"{spec.id!r} is the job of this run, and the program declares it: use another name"
            )
        session = self._read.records.sessions.get(self._kept_in)
        if session is None or session.closed:
            raise ToolError("the job was not set: its session was closed")
        return self._scheduler.set(session.id, spec, call=call)

    async def remove(self, job: JobId, call: str) -> None:
        for it in await self.jobs():
            if it.spec.id == job:
                self._scheduler.remove(it)
                return
        if self._is_resumed(call) and await self._has_removed(job):
            return
        names = ", ".join(it.spec.id for it in await self.jobs()) or "none"
        raise ToolError(f"this session has no job {job!r}; it has: {names}")

    def _is_resumed(self, call: str) -> bool:
        return CallId(call.removeprefix(self._prefix)) in self._resumed

    async def _has_set(self, call: str) -> bool:
        entries = await self._read.entries(self._kept_in)
        facts = [it.event for it in entries if isinstance(it.event, JobSet)]
        return any(it.call == call for it in facts)

    async def _has_removed(self, job: JobId) -> bool:
        entries = await self._read.entries(self._kept_in)
        facts = [it.event for it in entries if isinstance(it.event, JobRemoved)]
        return any(it.job == job for it in facts)
