"""Converts a chat completion to an inbound request; no parameter is ignored silently."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, assert_never

from msgspec.structs import replace

from orchestrator.agents import Agent, DefinitionError, Part, ToolCall
from orchestrator.agents.tools.text_input import TextInput
from orchestrator.delegation import AnswerTerms
from orchestrator.delegation.events import EarlierMessage
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import SessionState
from orchestrator.ports.sessions import InboundRequest
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.openai import client_tools
from orchestrator.products.server.openai.answer_format import answer_opening, requested_schema
from orchestrator.products.server.openai.chat import bodies
from orchestrator.products.server.openai.client_content import (
    Refusal,
    TextPart,
    file_from_data,
    image_from_url,
)
from orchestrator.products.server.openai.conversation import (
    CHAT,
    LocatedMessage,
    read_conversation,
    require_goal,
)
from orchestrator.products.server.openai.requested_settings import Parameter, keep_settings
from orchestrator.products.server.transport.errors import bad_request
from orchestrator.products.server.transport.session_headers import context_of

SAMPLING: Final = (
    *("temperature", "top_p", "stop", "seed"),
    *("presence_penalty", "frequency_penalty", "reasoning_effort"),
)
"""The parameters that have the same names in `ModelSettings`."""
NO_TOOLS: Final = client_tools.ChosenTools(())
"""The tools of most clients."""


def to_inbound_request(
    call: ApiCall, request: bodies.ChatRequest, kind: SessionKind, unknown: Iterable[str]
) -> tuple[InboundRequest, Mapping[str, str]]:
    """Return the inbound request of a body, and the headers that name ignored parameters."""
    agent, settings = call.server.agent(request.model), call.server.settings
    _require_supported(request)
    chosen = NO_TOOLS
    if (
        request.tools
        or request.functions
        or not (request.tool_choice is None and request.function_call is None)
    ):
        chosen = _client_tools(agent, request, ignores_others=settings.ignores_hosted_tools)
    tools = chosen.tools
    kept = keep_settings(
        agent,
        _parameters(request, chosen, has_tools=bool(tools or agent.tools)),
        [*unknown, *chosen.ignored, *_unkept(request)],
        CHAT,
        is_strict=settings.is_strict,
    )
    conversation = read_conversation(
        list(_messages(request)), _instructions(request), CHAT, param="messages"
    )
    require_goal(agent, conversation, tools)
    schema = requested_schema(request.response_format, agent, CHAT, "response_format")
    states: tuple[SessionState, ...] = (call.request_state(opening=answer_opening(agent, schema)),)
    if tools:
        has_functions = bool(request.functions and not request.tools)
        made = client_tools.client_tools_state(tools, has_functions=has_functions)
        states = (*states, made)
    inbound = InboundRequest(
        agent=agent,
        message=conversation.message,
        context=context_of(call.headers),
        owner=call.owner,
        instructions=conversation.instructions,
        history=conversation.history,
        kind=kind,
        metadata=_metadata(request),
        states=states,
        tools=tools,
        terms=AnswerTerms(
            kept.settings,
            schema,
            # A stream shows the reasoning while it comes.
            keeps_reasoning=bool(request.include_reasoning and not request.stream),
        ),
    )
    return inbound, kept.headers


def _parameters(
    request: bodies.ChatRequest, chosen: client_tools.ChosenTools, *, has_tools: bool
) -> Iterator[Parameter]:
    """Yield the model settings of a body."""
    for name in SAMPLING:
        if (value := getattr(request, name)) is not None:
            yield Parameter(name, name, value)
    # The newer name wins over the older one.
    for name in ("max_completion_tokens", "max_tokens"):
        if (most := getattr(request, name)) is not None:
            yield Parameter(name, "max_output_tokens", most)
            break
    if request.logprobs:
        yield Parameter("logprobs", "top_logprobs", 0)
        yield Parameter("top_logprobs", "top_logprobs", request.top_logprobs)
    if has_tools:
        name = "parallel_tool_calls"
        yield Parameter(name, name, request.parallel_tool_calls)
    yield Parameter("tool_choice", "tool_choice", chosen.choice)


def _unkept(request: bodies.ChatRequest) -> Iterator[str]:
    """Yield the parameters whose values have no effect."""
    if request.top_logprobs and not request.logprobs:
        yield "top_logprobs"


def _metadata(request: bodies.ChatRequest) -> dict[str, str]:
    """Return the client's metadata."""
    notes = dict(request.metadata or {})
    if request.user:
        notes.setdefault("user", request.user)
    return notes


def _require_supported(request: bodies.ChatRequest) -> None:
    """Refuse unsupported options that would change the meaning of the answer."""
    if request.audio is not None or set(request.modalities or ()) - {"text"}:
        param = "modalities" if request.audio is None else "audio"
        raise bad_request("an agent answers only in text", param=param)
    if request.web_search_options is not None:
        raise bad_request(
            "an agent searches with its own tools: leave out 'web_search_options'",
            param="web_search_options",
        )
    if request.stream_options is not None and not request.stream:
        raise bad_request(
            "stream_options are for streams: send stream=true with them",
            param="stream_options",
            code=CHAT.invalid,
        )


def _client_tools(
    agent: Agent[Any], request: bodies.ChatRequest, *, ignores_others: bool
) -> client_tools.ChosenTools:
    definitions: list[client_tools.ToolDefinition] = []
    ignored: list[str] = []
    for index, tool in enumerate(request.tools or ()):
        param = f"tools[{index}]"
        if client_tools.require_client_tool(
            tool.type, f"{param}.type", ignores_others=ignores_others
        ):
            definitions.append(_definition(tool, param))
        else:
            ignored.append(tool.type)
    for index, function in enumerate(request.functions or ()):
        definitions.append(_function(function, f"functions[{index}].name"))
    tools = client_tools.made_tools(agent, definitions, CHAT)
    choice = request.tool_choice
    if choice is None and isinstance(request.function_call, dict):
        choice = {"type": client_tools.FUNCTION, **request.function_call}
    elif choice is None:
        choice = request.function_call
    return client_tools.choose_tools(agent, tools, choice, CHAT, ignored=ignored)


def _definition(tool: bodies.ChatTool, param: str) -> client_tools.ToolDefinition:
    if tool.type == client_tools.FUNCTION and tool.function is not None:
        return _function(tool.function, f"{param}.function.name")
    if tool.type == client_tools.FUNCTION or tool.custom is None:
        raise CHAT.invalid_value(f"a {tool.type} tool needs a name", f"{param}.{tool.type}")
    form = tool.custom.format
    grammar = form.grammar if isinstance(form, bodies.ChatGrammar) else None
    return client_tools.ToolDefinition(
        name=tool.custom.name,
        description=tool.custom.description,
        param=f"{param}.custom.name",
        text_input=TextInput(grammar.syntax, grammar.definition)
        if grammar is not None
        else TextInput(),
    )


def _function(function: bodies.FunctionSpec, param: str) -> client_tools.ToolDefinition:
    return client_tools.ToolDefinition(
        name=function.name,
        description=function.description,
        parameters=function.parameters,
        param=param,
    )


def _instructions(request: bodies.ChatRequest) -> Iterator[str]:
    for message in request.messages:
        if isinstance(message, bodies.System | bodies.Developer):
            yield _text(message.content)


def _messages(request: bodies.ChatRequest) -> Iterator[LocatedMessage]:
    """Yield the messages of the conversation, without its instructions."""
    last_calls: dict[str, str] = {}
    """The ids of the last function calls without an id, by function."""
    for index, message in enumerate(request.messages):
        param = f"messages[{index}]"
        match message:
            case bodies.System() | bodies.Developer():
                continue
            case bodies.User():
                converted = _user(message, f"{param}.content")
            case bodies.Assistant():
                converted = _assistant(message, param)
                if message.function_call is not None:
                    call = _unnamed_call(message.function_call, index, param)
                    last_calls[call.name] = call.id
                    converted = replace(converted, calls=(*converted.calls, call))
            case bodies.ToolAnswer():
                said = _user(message, f"{param}.content")
                converted = replace(said, role="tool", call=message.tool_call_id)
            case bodies.FunctionAnswer():
                id_ = last_calls.get(message.name, message.name)
                converted = EarlierMessage(role="tool", text=message.content or "", call=id_)
            case _:
                assert_never(message)
        yield LocatedMessage(converted, param, f"{param}.tool_call_id")


def _user(message: bodies.User | bodies.ToolAnswer, param: str) -> EarlierMessage:
    if isinstance(message.content, str):
        return EarlierMessage(role="user", text=message.content)
    texts: list[str] = []
    parts: list[Part] = []
    for index, part in enumerate(message.content):
        part_param = f"{param}[{index}]"
        try:
            match part:
                case TextPart():
                    texts.append(part.text)
                case bodies.ImagePart():
                    parts.append(image_from_url(part.image_url.url))
                case bodies.FilePart():
                    parts.append(_file(part.file, part_param))
                case bodies.AudioPart():
                    raise bad_request("audio is not supported: send text", param=part_param)
                case _:
                    assert_never(part)
        except DefinitionError as exc:
            raise CHAT.invalid_value(f"this part is invalid: {exc}", part_param) from exc
    return EarlierMessage(role="user", text="\n\n".join(texts), parts=tuple(parts))


def _assistant(message: bodies.Assistant, param: str) -> EarlierMessage:
    calls = tuple(
        _call(call, f"{param}.tool_calls[{index}]")
        for index, call in enumerate(message.tool_calls or ())
    )
    return EarlierMessage(role="assistant", text=_text(message.content or ""), calls=calls)


def _call(call: bodies.Call, param: str) -> ToolCall:
    if isinstance(call, bodies.CustomCall):
        return client_tools.earlier_custom_call(call.custom.name, call.custom.input, call.id)
    function = call.function
    where = f"{param}.function.arguments"
    return client_tools.earlier_call(function.name, function.arguments, call.id, where, CHAT)


def _unnamed_call(function: bodies.Function, index: int, param: str) -> ToolCall:
    """Return a call in the older form. Its id is its place in the conversation."""
    where = f"{param}.function_call.arguments"
    id_ = f"call_{index}"
    return client_tools.earlier_call(function.name, function.arguments, id_, where, CHAT)


def _file(file: bodies.File, param: str) -> Part:
    if file.file_data is None:
        raise bad_request(
            "the server stores no files: send file_data as a data: URL", param=f"{param}.file"
        )
    return file_from_data(file.file_data, name=file.filename)


def _text(content: str | list[TextPart] | list[TextPart | Refusal]) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(
        part.text if isinstance(part, TextPart) else part.refusal for part in content
    )
