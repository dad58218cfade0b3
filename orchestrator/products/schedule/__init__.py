"""Runs on a schedule: jobs begin their agents by the clock, and their replies are delivered."""

from orchestrator.kernel.engine.scheduler_slot import JobAction, JobEdit
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
