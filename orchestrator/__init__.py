"""The house: everything that waits, opens, sends or spawns.

Its names are imported when they are first used: `import orchestrator` costs next to nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.budgets import budget
    from orchestrator.doors.one_shot import Run
    from orchestrator.doors.session import Session
    from orchestrator.errors import (
        ClosedError,
        JournalError,
        JournalInUseError,
        OrchestratorError,
        RunFailedError,
        SessionOpenError,
        UnknownIdError,
    )
    from orchestrator.listening import Heard
    from orchestrator.runtime import Orchestrator, open_orchestrator
    from orchestrator.storage.journal import Journal
    from orchestrator.storage.memory import MemoryJournal

__all__ = [
    "ClosedError",
    "Heard",
    "Journal",
    "JournalError",
    "JournalInUseError",
    "MemoryJournal",
    "Orchestrator",
    "OrchestratorError",
    "Run",
    "RunFailedError",
    "Session",
    "SessionOpenError",
    "UnknownIdError",
    "budget",
    "open_orchestrator",
]

_HOMES = {
    "Heard": "listening",
    "Journal": "storage.journal",
    "MemoryJournal": "storage.memory",
    "Orchestrator": "runtime",
    "Run": "doors.one_shot",
    "Session": "doors.session",
    "budget": "budgets",
    "open_orchestrator": "runtime",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
    value = getattr(import_module(f"orchestrator.{_HOMES.get(name, 'errors')}"), name)
    # Found by itself from now on.
    globals()[name] = value
    return value


def _look_at_agents() -> None:
    # Another distribution's package of that name may lie over ours; the rules say so clearly.
    spec = find_spec("agents")
    if (
        spec is None
        or "delegation-orchestrator" not in Path(spec.origin or "").read_text()
    ):
        import_module("delegation")


_look_at_agents()
