"""One agent: its definition, models, tools and the loop of a turn.

It imports nothing else of the orchestrator. The definition of an agent is imported with the
package, and the code that runs one when it is first used.
"""

from importlib import import_module

from orchestrator.agents.agent import Agent, is_agent
from orchestrator.agents.approval import allow, confirm, deny
from orchestrator.agents.budget import Budget
from orchestrator.agents.errors import (
    AgentError,
    DefinitionError,
    Failure,
    InputError,
    LimitExceededError,
    ModelError,
    OutputError,
    RefusedBy,
    ScriptExhaustedError,
    ToolError,
)
from orchestrator.agents.hooks import Hooks
from orchestrator.agents.limits import Limits, Patience
from orchestrator.agents.messages import (
    AssistantMessage,
    CallId,
    Message,
    MessageId,
    Part,
    ReasoningBlock,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    new_message_id,
    unanswered_calls,
    well_formed,
)
from orchestrator.agents.models.model import (
    CallDelta,
    Compacted,
    Model,
    ModelEvent,
    ModelRequest,
    Price,
    Queued,
    ReasoningDelta,
    Retrying,
    Switched,
    TextDelta,
    ignore_event,
)
from orchestrator.agents.models.settings import ModelSettings
from orchestrator.agents.output.typed import read_output
from orchestrator.agents.pipelines.decorator import agent
from orchestrator.agents.pipelines.pipeline import Pipeline, PipelineContext, input_of
from orchestrator.agents.pipelines.shape import Shape
from orchestrator.agents.tools.task_context import TaskContext
from orchestrator.agents.tools.tool import CallKey, Tool, arguments_schema, read_arguments, tool
from orchestrator.agents.transcript import Transcript

TYPE_CHECKING = False
if TYPE_CHECKING:
    from orchestrator.agents.compaction import Compaction
    from orchestrator.agents.models.providers.scripted import ScriptedModel
    from orchestrator.agents.nurseries import raising_one_error
    from orchestrator.agents.output.json_schema import require_schema
    from orchestrator.agents.sandbox.sandbox import Sandbox
    from orchestrator.agents.tools.mcp.server import McpCommand, McpUrl
    from orchestrator.agents.turn import take_turn


__all__ = [
    "Agent",
    "AgentError",
    "AssistantMessage",
    "Budget",
    "CallDelta",
    "CallId",
    "CallKey",
    "Compacted",
    "Compaction",
    "DefinitionError",
    "Failure",
    "Hooks",
    "InputError",
    "LimitExceededError",
    "Limits",
    "McpCommand",
    "McpUrl",
    "Message",
    "MessageId",
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelRequest",
    "ModelSettings",
    "OutputError",
    "Part",
    "Patience",
    "Pipeline",
    "PipelineContext",
    "Price",
    "Queued",
    "ReasoningBlock",
    "ReasoningDelta",
    "RefusedBy",
    "Retrying",
    "Sandbox",
    "ScriptExhaustedError",
    "ScriptedModel",
    "Shape",
    "Switched",
    "TaskContext",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolMessage",
    "Transcript",
    "Usage",
    "UserMessage",
    "agent",
    "allow",
    "arguments_schema",
    "confirm",
    "deny",
    "ignore_event",
    "input_of",
    "is_agent",
    "new_message_id",
    "raising_one_error",
    "read_arguments",
    "read_output",
    "require_schema",
    "take_turn",
    "tool",
    "unanswered_calls",
    "well_formed",
]

_LATE = {
    "Compaction": "orchestrator.agents.compaction",
    "McpCommand": "orchestrator.agents.tools.mcp.server",
    "McpUrl": "orchestrator.agents.tools.mcp.server",
    "Sandbox": "orchestrator.agents.sandbox.sandbox",
    "ScriptedModel": "orchestrator.agents.models.providers.scripted",
    "Step": "orchestrator.agents.turn_host",
    "raising_one_error": "orchestrator.agents.nurseries",
    "require_schema": "orchestrator.agents.output.json_schema",
    "take_turn": "orchestrator.agents.turn",
}
"""The module of each name that is imported when it is first used."""


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module 'orchestrator.agents' has no attribute {name!r}")
    value = getattr(import_module(_LATE[name]), name)
    # The next lookup finds it without this function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
