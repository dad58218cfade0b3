"""The tools that a client runs itself: functions, and custom tools, which take one text.

An agent has them besides its own tools. A call of one ends the turn, and the client sends the
result. If a model's provider has no custom tools, a custom tool becomes a function of one text; its
grammar is then only described, and a header tells the client.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, cast

import attrs
import msgspec
import trio

from orchestrator.agents import Agent, CallId, Tool, ToolCall, ToolError
from orchestrator.agents.feature_checks import MEMORY
from orchestrator.agents.models.registry import has_custom_tools
from orchestrator.agents.tools.model_names import model_name
from orchestrator.agents.tools.text_input import INPUT, TextInput, input_of
from orchestrator.delegation import SessionRecord
from orchestrator.delegation.board_tool import BOARD
from orchestrator.delegation.job_tool import JOB_TOOL
from orchestrator.delegation.session_state import SessionState
from orchestrator.products.history.ports import DELEGATION_TOOLS
from orchestrator.products.server.openai.conversation import Dialect
from orchestrator.products.server.transport.errors import bad_request

TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""The names of tools in all protocols, MCP included; a model may see another name."""
NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
FUNCTION: Final = "function"
CUSTOM: Final = "custom"

Syntax: TypeAlias = Literal["lark", "regex"]
GrammarText: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]


class AnyText(msgspec.Struct, tag_field="type", tag="text"):
    """The input of a custom tool is any text."""


@attrs.frozen(kw_only=True)
class ToolDefinition:
    """A tool that the client runs itself, as the request defines it."""

    name: str
    description: str | None
    param: str
    """The place of its name in the request."""
    parameters: Mapping[str, Any] | None = None
    text_input: TextInput | None = None
    """Only for a custom tool."""


class ChosenTools(msgspec.Struct, frozen=True):
    """The tools of a client that an agent gets, and the tool that it has to call."""

    tools: tuple[Tool, ...]
    choice: str | None = None
    """A value of `ModelSettings.tool_choice`."""
    ignored: tuple[str, ...] = ()
    """The parameters of tools that are ignored, as a header names them."""


def require_client_tool(kind: str, param: str, *, ignores_others: bool) -> bool:
    """Return whether a client can run a tool; otherwise ignore or refuse the tool."""
    if kind in {FUNCTION, CUSTOM}:
        return True
    if ignores_others:
        return False
    raise bad_request(
        f"tools of type {kind!r} are not supported: send functions or custom tools; agents also"
        " have their own tools. `orchestrator serve --ignore-hosted-tools` ignores unsupported"
        " tools",
        param=param,
    )


def made_tools(
    agent: Agent[Any], definitions: Iterable[ToolDefinition], dialect: Dialect
) -> tuple[Tool, ...]:
    """Return the tools of a client as tools of the agent, each with a unique name."""
    reserved = reserved_tool_names(agent)
    tools: dict[str, Tool] = {}
    for definition in definitions:
        if not TOOL_NAME.fullmatch(definition.name):
            raise dialect.invalid_value(
                f"{definition.name!r} cannot be the name of a tool: use 1 to 128 of the letters a"
                " to z, digits, '-', '_' and '.'",
                definition.param,
            )
        name = model_name(definition.name)
        if name in reserved:
            raise bad_request(
                f"{agent.name} has its own tool {name!r}: give your tool another name",
                param=definition.param,
                code=dialect.name_taken,
            )
        if name in tools:
            raise dialect.invalid_value(f"two tools have the name {name!r}", definition.param)
        tools[name] = client_tool(definition)
    return tuple(tools.values())


def reserved_tool_names(agent: Agent[Any]) -> set[str]:
    """Return the names that a client's tools may not have."""
    own = {tool.name for tool in agent.tools}
    if agent.schedules:
        own.add(JOB_TOOL)
    if agent.board:
        own.add(BOARD)
    if agent.memory is not None:
        own.add(MEMORY)
    return own | DELEGATION_TOOLS if agent.may_delegate else own


def client_tool(definition: ToolDefinition) -> Tool:
    """Return a tool of an agent that its client runs."""
    text_input = definition.text_input
    return Tool(
        name=definition.name,
        description=definition.description or "",
        parameters=definition.parameters or NO_ARGUMENTS
        if text_input is None
        else text_input.parameters,
        run=_never_run,
        runs_at_caller=True,
        text_input=text_input,
    )


async def _never_run(call: ToolCall) -> str:
    # Such a call ends its turn, even a resumed one.
    await trio.lowlevel.checkpoint()
    raise ToolError(f"the client runs {call.name}, and has disconnected")


def choose_tools(
    agent: Agent[Any],
    tools: tuple[Tool, ...],
    choice: object,
    dialect: Dialect,
    *,
    ignored: Sequence[str] = (),
) -> ChosenTools:
    """Return the tools of a client that `tool_choice` allows; the agent keeps its own."""
    left, required = _choose(agent, tools, choice, dialect)
    names = [f"tools.{kind}" for kind in ignored]
    if any(it.text_input and it.text_input.grammar for it in left) and not (
        has_custom_tools(agent.model)
    ):
        names.append("tools.custom.format")
    return ChosenTools(left, required, tuple(names))


def _choose(
    agent: Agent[Any], tools: tuple[Tool, ...], choice: object, dialect: Dialect
) -> tuple[tuple[Tool, ...], str | None]:
    """Return the remaining tools, and the tool that has to be called."""
    tools = allowed_tools(tools, choice)
    if choice is None or choice in ("auto", "none"):
        return tools, None
    if choice == "required":
        if tools or agent.tools or agent.may_delegate:
            return tools, "required"
        raise dialect.invalid_value(
            f"'tool_choice' requires a tool call, and {agent.name} has no tools: send tools",
            "tool_choice",
        )
    if not isinstance(choice, dict):
        raise dialect.invalid_value(
            f"'tool_choice' is {choice!r}; use 'auto', 'none', 'required' or name a tool",
            "tool_choice",
        )
    chosen = cast("dict[str, Any]", choice)
    if chosen.get("type") == "allowed_tools":
        mode = _allowed(chosen).get("mode", "auto")
        return _choose(agent, tools, mode if isinstance(mode, str) else "", dialect)
    name = _chosen_name(chosen)
    if name not in {*(tool.name for tool in tools), *(it.name for it in agent.tools)}:
        raise dialect.invalid_value(
            f"'tool_choice' names the tool {name!r}, which does not exist", "tool_choice"
        )
    return tools, name


def allowed_tools(tools: tuple[Tool, ...], choice: object) -> tuple[Tool, ...]:
    """Return the tools of a client that its `tool_choice` allows."""
    if choice == "none":
        return ()
    chosen = _object(choice)
    if chosen.get("type") != "allowed_tools":
        return tools
    names = {_chosen_name(_object(it)) for it in _items(_allowed(chosen).get("tools"))}
    return tuple(tool for tool in tools if tool.name in names)


def _allowed(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the allowed tools and the mode, in either protocol."""
    return _object(choice.get("allowed_tools")) or choice


def _chosen_name(choice: Mapping[str, Any]) -> str:
    """Return the name of a tool in either protocol."""
    kind = choice.get("type")
    inner = _object(choice.get(kind)) if isinstance(kind, str) else {}
    name = (inner or choice).get("name")
    return name if isinstance(name, str) else ""


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def earlier_call(name: str, arguments: str, id_: str, param: str, dialect: Dialect) -> ToolCall:
    """Return a function call in the conversation; `arguments` is JSON text."""
    try:
        decoded = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise dialect.invalid_value(
            f"the arguments of a call must be the text of a JSON object: {exc}", param
        ) from exc
    return ToolCall(name, decoded, id=CallId(id_))


def earlier_custom_call(name: str, text: str, id_: str) -> ToolCall:
    """Return a call of a custom tool in the conversation."""
    return ToolCall(name, {INPUT: text}, id=CallId(id_))


class ClientToolsState(SessionState, frozen=True):
    """The tools of a session's client, as its conversation shows them."""

    NAME: ClassVar[str] = "client_tools"
    custom: tuple[str, ...] = ()
    """The names of its custom tools."""
    has_functions: bool = False
    """Whether the client has sent `functions`, the older form of tools."""


def client_tools_state(
    tools: Iterable[Tool], earlier: Iterable[str] = (), *, has_functions: bool = False
) -> ClientToolsState:
    """Return the state of a client's tools; `earlier` has the custom tools called before."""
    names = {it.name for it in tools if it.text_input is not None} | {*earlier}
    return ClientToolsState(custom=tuple(sorted(names)), has_functions=has_functions)


def custom_tools_of(session: SessionRecord) -> frozenset[str]:
    """Return the names of the custom tools in a conversation."""
    return frozenset(session.state(ClientToolsState).custom)


def has_functions(session: SessionRecord) -> bool:
    """Return whether the client of a session has sent the older form of tools."""
    return session.state(ClientToolsState).has_functions


def custom_input(call: ToolCall) -> str:
    """Return the text argument of a custom tool call."""
    return input_of(call.arguments)
