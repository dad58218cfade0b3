"""Agents over HTTP: the server and its settings."""

from orchestrator.products.server import *  # noqa: F403 (the names are the product's `__all__`)
from orchestrator.products.server import __all__ as __all__  # noqa: PLC0414 (a re-export)
