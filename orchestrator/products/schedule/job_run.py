"""The run of a job: the request that begins it, and the state that describes its job."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from orchestrator.agents import Agent, UserMessage
from orchestrator.delegation import SessionId
from orchestrator.delegation.events.jobs import JobId, JobRecord, JobSpec
from orchestrator.delegation.session_context import door_context
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import SessionState
from orchestrator.ports.sessions import InboundRequest
from orchestrator.products.schedule.job import full_name, time_text
from orchestrator.products.schedule.targets import FILE, ORIGIN, SILENT

PLATFORM: Final = "schedule"
ANSWER_PREFIX: Final = "m_r_"
"""The ids of messages with the answers of jobs begin with it: `m_`, and the session of the run."""
NO_CHATS: Final = frozenset({FILE, ORIGIN, "webhook"})
"""The kinds of targets that are not chat platforms."""


class JobRunState(SessionState, frozen=True):
    """The job of a run, at the time when the run began."""

    NAME: ClassVar[str] = "job_run"
    job: JobId = JobId("")
    session: SessionId = SessionId("")
    """The session that set the job; empty in a session that is not a run of a job."""
    due: str = ""
    """The time at which the run was due."""
    deliver: tuple[str, ...] = ()
    """The targets of its replies, even if the job is changed or removed meanwhile."""
    may_schedule: bool = False
    """Whether the run may set jobs."""


def run_request(
    job: JobRecord,
    at: float,
    agent: Agent[Any],
    *,
    owner: str,
    states: tuple[SessionState, ...] = (),
) -> InboundRequest:
    """Return the request that begins the run of a job."""
    spec = job.spec
    return InboundRequest(
        agent=agent,
        message=UserMessage(spec.goal),
        context=_context(job),
        instructions=_instructions(spec, time_text(at)),
        kind=SessionKind.JOB_RUN,
        states=(
            *states,
            JobRunState(
                job=spec.id,
                session=job.session,
                due=time_text(at),
                deliver=spec.deliver,
                may_schedule=spec.may_schedule,
            ),
        ),
        owner=owner,
    )


def _instructions(spec: JobSpec, due_at: str) -> str:
    return (
        f"A schedule has begun this run: job {spec.id}, due {due_at}. No person waits for it."
        " Your answer is delivered as it is. If there is nothing worth telling, answer"
        f" {SILENT} and nothing else."
    )


def _context(job: JobRecord) -> Mapping[str, str]:
    """Return the variables for tools: the first chat among the targets."""
    context = door_context(platform=PLATFORM, source=PLATFORM, session_key=full_name(job))
    for target in job.spec.deliver:
        kind, _, address = target.partition(":")
        if kind in NO_CHATS:
            continue
        chat, _, thread = address.partition(":")
        context["cron_auto_deliver_platform"] = kind
        context["cron_auto_deliver_chat_id"] = chat
        context["cron_auto_deliver_thread_id"] = thread
        break
    return context
