"""Chat platforms: the gateway, its settings, and the port of a platform."""

from orchestrator.products.chat import *  # noqa: F403 (the names are the product's `__all__`)
from orchestrator.products.chat import __all__ as __all__  # noqa: PLC0414 (a re-export)
