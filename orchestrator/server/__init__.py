"""Agents behind HTTP: what OpenAI's clients speak, and the tree that is only ours.

A route says in one value what it takes and gives (`operation.py`), so what is served and what
`/openapi.json` says of it are the same.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.server.server import Server, open_server
    from orchestrator.server.state import Settings
    from orchestrator.server.transport.listener import Listening

__all__ = ["Listening", "Server", "Settings", "open_server"]

_MODULES = {
    "Listening": "transport.listener",
    "Server": "server",
    "Settings": "state",
    "open_server": "server",
}


def __getattr__(name: str) -> Any:
    # Found when it is asked for: the parts of this package import each other by name.
    if name not in _MODULES:
        raise AttributeError(f"module 'orchestrator.server' has no attribute {name!r}")
    return getattr(import_module(f"orchestrator.server.{_MODULES[name]}"), name)
