"""The house: everything that waits, opens, sends or spawns.

Its names are imported when they are first used: `import orchestrator` costs next to nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.budgets import budget
    from orchestrator.children import Child
    from orchestrator.doors.one_shot import Run
    from orchestrator.doors.session import Session
    from orchestrator.errors import (
        ClosedError,
        FanOutFailedError,
        JournalError,
        JournalInUseError,
        OrchestratorError,
        RunFailedError,
        SessionOpenError,
        TaskFailedError,
        UnknownIdError,
    )
    from orchestrator.listening import Heard
    from orchestrator.pipelines.choosing import Candidates, best, route, vote
    from orchestrator.pipelines.fan_out import FanOut, map_each, parallel, race
    from orchestrator.pipelines.gathering import Settled
    from orchestrator.pipelines.handing import delegate, detach
    from orchestrator.pipelines.reducing import map_reduce
    from orchestrator.pipelines.sequencing import sequence
    from orchestrator.pipelines.trying import Review, fallback, refine, retry
    from orchestrator.runtime import Orchestrator, open_orchestrator
    from orchestrator.storage.journal import Journal
    from orchestrator.storage.memory import MemoryJournal

__all__ = [
    "Candidates",
    "Child",
    "ClosedError",
    "FanOut",
    "FanOutFailedError",
    "Heard",
    "Journal",
    "JournalError",
    "JournalInUseError",
    "MemoryJournal",
    "Orchestrator",
    "OrchestratorError",
    "Review",
    "Run",
    "RunFailedError",
    "Session",
    "SessionOpenError",
    "Settled",
    "TaskFailedError",
    "UnknownIdError",
    "best",
    "budget",
    "delegate",
    "detach",
    "fallback",
    "map_each",
    "map_reduce",
    "open_orchestrator",
    "parallel",
    "race",
    "refine",
    "retry",
    "route",
    "sequence",
    "vote",
]

_HOMES = {
    "Candidates": "pipelines.choosing",
    "Child": "children",
    "FanOut": "pipelines.fan_out",
    "Heard": "listening",
    "Journal": "storage.journal",
    "MemoryJournal": "storage.memory",
    "Orchestrator": "runtime",
    "Review": "pipelines.trying",
    "Run": "doors.one_shot",
    "Session": "doors.session",
    "Settled": "pipelines.gathering",
    "best": "pipelines.choosing",
    "budget": "budgets",
    "delegate": "pipelines.handing",
    "detach": "pipelines.handing",
    "fallback": "pipelines.trying",
    "map_each": "pipelines.fan_out",
    "map_reduce": "pipelines.reducing",
    "open_orchestrator": "runtime",
    "parallel": "pipelines.fan_out",
    "race": "pipelines.fan_out",
    "refine": "pipelines.trying",
    "retry": "pipelines.trying",
    "route": "pipelines.choosing",
    "sequence": "pipelines.sequencing",
    "vote": "pipelines.choosing",
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
