"""The orchestrator: everything that waits, opens, sends or spawns.

Its names are imported when they are first used: `import orchestrator` costs next to nothing.
"""

import os.path
import sys
from importlib import import_module
from importlib.util import find_spec

# Without `typing`: until `_leave_launch_folder`, only what Python itself has imported is safe.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
        SharedBudgetError,
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
    "SharedBudgetError",
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


def __getattr__(name: str) -> "Any":
    name = _RENAMED.get(name, name)
    if name not in __all__:
        raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
    value = getattr(import_module(f"orchestrator.{_MODULES.get(name, 'errors')}"), name)
    # The next lookup finds it without this function.
    globals()[name] = value
    return value


def _leave_launch_folder() -> None:
    """Let `python -m orchestrator` import nothing from the folder in which it is called.

    Python looks there first, and it may be the workspace of an agent, or the project of a stranger.
    """
    is_launched = sys.argv[:1] == ["-m"] and not sys.flags.safe_path
    modules = zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
    if not is_launched or ("-m", "orchestrator") not in modules:
        return
    ours = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120
    # In our own source tree there is no other place to import us from.
    if os.path.realpath(sys.path[0]) != ours:
        del sys.path[0]


def _check_agents_package() -> None:
    # Another distribution's package `agents` may shadow ours; `delegation` raises a clear error.
    spec = find_spec("agents")
    if spec is None or not spec.origin or not _is_ours(spec.origin):
        import_module("delegation")


def _is_ours(package: str) -> bool:
    with open(package, encoding="utf-8") as source:  # noqa: PTH123
        return "delegation-orchestrator" in source.read()


_leave_launch_folder()
_check_agents_package()
