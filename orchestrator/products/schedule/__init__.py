"""Runs on a schedule: jobs start their agents by the clock, and their replies are delivered.

A job belongs to a session. Its times follow from its schedule and its time zone
(`delegation/schedule.py`). The id of a scheduled run consists of the job and the time, so each time
starts one run. The scheduler reads the jobs from the ledger and acts by the wall clock, while facts
use a steady clock. Each journal of a server or a gateway has one scheduler. Agents
(`delegation/job_tool.py`), the control socket and HTTP find it in a slot of the engine, so a job
can be set only if a scheduler starts it. A job of a program has a session without an agent.
"""

from orchestrator.ports.sessions import JobAction, JobEdit
from orchestrator.products.schedule.job import Job
from orchestrator.products.schedule.scheduler import Scheduler, open_schedule, require_jobs
from orchestrator.products.schedule.targets import CheckedTarget, Delivery, Target

__all__ = [
    "CheckedTarget",
    "Delivery",
    "Job",
    "JobAction",
    "JobEdit",
    "Scheduler",
    "Target",
    "open_schedule",
    "require_jobs",
]
