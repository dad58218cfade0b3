"""The orchestrator for programs on asyncio: FastAPI, Django, notebooks."""

from orchestrator.products.asyncio import *  # noqa: F403 (the names are the product's `__all__`)
from orchestrator.products.asyncio import __all__ as __all__  # noqa: PLC0414 (a re-export)
