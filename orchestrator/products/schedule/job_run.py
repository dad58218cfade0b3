"""The run of a job: the request that begins it, and what its labels say of its job."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from orchestrator.agents import Agent, UserMessage
from orchestrator.delegation import SessionRecord
from orchestrator.delegation.events.jobs import JobRecord, JobSpec
from orchestrator.kernel.doors.inbound import InboundRequest
from orchestrator.kernel.doors.session_kinds import KIND
from orchestrator.products.schedule.job import full_name, time_text
from orchestrator.products.schedule.targets import FILE, ORIGIN, SILENT

JOB: Final = "job"
"""The kind of sessions that are runs of jobs, and the label that names the job."""
DUE: Final = "due"
"""The label of a run: for which time it began."""
DELIVER: Final = "deliver"
"""The label of a run: where its replies go, whatever becomes of its job meanwhile."""
SET_BY: Final = "job_session"
"""The label of a run: the session in which its job was set."""
MAY_SCHEDULE: Final = "may_schedule"
"""The label of a run that may set jobs."""
PLATFORM: Final = "schedule"
NO_CHATS: Final = frozenset({FILE, ORIGIN, "webhook"})
"""The kinds of targets that are no platforms of chats."""


def run_request(
    job: JobRecord, at: float, agent: Agent[Any], *, owner: str, labels: Mapping[str, str]
) -> InboundRequest:
    """Return the request that begins the run of a job.

    Args:
        job: the job.
        at: the time for which it begins.
        agent: its agent.
        owner: whose the run is.
        labels: what else is said of it.
    """
    spec = job.spec
    return InboundRequest(
        agent=agent,
        message=UserMessage(spec.goal),
        context=_context(job),
        instructions=_instructions(spec, time_text(at)),
        labels={
            **labels,
            KIND: JOB,
            JOB: spec.id,
            DUE: time_text(at),
            DELIVER: msgspec.json.encode(spec.deliver).decode(),
            SET_BY: job.session,
            **({MAY_SCHEDULE: "true"} if spec.may_schedule else {}),
        },
        owner=owner,
    )


def targets_of(run: SessionRecord) -> tuple[str, ...]:
    """Return where the replies of a run go."""
    return msgspec.json.decode(run.labels[DELIVER], type=tuple[str, ...])


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
