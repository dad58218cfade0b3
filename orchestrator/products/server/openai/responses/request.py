"""Converts a request for a response to a conversation; no parameter is ignored silently."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
from msgspec.structs import replace

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    DefinitionError,
    Message,
    Part,
    Pipeline,
    ReasoningBlock,
    ToolMessage,
    UserMessage,
    unanswered_calls,
    well_formed,
)
from orchestrator.agents.tools.text_input import TextInput
from orchestrator.delegation.events import EarlierMessage
from orchestrator.products.server.openai import client_content, client_tools, conversation
from orchestrator.products.server.openai.requested_settings import (
    KeptSettings,
    Parameter,
    keep_settings,
)
from orchestrator.products.server.openai.responses import bodies
from orchestrator.products.server.transport.errors import HttpError, bad_request

SAMPLING: Final = ("temperature", "top_p", "max_output_tokens")
"""The parameters that have the same names in `ModelSettings`."""
NO_REASONING: Final[Mapping[str, tuple[ReasoningBlock, ...]]] = {}
HOSTED_ITEMS: Final = frozenset(
    [
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("mcp_list_tools", "mcp_call", "compaction"),
    ]
)
"""The items about work of OpenAI's own servers: no other model can read them."""
LOGPROBS: Final = "message.output_text.logprobs"


@attrs.frozen(kw_only=True)
class ParsedInput:
    """The input of a response in the form that the agent reads."""

    history: tuple[EarlierMessage, ...]
    message: UserMessage | None
    """None continues after the result of a function."""
    system_instructions: str
    """The system and developer messages, which hold for the whole conversation."""
    custom_tools: frozenset[str]
    """The custom tools that are called in it."""


def require_supported(body: bodies.CreateResponse) -> None:
    """Refuse unsupported options that would change the meaning of the answer."""
    for name in ("prompt", "moderation"):
        if getattr(body, name) is not None:
            raise bad_request(f"{name!r} is not supported", param=name)
    if body.conversation is not None and body.previous_response_id is not None:
        raise conversation.RESPONSES.invalid_value(
            "a response continues a conversation or another response, not both: leave out one",
            "previous_response_id",
        )
    if body.background and body.store is False:
        raise bad_request(
            "a background response is retrieved later, so it must be stored: leave out 'store' or"
            " 'background'",
            param="store",
        )


def kept_settings(
    body: bodies.CreateResponse,
    agent: Agent[Any],
    chosen: client_tools.ChosenTools,
    unknown: Iterable[str],
    *,
    is_strict: bool,
) -> KeptSettings:
    """Return the model settings of a body that an agent applies."""
    effort = None if body.reasoning is None else body.reasoning.effort
    parameters = [
        *(Parameter(name, name, getattr(body, name)) for name in SAMPLING),
        Parameter("reasoning.effort", "reasoning_effort", effort),
        Parameter("tool_choice", "tool_choice", chosen.choice),
        *logprob_parameters(body),
    ]
    if chosen.tools or agent.tools:
        several = body.parallel_tool_calls
        parameters.append(Parameter("parallel_tool_calls", "parallel_tool_calls", several))
    others = [
        *unknown,
        *chosen.ignored,
        # A client that retrieves a response as a stream asks for progress then.
        *(["include_progress"] if body.include_progress and not body.stream else []),
        *(["truncation"] if body.truncation == "auto" else []),
        *sorted(_hosted_items(body)),
        *(["text.verbosity"] if body.text is not None and body.text.verbosity else []),
    ]
    return keep_settings(agent, parameters, others, conversation.RESPONSES, is_strict=is_strict)


def _hosted_items(body: bodies.CreateResponse) -> set[str]:
    items = body.input if isinstance(body.input, list) else ()
    return {f"input.{it.type}" for it in items if it.type in HOSTED_ITEMS}


def logprob_parameters(body: bodies.CreateResponse) -> list[Parameter]:
    """Return the parameters of a body that ask for log probabilities."""
    setting = "top_logprobs"
    found = [Parameter(setting, setting, body.top_logprobs)] if body.top_logprobs else []
    if LOGPROBS in (body.include or ()):
        most = body.top_logprobs or 0
        found.append(Parameter(f"include.{LOGPROBS}", setting, most))
    return found


def tools_of_client(
    tools: Sequence[bodies.ResponseTool], choice: object, agent: Agent[Any], *, ignores_others: bool
) -> client_tools.ChosenTools:
    """Return the tools that the client runs as tools of the agent."""
    definitions: list[client_tools.ToolDefinition] = []
    ignored: list[str] = []
    for number, tool in enumerate(tools):
        param = f"tools[{number}].type"
        if not client_tools.require_client_tool(tool.type, param, ignores_others=ignores_others):
            ignored.append(tool.type)
            continue
        definitions.append(
            client_tools.ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters=tool.parameters,
                param=f"tools[{number}].name",
                text_input=_text_input(tool) if tool.type == client_tools.CUSTOM else None,
            )
        )
    made = client_tools.made_tools(agent, definitions, conversation.RESPONSES)
    if made and isinstance(agent, Pipeline):
        raise bad_request(f"{agent.name!r} is a pipeline, which calls no tools", param="tools")
    return client_tools.choose_tools(agent, made, choice, conversation.RESPONSES, ignored=ignored)


def _text_input(tool: bodies.ResponseTool) -> TextInput:
    if isinstance(tool.format, bodies.ResponseGrammar):
        return TextInput(tool.format.syntax, tool.format.definition)
    return TextInput()


def as_input(item: bodies.OutputItem | bodies.InputItem) -> bodies.Item:
    """Return an item of a stored response in the form of an input."""
    match item:
        case bodies.MessageItem():
            return bodies.Item(role="assistant", content=list(item.content))
        case bodies.InputMessageItem():
            return bodies.Item(role=item.role, content=list(item.content))
        case bodies.ReasoningItem():
            return bodies.Item(type="reasoning", encrypted_content=item.encrypted_content)
        case bodies.CallItem():
            return bodies.Item(
                type="function_call", call_id=item.call_id, name=item.name, arguments=item.arguments
            )
        case bodies.CustomCallItem():
            return bodies.Item(
                type="custom_tool_call", call_id=item.call_id, name=item.name, input=item.input
            )
        case bodies.CallOutputItem() | bodies.CustomCallOutputItem():
            kind = type(item).__struct_config__.tag
            return bodies.Item(type=str(kind), call_id=item.call_id, output=item.output)


def parse_input(
    body: bodies.CreateResponse,
    earlier: Sequence[Message],
    kept: Sequence[bodies.Item] = (),
    reasoning: Mapping[str, tuple[ReasoningBlock, ...]] = NO_REASONING,
) -> ParsedInput:
    """Return the input as messages, after the response or conversation that it continues."""
    given = body.input or ()
    items = [bodies.Item(content=given)] if isinstance(given, str) else given
    instructions, messages = read_items(
        [*kept, *items], "input", earlier, len(kept), reasoning, is_text=isinstance(given, str)
    )
    found = conversation.read_conversation(
        [conversation.LocatedMessage(message, "input", "input") for message in messages],
        instructions,
        conversation.RESPONSES,
        param="input",
        open_calls=[call.id for call in unanswered_calls(earlier)],
    )
    return ParsedInput(
        history=(*map(_as_said, earlier), *found.history),
        message=found.message,
        system_instructions=found.instructions,
        custom_tools=frozenset(it.name for it in (*kept, *items) if it.type == "custom_tool_call"),
    )


def read_items(
    items: Sequence[bodies.Item],
    name: str,
    earlier: Sequence[Message] = (),
    kept: int = 0,
    reasoning: Mapping[str, tuple[ReasoningBlock, ...]] = NO_REASONING,
    *,
    is_text: bool = False,
) -> tuple[list[str], list[EarlierMessage]]:
    """Return the instructions and messages in items; the first `kept` are not of the request."""
    instructions: list[str] = []
    messages: list[EarlierMessage] = []
    thoughts: tuple[ReasoningBlock, ...] = ()
    call_ids = {call.id for it in earlier for call in getattr(it, "calls", ())}
    for number, item in enumerate(items, -kept):
        param = name if is_text else f"{name}[{number}]"
        if number < 0:
            param = "conversation"
        if item.type == "reasoning":
            # Reasoning of another model, or before a final answer, is useless.
            thoughts += reasoning.get(item.encrypted_content or "", ())
        elif item.type in HOSTED_ITEMS:
            pass  # a header of the answer names them
        elif item.type == "message" and item.role in {"system", "developer"}:
            instructions.append(_text(item.content, f"{param}.content"))
        elif item.type in {"function_call", "custom_tool_call"}:
            _add_call(messages, item, call_ids, param)
            messages[-1] = replace(messages[-1], reasoning=(*messages[-1].reasoning, *thoughts))
            thoughts = ()
            call_ids.add(item.call_id)
        else:
            messages.append(_parse_item(item, param))
    return instructions, messages


def _parse_item(item: bodies.Item, param: str) -> EarlierMessage:
    match item.type, item.role:
        case "message", "user":
            text, parts = _content(item.content, f"{param}.content")
            if not text and not parts:
                raise conversation.RESPONSES.invalid_value("the message is empty", param)
            return EarlierMessage(role="user", text=text, parts=parts)
        case "message", _:
            return EarlierMessage(role="assistant", text=_text(item.content, f"{param}.content"))
        case "function_call_output" | "custom_tool_call_output", _:
            text, parts = _content(item.output, f"{param}.output")
            return EarlierMessage(role="tool", call=item.call_id, text=text, parts=parts)
        case _:
            raise bad_request(
                f"items of type {item.type!r} are not supported; send message, function_call,"
                " function_call_output, custom_tool_call or custom_tool_call_output",
                param=f"{param}.type",
            )


def _add_call(
    messages: list[EarlierMessage], item: bodies.Item, known_ids: Collection[str], param: str
) -> None:
    """Add a call to the assistant message before it, or to a new one."""
    if not item.call_id or item.call_id in known_ids:
        raise conversation.RESPONSES.invalid_value(
            f"two calls have the call_id {item.call_id!r}"
            if item.call_id
            else f"a {item.type} needs a call_id",
            f"{param}.call_id",
        )
    if not item.name:
        raise conversation.RESPONSES.invalid_value(f"a {item.type} needs a name", f"{param}.name")
    if item.type == "custom_tool_call":
        call = client_tools.earlier_custom_call(item.name, item.input, item.call_id)
    else:
        call = client_tools.earlier_call(
            item.name, item.arguments, item.call_id, f"{param}.arguments", conversation.RESPONSES
        )
    if messages and messages[-1].role == "assistant":
        messages[-1] = replace(messages[-1], calls=(*messages[-1].calls, call))
    else:
        messages.append(EarlierMessage(role="assistant", calls=(call,)))


def sendable(reasoning: Iterable[ReasoningBlock]) -> tuple[ReasoningBlock, ...]:
    """Return the reasoning blocks that a provider wants back, without text for people."""
    return tuple(replace(it, text="") for it in reasoning if it.data)


def _as_said(message: Message) -> EarlierMessage:
    match message:
        case UserMessage():
            return EarlierMessage(role="user", text=message.text, parts=message.parts)
        case AssistantMessage():
            return EarlierMessage(
                role="assistant",
                text=message.text,
                calls=message.calls,
                reasoning=sendable(message.reasoning) if message.calls else (),
            )
        case ToolMessage():
            return EarlierMessage(
                role="tool",
                call=message.call,
                text=message.text,
                parts=message.parts,
                failed=message.failed,
            )


def _text(content: bodies.ItemContent, param: str) -> str:
    text, parts = _content(content, param)
    if parts:
        raise bad_request("only text is supported", param=param)
    return text


def _content(content: bodies.ItemContent, param: str) -> tuple[str, tuple[Part, ...]]:
    if content is None or isinstance(content, str):
        return well_formed(content or ""), ()
    texts: list[str] = []
    parts: list[Part] = []
    for number, part in enumerate(content):
        match part:
            case bodies.InputText() | bodies.OutputText():
                texts.append(part.text)
            case client_content.Refusal():
                texts.append(part.refusal)
            case bodies.ReasoningText():
                pass  # only in items of reasoning, which are left out
            case bodies.InputImage():
                parts.append(_image(part, f"{param}[{number}].image_url"))
            case bodies.InputFile():
                parts.append(_file(part, f"{param}[{number}]"))
    return well_formed("\n".join(texts)), tuple(parts)


def _image(part: bodies.InputImage, param: str) -> Part:
    if part.image_url is None:
        raise _not_kept(param)
    try:
        return client_content.image_from_url(part.image_url)
    except DefinitionError as exc:
        raise conversation.RESPONSES.invalid_value(str(exc), param) from exc


def _file(part: bodies.InputFile, param: str) -> Part:
    name = part.filename or ""
    field = "file_url" if part.file_data is None else "file_data"
    try:
        if part.file_data is not None:
            return client_content.file_from_data(part.file_data, name=name)
        if part.file_url is not None:
            return client_content.file_from_url(part.file_url, name=name)
    except DefinitionError as exc:
        raise conversation.RESPONSES.invalid_value(str(exc), f"{param}.{field}") from exc
    raise _not_kept(f"{param}.{field}")


def _not_kept(param: str) -> HttpError:
    return bad_request(
        "the server stores no files: send the file in the input, or a URL to fetch it from",
        param=param,
    )
