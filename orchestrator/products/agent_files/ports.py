"""The names of agent files that other products may import. Each is imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.products.agent_files.job_entry import JobEntry

__all__ = ["JobEntry"]

_MODULES = {"JobEntry": "orchestrator.products.agent_files.job_entry"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
