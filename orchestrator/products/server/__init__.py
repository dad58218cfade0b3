"""Agents over HTTP: OpenAI's protocols, and an API of runs, tasks and sessions.

A route is one value (`operation.py`) with its path, bodies and handler. The routes and
`/openapi.json` are made from the same table (`app.py`), so they cannot differ.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.products.server.server import Server, open_server
    from orchestrator.products.server.state import Settings
    from orchestrator.products.server.transport.listener import Listening

__all__ = ["Listening", "Server", "Settings", "open_server"]

_MODULES = {
    "Listening": "transport.listener",
    "Server": "server",
    "Settings": "state",
    "open_server": "server",
}


def __getattr__(name: str) -> Any:
    # Imported on demand: the modules of this package import each other by name.
    if name not in _MODULES:
        raise AttributeError(f"module 'orchestrator.products.server' has no attribute {name!r}")
    return getattr(import_module(f"orchestrator.products.server.{_MODULES[name]}"), name)
