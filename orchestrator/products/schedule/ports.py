"""The names of schedules that other products may import. Each is imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.products.schedule import (
        CheckedTarget,
        Delivery,
        Job,
        JobEdit,
        Scheduler,
        Target,
    )
    from orchestrator.products.schedule.charges import UnpaidError
    from orchestrator.products.schedule.job import full_name, is_declared, session_of_name
    from orchestrator.products.schedule.targets import NO_TARGETS

__all__ = [
    "NO_TARGETS",
    "CheckedTarget",
    "Delivery",
    "Job",
    "JobEdit",
    "Scheduler",
    "Target",
    "UnpaidError",
    "full_name",
    "is_declared",
    "session_of_name",
]

_MODULES = {
    "CheckedTarget": "orchestrator.products.schedule",
    "Delivery": "orchestrator.products.schedule",
    "Job": "orchestrator.products.schedule",
    "JobEdit": "orchestrator.products.schedule",
    "NO_TARGETS": "orchestrator.products.schedule.targets",
    "Scheduler": "orchestrator.products.schedule",
    "Target": "orchestrator.products.schedule",
    "UnpaidError": "orchestrator.products.schedule.charges",
    "full_name": "orchestrator.products.schedule.job",
    "is_declared": "orchestrator.products.schedule.job",
    "session_of_name": "orchestrator.products.schedule.job",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
