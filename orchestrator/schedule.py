"""Runs on a schedule: jobs, and the scheduler that starts them."""

from orchestrator.products.schedule import *  # noqa: F403 (the names are the product's `__all__`)
from orchestrator.products.schedule import __all__ as __all__  # noqa: PLC0414 (a re-export)
