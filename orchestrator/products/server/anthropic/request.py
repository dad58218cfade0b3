"""Converts a request for a message to an inbound request; no parameter is ignored silently."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, assert_never

from orchestrator.agents import Agent, CallId, DefinitionError, Part, ToolCall
from orchestrator.delegation import AnswerTerms
from orchestrator.delegation.events import EarlierMessage
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.sessions import InboundRequest
from orchestrator.products.server.anthropic import bodies
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.openai import client_content, client_tools
from orchestrator.products.server.openai.answer_format import (
    ResponseJson,
    answer_opening,
    requested_schema,
)
from orchestrator.products.server.openai.conversation import (
    MESSAGES,
    LocatedMessage,
    read_conversation,
    require_goal,
)
from orchestrator.products.server.openai.requested_settings import Parameter, keep_settings
from orchestrator.products.server.transport.errors import bad_request
from orchestrator.products.server.transport.session_headers import context_of

CHOICES: Final[Mapping[str, str]] = {"auto": "auto", "any": "required", "none": "none"}
"""The values of `tool_choice` that name no tool, in our words."""
EFFORTS: Final = ((4_096, "low"), (16_384, "medium"))
"""The most tokens of reasoning for each effort; more is high."""


def to_inbound_request(
    call: ApiCall, request: bodies.CountRequest, unknown: Iterable[str]
) -> tuple[InboundRequest, Mapping[str, str]]:
    """Return the inbound request of a body, and the headers that name ignored parameters."""
    agent, settings = call.server.agent(request.model), call.server.settings
    chosen = _client_tools(agent, request, ignores_others=settings.ignores_hosted_tools)
    kept = keep_settings(
        agent,
        _parameters(request, chosen, has_tools=bool(chosen.tools or agent.tools)),
        [*unknown, *chosen.ignored],
        MESSAGES,
        is_strict=settings.is_strict,
    )
    conversation = read_conversation(
        list(_messages(request.messages)), _instructions(request), MESSAGES, param="messages"
    )
    require_goal(agent, conversation, chosen.tools)
    form = request.output_config.format if request.output_config is not None else None
    asked = None if form is None else ResponseJson(name="answer", schema=form.schema)
    schema = requested_schema(asked, agent, MESSAGES, "output_config.format")
    thinking = request.thinking
    inbound = InboundRequest(
        agent=agent,
        message=conversation.message,
        context=context_of(call.headers),
        owner=call.owner,
        instructions=conversation.instructions,
        history=conversation.history,
        kind=SessionKind.MESSAGE,
        metadata=_metadata(request),
        states=(call.request_state(opening=answer_opening(agent, schema)),),
        tools=chosen.tools,
        terms=AnswerTerms(
            kept.settings,
            schema,
            keeps_reasoning=thinking is not None and thinking.type != "disabled",
        ),
    )
    return inbound, kept.headers


def _parameters(
    request: bodies.CountRequest, chosen: client_tools.ChosenTools, *, has_tools: bool
) -> Iterator[Parameter]:
    """Yield the model settings of a body."""
    if isinstance(request, bodies.MessageRequest):
        yield Parameter("max_tokens", "max_output_tokens", request.max_tokens)
        yield Parameter("temperature", "temperature", request.temperature)
        yield Parameter("top_p", "top_p", request.top_p)
        yield Parameter("stop_sequences", "stop", request.stop_sequences or None)
    if (config := request.output_config) is not None and config.effort is not None:
        yield Parameter("output_config.effort", "reasoning_effort", config.effort)
    elif request.thinking is not None:
        yield Parameter("thinking", "reasoning_effort", _effort(request.thinking))
    choice = request.tool_choice
    if has_tools and choice is not None and choice.disable_parallel_tool_use is not None:
        is_parallel = not choice.disable_parallel_tool_use
        yield Parameter("tool_choice", "parallel_tool_calls", is_parallel)
    yield Parameter("tool_choice", "tool_choice", chosen.choice)


def _effort(thinking: bodies.Thinking) -> str | None:
    """Return the effort for a number of tokens; otherwise the agent's own effort holds."""
    if thinking.type != "enabled":
        return None
    tokens = thinking.budget_tokens or 0
    return next((effort for most, effort in EFFORTS if tokens <= most), "high")


def _metadata(request: bodies.CountRequest) -> dict[str, str]:
    notes = request.metadata if isinstance(request, bodies.MessageRequest) else None
    return {"user": notes.user_id} if notes is not None and notes.user_id else {}


def _client_tools(
    agent: Agent[Any], request: bodies.CountRequest, *, ignores_others: bool
) -> client_tools.ChosenTools:
    definitions: list[client_tools.ToolDefinition] = []
    ignored: list[str] = []
    for index, tool in enumerate(request.tools or ()):
        param = f"tools[{index}]"
        kind = tool.type or client_tools.CUSTOM
        if client_tools.require_client_tool(kind, f"{param}.type", ignores_others=ignores_others):
            definitions.append(
                client_tools.ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters=tool.input_schema,
                    param=f"{param}.name",
                )
            )
        else:
            ignored.append(kind)
    tools = client_tools.made_tools(agent, definitions, MESSAGES)
    choice: object = None
    if (asked := request.tool_choice) is not None:
        choice = CHOICES.get(asked.type, {"type": asked.type, "name": asked.name})
    return client_tools.choose_tools(agent, tools, choice, MESSAGES, ignored=ignored)


def _instructions(request: bodies.CountRequest) -> Iterator[str]:
    if request.system:
        yield _text(request.system)
    for message in request.messages:
        if isinstance(message, bodies.SystemTurn):
            yield _text(message.content)


def _messages(messages: Sequence[bodies.Turn]) -> Iterator[LocatedMessage]:
    """Yield the messages of the conversation, without its instructions."""
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        match message:
            case bodies.SystemTurn():
                continue
            case bodies.UserTurn(str(text)):
                yield LocatedMessage(EarlierMessage(role="user", text=text), param, param)
            case bodies.UserTurn(list(blocks)):
                yield from _user(blocks, param)
            case bodies.AssistantTurn():
                if (said := _assistant(message)) is not None:
                    yield LocatedMessage(said, param, param)
            case _:
                raise AssertionError("content is a text or a list")


def _user(blocks: Sequence[bodies.UserBlock], param: str) -> Iterator[LocatedMessage]:
    """Yield the results in a message, then its other content."""
    texts: list[str] = []
    parts: list[Part] = []
    for index, block in enumerate(blocks):
        where = f"{param}.content[{index}]"
        if isinstance(block, bodies.ToolResultBlock):
            yield LocatedMessage(_result(block, where), where, f"{where}.tool_use_id")
        else:
            _add(block, texts, parts, where)
    if texts or parts:
        text = "\n\n".join(texts)
        said = EarlierMessage(role="user", text=text, parts=tuple(parts))
        yield LocatedMessage(said, param, param)


def _result(block: bodies.ToolResultBlock, param: str) -> EarlierMessage:
    texts: list[str] = []
    parts: list[Part] = []
    if isinstance(block.content, str):
        texts.append(block.content)
    else:
        for index, piece in enumerate(block.content):
            _add(piece, texts, parts, f"{param}.content[{index}]")
    return EarlierMessage(
        role="tool",
        call=block.tool_use_id,
        text="\n\n".join(texts),
        parts=tuple(parts),
        failed=bool(block.is_error),
    )


def _add(
    block: client_content.TextPart | bodies.ImageBlock | bodies.DocumentBlock,
    texts: list[str],
    parts: list[Part],
    param: str,
) -> None:
    try:
        match block:
            case client_content.TextPart(text):
                texts.append(text)
            case bodies.ImageBlock(source):
                parts.append(_image(source, param))
            case bodies.DocumentBlock(source, title):
                parts.append(_part(source, title or "", param))
            case _:
                assert_never(block)
    except DefinitionError as exc:
        raise MESSAGES.invalid_value(f"this block is invalid: {exc}", param) from exc


def _image(source: bodies.Source, param: str) -> Part:
    match source:
        case bodies.UrlSource(url):
            return client_content.image_from_url(url)
        case bodies.Base64Source():
            url = f"data:{source.media_type};base64,{source.data}"
            return client_content.image_from_url(url)
        case _:
            return _part(source, "", param)


def _part(source: bodies.Source, name: str, param: str) -> Part:
    match source:
        case bodies.Base64Source():
            url = f"data:{source.media_type};base64,{source.data}"
            return client_content.file_from_data(url, name=name)
        case bodies.UrlSource(url):
            return client_content.file_from_url(url, name=name)
        case bodies.TextSource():
            return Part(source.media_type, data=source.data.encode(), name=name)
        case bodies.FileSource():
            raise bad_request(
                "the server stores no files: send the bytes of the file as base64",
                param=f"{param}.source",
            )
        case _:
            assert_never(source)


def _assistant(message: bodies.AssistantTurn) -> EarlierMessage | None:
    """Return an answer without its reasoning; None if it has nothing else."""
    if isinstance(message.content, str):
        return EarlierMessage(role="assistant", text=message.content)
    calls = tuple(
        ToolCall(it.name, it.input, id=CallId(it.id))
        for it in message.content
        if isinstance(it, bodies.ToolUseBlock)
    )
    text = _text([it for it in message.content if isinstance(it, client_content.TextPart)])
    return EarlierMessage(role="assistant", text=text, calls=calls) if text or calls else None


def _text(content: str | Sequence[client_content.TextPart | bodies.SystemText]) -> str:
    return content if isinstance(content, str) else "\n\n".join(it.text for it in content)
