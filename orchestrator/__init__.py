"""The library: `from orchestrator import Agent, tool`.

Its names form five groups, and each group is a page of the API reference:

- agents: an agent, its tools, its limits and its approval rules (`Agent`, `tool`, `confirm`);
- models: the model port, its settings, and the messages of a transcript (`Model`, `Usage`);
- pipelines: agents that are programs, and their combinators (`agent`, `delegate`, `sequence`);
- runs: the orchestrator, its sessions, stream events and trees (`open_orchestrator`, `run_sync`);
- errors: every error that a program can meet (`OrchestratorError`, `AgentError`).

The modules beside it are public, too: `models`, `tools`, `journals`, `history`, `evaluation`,
`simulation`, `schedule`, `chat`, `server`, `control`, `workers`, `session_context`, `asyncio` and
`testing`.
Each name is imported when it is first used: `import orchestrator` costs next to nothing.
"""

import os.path
import sys
from importlib import import_module

# Without `typing`: until `_leave_launch_folder`, only modules that Python itself has imported are
# safe.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.agents import (
        Agent,
        AgentError,
        AssistantMessage,
        Budget,
        CallKey,
        Compaction,
        DefinitionError,
        Failure,
        Hooks,
        InputError,
        LimitExceededError,
        Limits,
        Message,
        Model,
        ModelError,
        ModelSettings,
        OutputError,
        Part,
        Patience,
        Pipeline,
        Sandbox,
        ScriptedModel,
        TaskContext,
        Tool,
        ToolCall,
        ToolError,
        ToolMessage,
        Transcript,
        Usage,
        UserMessage,
        agent,
        allow,
        confirm,
        deny,
        tool,
    )
    from orchestrator.composition import open_orchestrator
    from orchestrator.delegation import (
        Cause,
        Ending,
        Mode,
        Outcome,
        Receipt,
        Reply,
        Rules,
        SessionId,
        Status,
        TaskId,
        Tree,
        usd,
    )
    from orchestrator.kernel.budget_scope import budget
    from orchestrator.kernel.doors.one_shot import Run
    from orchestrator.kernel.doors.run_events import (
        ApprovalNeeded,
        ModelRetried,
        ReasoningWritten,
        RunEvent,
        TaskDelegated,
        TaskEnded,
        TextReplaced,
        TextWritten,
        ToolCalled,
        ToolReturned,
    )
    from orchestrator.kernel.doors.session import Session
    from orchestrator.kernel.doors.streamed_run import StreamedRun
    from orchestrator.kernel.errors import (
        ClosedError,
        EndedError,
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
        WrongLoopError,
    )
    from orchestrator.kernel.journal.memory import MemoryJournal
    from orchestrator.kernel.orchestrator import Orchestrator
    from orchestrator.kernel.pipelines.child import Child
    from orchestrator.kernel.pipelines.combinators.choose import Candidates, best, route, vote
    from orchestrator.kernel.pipelines.combinators.fan_out import (
        FanOut,
        map_each,
        map_reduce,
        parallel,
        race,
    )
    from orchestrator.kernel.pipelines.combinators.retry import Review, fallback, refine, retry
    from orchestrator.kernel.pipelines.combinators.sequence import sequence
    from orchestrator.kernel.pipelines.delegate import delegate, detach
    from orchestrator.kernel.pipelines.gather import Settled
    from orchestrator.kernel.settings import Machine, Models, Workers
    from orchestrator.products.agent_files.load import load_agents
    from orchestrator.synchronous import run_sync

# Agents.
__all__ = ["Agent", "Budget", "CallKey", "Compaction", "Hooks", "Limits", "Patience", "Sandbox"]
__all__ += ["TaskContext", "Tool", "allow", "confirm", "deny", "load_agents", "tool"]
# Models.
__all__ += ["AssistantMessage", "Message", "Model", "ModelSettings", "Part", "ScriptedModel"]
__all__ += ["ToolCall", "ToolMessage", "Transcript", "Usage", "UserMessage"]
# Pipelines.
__all__ += ["Candidates", "Child", "FanOut", "Pipeline", "Review", "Settled", "agent", "best"]
__all__ += ["delegate", "detach", "fallback", "map_each", "map_reduce", "parallel", "race"]
__all__ += ["refine", "retry", "route", "sequence", "vote"]
# Runs.
__all__ += ["ApprovalNeeded", "Cause", "Ending", "Machine", "MemoryJournal", "Mode", "ModelRetried"]
__all__ += ["Models", "Orchestrator", "Outcome", "ReasoningWritten", "Receipt", "Reply", "Rules"]
__all__ += ["Run", "RunEvent", "Session", "SessionId", "Status", "StreamedRun", "TaskDelegated"]
__all__ += ["TaskEnded", "TaskId", "TextReplaced", "TextWritten", "ToolCalled", "ToolReturned"]
__all__ += ["Tree", "Workers", "budget", "open_orchestrator", "run_sync", "usd"]
# Errors.
__all__ += ["AgentError", "ClosedError", "DefinitionError", "EndedError", "Failure"]
__all__ += ["FanOutFailedError", "InputError", "JournalError", "JournalInUseError"]
__all__ += ["LimitExceededError", "ModelError", "NotInterruptedError", "OrchestratorError"]
__all__ += ["OutputError", "RunFailedError", "SessionOpenError", "SharedBudgetError"]
__all__ += ["TaskFailedError", "ToolError", "UnknownIdError", "WrongLoopError"]

_HOMES = {
    "orchestrator.agents": """
        Agent AgentError AssistantMessage Budget CallKey Compaction DefinitionError Failure Hooks
        InputError LimitExceededError Limits Message Model ModelError ModelSettings OutputError
        Part Patience Pipeline Sandbox ScriptedModel TaskContext Tool ToolCall ToolError
        ToolMessage Transcript Usage UserMessage agent allow confirm deny tool
    """,
    "orchestrator.delegation": """
        Cause Ending Mode Outcome Receipt Reply Rules SessionId Status TaskId Tree usd
    """,
    "orchestrator.products.agent_files.load": "load_agents",
    "orchestrator.kernel.budget_scope": "budget",
    "orchestrator.kernel.doors.one_shot": "Run",
    "orchestrator.kernel.doors.run_events": """
        ApprovalNeeded ModelRetried ReasoningWritten RunEvent TaskDelegated TaskEnded TextWritten
        TextReplaced ToolCalled ToolReturned
    """,
    "orchestrator.kernel.doors.session": "Session",
    "orchestrator.kernel.doors.streamed_run": "StreamedRun",
    "orchestrator.kernel.errors": """
        ClosedError EndedError FanOutFailedError JournalError JournalInUseError
        NotInterruptedError OrchestratorError RunFailedError SessionOpenError SharedBudgetError
        TaskFailedError UnknownIdError WrongLoopError
    """,
    "orchestrator.kernel.journal.memory": "MemoryJournal",
    "orchestrator.kernel.pipelines.child": "Child",
    "orchestrator.kernel.pipelines.combinators.choose": "Candidates best route vote",
    "orchestrator.kernel.pipelines.combinators.fan_out": "FanOut map_each map_reduce parallel race",
    "orchestrator.kernel.pipelines.combinators.retry": "Review fallback refine retry",
    "orchestrator.kernel.pipelines.combinators.sequence": "sequence",
    "orchestrator.kernel.pipelines.delegate": "delegate detach",
    "orchestrator.kernel.pipelines.gather": "Settled",
    "orchestrator.kernel.orchestrator": "Orchestrator",
    "orchestrator.composition": "open_orchestrator",
    "orchestrator.kernel.settings": "Machine Models Workers",
    "orchestrator.synchronous": "run_sync",
}
"""The module of each public name. The imports above say the same to type checkers."""

_LATE_CALLS = {"open_orchestrator"}
"""Functions whose module is imported when they are called: they need nearly everything."""


if not TYPE_CHECKING:  # to a type checker, a mistyped name is an error

    def __getattr__(name: str) -> "Any":
        for home, names in _HOMES.items():
            if name in names.split():
                value = _imported(home, name)
                # The next lookup finds it without this function.
                globals()[name] = value
                return value
        raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")


def _imported(home: str, name: str) -> "Any":
    if name not in _LATE_CALLS:
        return getattr(import_module(home), name)
    from orchestrator.late_call import LateCall

    return LateCall(home, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _leave_launch_folder() -> None:
    """Let `python -m orchestrator` import nothing from the current folder.

    Python searches it first, and it may be the workspace of an agent, or the project of a stranger.
    """
    is_launched = sys.argv[:1] == ["-m"] and not sys.flags.safe_path
    modules = zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
    if not is_launched or ("-m", "orchestrator") not in modules:
        return
    ours = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120
    # In our own source tree there is no other place to import us from.
    if os.path.realpath(sys.path[0]) != ours:
        del sys.path[0]


_leave_launch_folder()
