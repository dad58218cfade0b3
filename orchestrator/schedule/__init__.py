"""Runs on a schedule: jobs begin their agents by the clock, and their replies are delivered."""

from orchestrator.schedule.job import Job
from orchestrator.schedule.scheduler import JobAction, Scheduler, open_schedule
from orchestrator.schedule.targets import Delivery, Target

__all__ = ["Delivery", "Job", "JobAction", "Scheduler", "Target", "open_schedule"]
