"""The messages of the Agent Client Protocol, version 1, as far as a team sends and reads them.

They follow the schema of `@agentclientprotocol/sdk` 2.4.0. Fields that are not here are ignored.
Subagents are the open proposal of its unstable schema.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

PROTOCOL: Final = 1
"""The only version that is spoken here."""


class _Fields(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A value of the protocol."""


class _Tagged(
    _Fields, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="type"
):
    """One of several values, named by its type."""


# Content.


class Text(_Tagged, frozen=True, tag="text"):
    text: str


class Image(_Tagged, frozen=True, tag="image"):
    data: str
    mime_type: str


class Audio(_Tagged, frozen=True, tag="audio"):
    data: str
    mime_type: str


class ResourceLink(_Tagged, frozen=True, tag="resource_link"):
    name: str
    uri: str


class Resource(_Fields, frozen=True):
    """A file that the client has read."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


class EmbeddedResource(_Tagged, frozen=True, tag="resource"):
    resource: Resource


ContentBlock: TypeAlias = Text | Image | Audio | ResourceLink | EmbeddedResource


# Requests of the client.


class ClientCapabilities(_Fields, frozen=True):
    subagents: dict[str, Any] | None = None
    """The client shows the sessions of subagents (the open proposal)."""


class Initialize(_Fields, frozen=True):
    protocol_version: int
    client_capabilities: ClientCapabilities = ClientCapabilities()


class Named(_Fields, frozen=True):
    """A variable of a server's environment, or a header."""

    name: str
    value: str


class ClientServer(_Fields, frozen=True):
    """An MCP server that the editor gives to the agent."""

    name: str
    type: str = "stdio"
    command: str = ""
    args: Sequence[str] = ()
    env: Sequence[Named] = ()
    url: str = ""
    headers: Sequence[Named] = ()


class NewSession(_Fields, frozen=True):
    cwd: str
    mcp_servers: Sequence[ClientServer] = ()


class OldSession(_Fields, frozen=True):
    """The request to load a session, or to resume it without its history."""

    session_id: str
    cwd: str
    mcp_servers: Sequence[ClientServer] = ()


class OneSession(_Fields, frozen=True):
    """The request to cancel, close or delete a session."""

    session_id: str


class ListSessions(_Fields, frozen=True):
    cwd: str | None = None
    cursor: str | None = None


class Prompt(_Fields, frozen=True):
    session_id: str
    prompt: Sequence[ContentBlock]


class SetConfigOption(_Fields, frozen=True):
    session_id: str
    config_id: str
    value: str | bool


class CancelRequest(_Fields, frozen=True):
    request_id: int | str | None


# Answers of the agent.


class Supported(_Fields, frozen=True):
    """An empty object: the capability is there."""


class PromptCapabilities(_Fields, frozen=True):
    image: bool = False
    embedded_context: bool = False


class McpCapabilities(_Fields, frozen=True):
    http: bool = False


class SessionCapabilities(_Fields, frozen=True):
    list: Supported | None = None
    delete: Supported | None = None
    resume: Supported | None = None
    close: Supported | None = None


class AgentCapabilities(_Fields, frozen=True):
    load_session: bool
    prompt_capabilities: PromptCapabilities
    mcp_capabilities: McpCapabilities
    session_capabilities: SessionCapabilities


class Implementation(_Fields, frozen=True):
    name: str
    version: str
    title: str = ""


class Initialized(_Fields, frozen=True):
    protocol_version: int
    agent_capabilities: AgentCapabilities
    agent_info: Implementation


class SelectOption(_Fields, frozen=True):
    value: str
    name: str


class ConfigOption(_Tagged, frozen=True, tag="select"):
    id: str
    name: str
    category: str
    current_value: str
    options: Sequence[SelectOption]


class OpenedSession(_Fields, frozen=True):
    session_id: str | msgspec.UnsetType = msgspec.UNSET
    config_options: Sequence[ConfigOption] = ()


class SessionInfo(_Fields, frozen=True):
    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None


class SessionPage(_Fields, frozen=True):
    sessions: Sequence[SessionInfo]
    next_cursor: str | None = None


StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"
]


class PromptEnded(_Fields, frozen=True):
    stop_reason: StopReason


# Updates of a session.

ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"
]
CallStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]


class Content(_Tagged, frozen=True, tag="content"):
    content: ContentBlock


class Diff(_Tagged, frozen=True, tag="diff"):
    path: str
    new_text: str
    old_text: str | None = None


class Location(_Fields, frozen=True):
    path: str
    line: int | None = None


class _Update(_Fields, frozen=True, rename="camel", omit_defaults=True, tag_field="sessionUpdate"):
    """One update of a session."""


class UserChunk(_Update, frozen=True, tag="user_message_chunk"):
    content: ContentBlock
    message_id: str | None = None


class MessageChunk(_Update, frozen=True, tag="agent_message_chunk"):
    content: ContentBlock
    message_id: str | None = None


class ThoughtChunk(_Update, frozen=True, tag="agent_thought_chunk"):
    content: ContentBlock
    message_id: str | None = None


class CallFields(_Fields, frozen=True):
    """The fields of a tool call, in an update or in a question."""

    tool_call_id: str
    title: str | None = None
    name: str | None = None
    kind: ToolKind | None = None
    status: CallStatus | None = None
    content: Sequence[Content | Diff] = ()
    locations: Sequence[Location] = ()
    raw_input: Any = None


class CallBegun(
    CallFields,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="sessionUpdate",
    tag="tool_call",
):
    """A tool call that the client has not seen yet."""


class CallChanged(
    CallFields,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="sessionUpdate",
    tag="tool_call_update",
):
    """New values of a tool call; other fields keep theirs."""


class PlanEntry(_Fields, frozen=True, omit_defaults=False):
    content: str
    status: Literal["pending", "in_progress", "completed"]
    priority: Literal["high", "medium", "low"] = "medium"


class Plan(_Update, frozen=True, tag="plan"):
    entries: Sequence[PlanEntry]


class InfoChanged(_Update, frozen=True, tag="session_info_update"):
    title: str | None = None


WorkKind: TypeAlias = Literal["running", "idle", "requires_action"]


class WorkState(_Fields, frozen=True):
    """The state of a subagent."""

    state: WorkKind
    stop_reason: str | None = None


class SubagentCapabilities(_Fields, frozen=True):
    cancel: Supported


class SubagentChanged(_Update, frozen=True, tag="subagent_update"):
    session_id: str
    title: str | None = None
    description: str | None = None
    capabilities: SubagentCapabilities | None = None
    state: WorkState | None = None


Update: TypeAlias = (
    UserChunk
    | MessageChunk
    | ThoughtChunk
    | CallBegun
    | CallChanged
    | Plan
    | InfoChanged
    | SubagentChanged
)


class Notification(_Fields, frozen=True):
    """An update, and the session that it belongs to."""

    session_id: str
    update: Update


# Questions to the client.


class PermissionOption(_Fields, frozen=True):
    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class AskPermission(_Fields, frozen=True):
    session_id: str
    tool_call: CallFields
    options: Sequence[PermissionOption]


class PermissionOutcome(_Fields, frozen=True):
    outcome: str
    option_id: str = ""


class Permission(_Fields, frozen=True):
    outcome: PermissionOutcome
