"""Execution: agents, models, tool places, tool servers and the workspace of a task."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from orchestrator.kernel.engine.cost_rules import TaskCost
from orchestrator.kernel.event_loop import has_virtual_time
from orchestrator.kernel.execution.agent_catalogue import AgentCatalogue, fingerprint
from orchestrator.kernel.execution.agent_registry import AgentRegistry, reachable_agents
from orchestrator.kernel.execution.executor import ServerCaller, TaskHost, WorkOrder
from orchestrator.kernel.execution.model_resolver import (
    MODELS_CLOSE_SECONDS,
    ModelResolver,
    known_providers,
)
from orchestrator.kernel.execution.outcomes import (
    EXPECTED_ERRORS,
    PROCESS_DIED,
    describe_error,
    without_cancellations,
)
from orchestrator.kernel.execution.program_sandbox import ProgramSandbox
from orchestrator.kernel.execution.tool_place import WorkerLostError
from orchestrator.kernel.execution.tool_servers import NoServers, ServerTools
from orchestrator.kernel.execution.workspace.background_commands import (
    ENDED_BY_AGENT,
    NO_COMMANDS,
    REMEMBERED_COMMANDS,
    TASK_ENDED,
    OwnCommands,
)
from orchestrator.kernel.execution.workspace.call_subject import subject_of
from orchestrator.kernel.execution.workspace.command import Command, ended_note
from orchestrator.kernel.execution.workspace.host import host_of
from orchestrator.kernel.execution.workspace.settings import (
    NO_WORKSPACE,
    WorkspaceSettings,
    resolve_workspace_settings,
)
from orchestrator.kernel.execution.workspace.task_workspace import CLOSE_SECONDS, TASK_VARIABLE
from orchestrator.kernel.pipelines.scripts.dry_run import DryRun
