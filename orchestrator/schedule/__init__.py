"""Runs on a schedule: jobs begin their agents by the clock, and their replies are delivered."""

from orchestrator.engine.scheduler_slot import JobAction, JobEdit
from orchestrator.schedule.job import Job
from orchestrator.schedule.scheduler import Scheduler, open_schedule, require_jobs
from orchestrator.schedule.targets import CheckedTarget, Delivery, Target

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
