"""One agent: what it is, what it may use, how it takes a turn.

Knows nothing of delegation and nothing of the orchestrator.
"""

from agents.agent import Agent, Limits
from agents.errors import (
    AgentError,
    DefinitionError,
    Failure,
    LimitExceededError,
    ModelError,
    OutputError,
    ScriptExhaustedError,
    ToolError,
)
from agents.messages import (
    AssistantMessage,
    CallId,
    Message,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
    unanswered_calls,
    well_formed,
)
from agents.models.model import (
    CallDelta,
    Model,
    ModelEvent,
    ModelRequest,
    Price,
    ReasoningDelta,
    Retrying,
    Switched,
    TextDelta,
)
from agents.models.named import NamedModel, model_named
from agents.models.scripted import ScriptedModel
from agents.nurseries import raising_one_error
from agents.output import read_output
from agents.tools.tool import Tool, arguments_schema, read_arguments, tool
from agents.turn import Step, take_turn

DISTRIBUTION = "delegation-orchestrator"
"""Who ships this package: another distribution's import name is `agents` too."""

__all__ = [
    "Agent",
    "AgentError",
    "AssistantMessage",
    "CallDelta",
    "CallId",
    "DefinitionError",
    "Failure",
    "LimitExceededError",
    "Limits",
    "Message",
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelRequest",
    "NamedModel",
    "OutputError",
    "Price",
    "ReasoningDelta",
    "Retrying",
    "ScriptExhaustedError",
    "ScriptedModel",
    "Step",
    "Switched",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolMessage",
    "Transcript",
    "Usage",
    "UserMessage",
    "arguments_schema",
    "model_named",
    "raising_one_error",
    "read_arguments",
    "read_output",
    "take_turn",
    "tool",
    "unanswered_calls",
    "well_formed",
]
