"""The checks that chat completions and responses share: client tools, and whole conversations.

Nothing that would change the meaning of an answer is ignored silently. It is refused, and the error
names the part of the request. The two protocols differ in their words only: see `Dialect`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import attrs

from agents import Agent, DefinitionError, Tool, ToolCall, UserMessage
from delegation.events import EarlierMessage
from orchestrator.server.openai.client_content import (
    call_of,
    client_tool,
    reserved_tool_names,
)
from orchestrator.server.transport.errors import HttpError, bad_request

TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@attrs.frozen(kw_only=True)
class Dialect:
    """The words of one protocol for the parts of a conversation, and its error codes."""

    call: str
    result: str
    invalid: str
    """The code of an invalid value."""
    name_taken: str
    """The code of a tool name that the agent uses itself."""

    def invalid_value(self, message: str, param: str) -> HttpError:
        return bad_request(message, param=param, code=self.invalid)


CHAT: Final = Dialect(
    call="tool call",
    result="tool message",
    invalid="invalid_body",
    name_taken="tool_name_taken",
)
RESPONSES: Final = Dialect(
    call="function_call",
    result="function_call_output",
    invalid="invalid_value",
    name_taken="invalid_value",
)


@attrs.frozen(kw_only=True)
class FunctionDefinition:
    """A function that the client runs itself, as its request defines it."""

    name: str
    description: str | None
    parameters: Mapping[str, Any] | None
    param: str
    """Where the request says its name."""


@attrs.frozen
class LocatedMessage:
    """A message, and where it stands in the request."""

    message: EarlierMessage
    param: str
    call_param: str
    """Where a result says which call it belongs to."""


@attrs.frozen
class ChosenTools:
    """The tools of a client that an agent gets, and which of all it has to call."""

    tools: tuple[Tool, ...]
    choice: str | None = None
    """As `ModelSettings.tool_choice` has it."""
    ignored: tuple[str, ...] = ()
    """The tools that only their provider could run, as a header names them."""


def is_function(kind: str, param: str, *, ignores_others: bool) -> bool:
    """Return whether a tool is a function of the client; refuse another one, or ignore it.

    Args:
        kind: the type of the tool.
        param: where the request says it.
        ignores_others: leave out tools that only their provider could run.
    """
    if kind == "function":
        return True
    if ignores_others:
        return False
    raise bad_request(
        f"a tool of type {kind!r} cannot be had here: functions can, and agents have tools of"
        " their own. `orchestrator serve --ignore-hosted-tools` leaves such tools out",
        param=param,
    )


def choose_tools(
    agent: Agent[Any], tools: tuple[Tool, ...], choice: object, dialect: Dialect
) -> ChosenTools:
    """Return what `tool_choice` leaves of the tools of a client.

    `none` takes the tools of the client away, and no tool that the agent has of its own.

    Args:
        agent: the agent that gets them.
        tools: the tools of the client.
        choice: a word, or an object that names a tool or several.
        dialect: the words of the errors.
    """
    if choice is None or choice == "auto":
        return ChosenTools(tools)
    if choice == "none":
        return ChosenTools(())
    if choice == "required":
        if tools or agent.tools or agent.may_delegate:
            return ChosenTools(tools, "required")
        raise dialect.invalid_value(
            f"a call of a tool is required, and {agent.name} has none: send tools with it",
            "tool_choice",
        )
    if not isinstance(choice, dict):
        raise dialect.invalid_value(
            f"'tool_choice' is {choice!r}; it is 'auto', 'none', 'required' or names a tool",
            "tool_choice",
        )
    chosen = cast("dict[str, Any]", choice)
    if chosen.get("type") == "allowed_tools":
        allowed = _object(chosen.get("allowed_tools")) or chosen
        names = {_chosen_name(_object(it)) for it in _items(allowed.get("tools"))}
        left = tuple(tool for tool in tools if tool.name in names)
        mode = allowed.get("mode", "auto")
        return choose_tools(agent, left, mode if isinstance(mode, str) else "", dialect)
    name = _chosen_name(chosen)
    if name not in {*(tool.name for tool in tools), *(it.name for it in agent.tools)}:
        raise dialect.invalid_value(
            f"'tool_choice' names the tool {name!r}, and there is none", "tool_choice"
        )
    return ChosenTools(tools, name)


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


def client_tools(
    agent: Agent[Any], functions: Iterable[FunctionDefinition], dialect: Dialect
) -> tuple[Tool, ...]:
    """Return the functions of a client as tools of the agent, each under a name of its own."""
    reserved = reserved_tool_names(agent)
    tools: dict[str, Tool] = {}
    for function in functions:
        name = function.name
        if not TOOL_NAME.fullmatch(name):
            raise dialect.invalid_value(
                f"{name!r} cannot be the name of a tool: it has 1 to 64 of the letters a to z,"
                " digits, '-' and '_'",
                function.param,
            )
        if name in reserved:
            raise bad_request(
                f"{agent.name} has a tool called {name!r} of its own: give yours another name",
                param=function.param,
                code=dialect.name_taken,
            )
        if name in tools:
            raise dialect.invalid_value(
                f"there are two tools called {name!r}", function.param
            )
        tools[name] = client_tool(name, function.description, function.parameters)
    return tuple(tools.values())


def earlier_call(
    name: str, arguments: str, id_: str, param: str, dialect: Dialect
) -> ToolCall:
    """Return a call of the conversation.

    Args:
        name: the function.
        arguments: its arguments, as JSON text.
        id_: the id of the call.
        param: where the request says the arguments.
        dialect: the words of the error.
    """
    try:
        return call_of(name, arguments, id_=id_)
    except DefinitionError as exc:
        raise dialect.invalid_value(str(exc), param) from exc


def require_answerable(
    messages: Sequence[LocatedMessage],
    dialect: Dialect,
    *,
    param: str,
    open_calls: Iterable[str] = (),
) -> None:
    """Refuse a conversation in which a call lacks its result, or nothing is left to answer.

    Args:
        messages: the conversation.
        dialect: the words of the errors.
        param: where the request says the whole conversation.
        open_calls: calls before these messages that have no result yet.
    """
    unanswered: dict[str, None] = dict.fromkeys(open_calls)
    where = param
    for located in messages:
        message, where = located.message, located.param
        if message.role != "tool":
            _require_none_open(unanswered, where, dialect)
            unanswered = dict.fromkeys(call.id for call in message.calls)
        elif message.call in unanswered:
            del unanswered[message.call]
        else:
            raise dialect.invalid_value(
                f"no {dialect.call} before this {dialect.result} has the id"
                f" {message.call!r} and waits for its result",
                located.call_param,
            )
    _require_none_open(unanswered, where, dialect)
    if not messages:
        raise dialect.invalid_value(
            "there is nothing to answer: send a user message", param
        )
    if messages[-1].message.role == "assistant":
        raise dialect.invalid_value(
            "the conversation ends with an assistant message, so there is nothing to answer:"
            f" end with a user message or a {dialect.result}",
            where,
        )


def _require_none_open(unanswered: Iterable[str], param: str, dialect: Dialect) -> None:
    if calls := ", ".join(map(repr, unanswered)):
        raise dialect.invalid_value(
            f"there is no {dialect.result} for the {dialect.call} {calls}: send one for each,"
            f" right behind its {dialect.call}",
            param,
        )


def split_last_user_message(
    messages: Iterable[EarlierMessage],
) -> tuple[tuple[EarlierMessage, ...], UserMessage | None]:
    """Return the history, and the user message that ends it; None if a tool result does."""
    *history, last = messages
    if last.role != "user":
        return (*history, last), None
    return tuple(history), UserMessage(last.text, last.parts)
