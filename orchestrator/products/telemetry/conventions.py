"""The names of attributes, as the GenAI conventions of OpenTelemetry spell them, and our own.

They follow open-telemetry/semantic-conventions-genai at commit 002c8a6, which is in development.
The conventions have no name for delegation and for money: those names begin with `orchestrator.`.
"""

from typing import Final

CONVENTIONS: Final = "https://opentelemetry.io/schemas/1.41.1"
"""The schema of the core conventions that the GenAI conventions are based on."""

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_VERSION: Final = "gen_ai.agent.version"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITTEN_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
KIND_OF_TOKENS: Final = "gen_ai.token.type"
ERROR_TYPE: Final = "error.type"

UNKNOWN_PROVIDER: Final = "_OTHER"
"""The provider of a model of the program's own."""

OUR_TASK: Final = "orchestrator.task.id"
OUR_MODE: Final = "orchestrator.task.mode"
OUR_LABEL: Final = "orchestrator.task.label"
OUR_ENDING: Final = "orchestrator.task.ending"
OUR_QUEUED: Final = "orchestrator.task.queued_seconds"
OUR_NEEDS: Final = "orchestrator.task.needs"
OUR_TURN: Final = "orchestrator.turn"
OUR_FORKED_FROM: Final = "orchestrator.forked_from"
OUR_COST: Final = "orchestrator.cost.usd"
OUR_COST_IS_LOWER_BOUND: Final = "orchestrator.cost.is_lower_bound"
OUR_SAVED: Final = "orchestrator.cost.saved_usd"
OUR_ESTIMATED: Final = "orchestrator.usage.is_estimated"
OUR_PROVIDER_WAIT: Final = "orchestrator.provider_wait_seconds"
OUR_ATTEMPT: Final = "orchestrator.attempt"
OUR_PURPOSE: Final = "orchestrator.purpose"
OUR_COPIED: Final = "orchestrator.is_copied"
OUR_LEFT_OUT: Final = "orchestrator.left_out_characters"
OUR_CUT: Final = "orchestrator.cut_attributes"
