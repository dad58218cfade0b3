"""The orchestrator: everything that waits, opens, sends or spawns.

Its names are imported when they are first used: `import orchestrator` costs next to nothing.
"""

import os.path
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.budget_scope import budget
    from orchestrator.doors.one_shot import Run
    from orchestrator.doors.session import Session
    from orchestrator.engine.model_events import TaskModelEvent
    from orchestrator.errors import (
        ClosedError,
        FanOutFailedError,
        JournalError,
        JournalInUseError,
        NotInterruptedError,
        OrchestratorError,
        RunFailedError,
        SessionOpenError,
        TaskFailedError,
        UnknownIdError,
    )
    from orchestrator.journal.journal import Journal
    from orchestrator.journal.memory import MemoryJournal
    from orchestrator.pipelines.child import Child
    from orchestrator.pipelines.combinators.choose import Candidates, best, route, vote
    from orchestrator.pipelines.combinators.fan_out import (
        FanOut,
        map_each,
        map_reduce,
        parallel,
        race,
    )
    from orchestrator.pipelines.combinators.retry import Review, fallback, refine, retry
    from orchestrator.pipelines.combinators.sequence import sequence
    from orchestrator.pipelines.gather import Settled
    from orchestrator.pipelines.runner import delegate, detach
    from orchestrator.runtime import Orchestrator, open_orchestrator

__all__ = [
    "Candidates",
    "Child",
    "ClosedError",
    "FanOut",
    "FanOutFailedError",
    "Journal",
    "JournalError",
    "JournalInUseError",
    "MemoryJournal",
    "NotInterruptedError",
    "Orchestrator",
    "OrchestratorError",
    "Review",
    "Run",
    "RunFailedError",
    "Session",
    "SessionOpenError",
    "Settled",
    "TaskFailedError",
    "TaskModelEvent",
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

# Without pathlib, which takes longer to import than all else here.
__path__.append(os.path.join(os.path.dirname(__file__), "old_paths"))  # noqa: PTH118, PTH120

_MODULES = {
    "Candidates": "pipelines.combinators.choose",
    "Child": "pipelines.child",
    "FanOut": "pipelines.combinators.fan_out",
    "TaskModelEvent": "engine.model_events",
    "Journal": "journal.journal",
    "MemoryJournal": "journal.memory",
    "Orchestrator": "runtime",
    "Review": "pipelines.combinators.retry",
    "Run": "doors.one_shot",
    "Session": "doors.session",
    "Settled": "pipelines.gather",
    "best": "pipelines.combinators.choose",
    "budget": "budget_scope",
    "delegate": "pipelines.runner",
    "detach": "pipelines.runner",
    "fallback": "pipelines.combinators.retry",
    "map_each": "pipelines.combinators.fan_out",
    "map_reduce": "pipelines.combinators.fan_out",
    "open_orchestrator": "runtime",
    "parallel": "pipelines.combinators.fan_out",
    "race": "pipelines.combinators.fan_out",
    "refine": "pipelines.combinators.retry",
    "retry": "pipelines.combinators.retry",
    "route": "pipelines.combinators.choose",
    "sequence": "pipelines.combinators.sequence",
    "vote": "pipelines.combinators.choose",
}


_RENAMED = {"Heard": "TaskModelEvent"}
"""Names of version 0.1, which keep working."""


def __getattr__(name: str) -> Any:
    name = _RENAMED.get(name, name)
    if name not in __all__:
        raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
    value = getattr(import_module(f"orchestrator.{_MODULES.get(name, 'errors')}"), name)
    # The next lookup finds it without this function.
    globals()[name] = value
    return value


def _check_agents_package() -> None:
    # Another distribution's package `agents` may shadow ours; `delegation` raises a clear error.
    spec = find_spec("agents")
    if spec is None or not spec.origin or not _is_ours(spec.origin):
        import_module("delegation")


def _is_ours(package: str) -> bool:
    with open(package, encoding="utf-8") as source:  # noqa: PTH123
        return "delegation-orchestrator" in source.read()


_check_agents_package()
