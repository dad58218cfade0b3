"""From what a client of chat completions sends to what an agent is asked.

Nothing is passed over in silence that would change what the answer means: it is refused, and the
refusal names the part of the request that it is about.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, assert_never

from agents import (
    Agent,
    DefinitionError,
    Part,
    Pipeline,
    Tool,
    ToolCall,
    UserMessage,
)
from delegation.events import Said
from orchestrator.doors.inbound import InboundRequest
from orchestrator.server.openai.chat.bodies import (
    Assistant,
    AudioPart,
    ChatRequest,
    Developer,
    File,
    FilePart,
    FunctionCall,
    ImagePart,
    RefusalPart,
    System,
    TextPart,
    ToolAnswer,
    User,
)
from orchestrator.server.openai.client_content import (
    call_of,
    client_tool,
    file_from_data,
    image_from_url,
    reserved_tool_names,
)
from orchestrator.server.transport.errors import HttpError, bad_request

INVALID_BODY: Final = "invalid_body"
TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def to_inbound_request(
    agent: Agent[Any],
    request: ChatRequest,
    context: Mapping[str, str],
    labels: Mapping[str, str],
) -> InboundRequest:
    """Return what an agent is asked by a request.

    Args:
        agent: who is meant.
        request: what was sent.
        context: where it comes from.
        labels: by what its session is known again.
    """
    _require_supported(request)
    tools = _tools(agent, request)
    said = list(_conversation(request))
    _require_valid_conversation(said)
    where, last = said[-1]
    message = None
    if last.role == "user":
        said.pop()
        message = UserMessage(last.text, last.parts)
    if isinstance(agent, Pipeline):
        _require_goal(agent, message, tools, where)
    return InboundRequest(
        agent=agent,
        message=message,
        context=context,
        instructions="\n\n".join(_instructions(request)),
        history=tuple(it for _, it in said),
        labels=labels,
        tools=tools,
    )


def _require_supported(request: ChatRequest) -> None:
    """Refuse what would change the meaning of the answer, and is not to be had."""
    if request.n is not None and request.n != 1:
        raise bad_request("an agent gives one answer: n can only be 1", param="n")
    if request.logprobs or request.top_logprobs:
        param = "logprobs" if request.logprobs else "top_logprobs"
        raise bad_request("an agent has no logprobs: leave them out", param=param)
    if request.response_format is not None and request.response_format.type != "text":
        raise bad_request(
            "what an agent answers is said where it is defined (Agent.output): leave"
            " response_format out",
            param="response_format",
        )
    if request.audio is not None or set(request.modalities or ()) - {"text"}:
        param = "modalities" if request.audio is None else "audio"
        raise bad_request("an agent answers in text only", param=param)
    for name in ("functions", "function_call"):
        if getattr(request, name) is not None:
            raise bad_request(f"{name} is out of use: send tools instead", param=name)
    if request.web_search_options is not None:
        raise bad_request(
            "an agent searches with the tools that it has: leave this out",
            param="web_search_options",
        )
    if request.stream_options is not None and not request.stream:
        raise bad_request(
            "stream_options are for streams: send stream=true with them",
            param="stream_options",
            code=INVALID_BODY,
        )


def _tools(agent: Agent[Any], request: ChatRequest) -> tuple[Tool, ...]:
    """Return what the client runs itself."""
    if request.tool_choice not in (None, "auto", "none"):
        raise bad_request(
            "an agent chooses its tools itself: tool_choice can be 'auto' or 'none'",
            param="tool_choice",
        )
    tools = request.tools or []
    own = reserved_tool_names(agent)
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        name = tool.function.name
        param = f"tools[{index}].function.name"
        if not TOOL_NAME.fullmatch(name):
            raise bad_request(
                f"{name!r} cannot be the name of a tool: it has 1 to 64 of the letters a to"
                " z, digits, '-' and '_'",
                param=param,
                code=INVALID_BODY,
            )
        if name in own:
            raise bad_request(
                f"{agent.name} has a tool called {name!r} of its own: give yours another"
                " name",
                param=param,
                code="tool_name_taken",
            )
        if name in seen:
            raise bad_request(
                f"there are two tools called {name!r}", param=param, code=INVALID_BODY
            )
        seen.add(name)
    if tools and request.parallel_tool_calls is False:
        raise bad_request(
            "an agent may call several tools at once: leave parallel_tool_calls out",
            param="parallel_tool_calls",
        )
    is_free = request.tool_choice != "none"
    if not is_free:
        return ()
    specs = [tool.function for tool in tools]
    return tuple(client_tool(it.name, it.description, it.parameters) for it in specs)


def _require_goal(
    agent: Agent[Any],
    message: UserMessage | None,
    tools: tuple[Tool, ...],
    where: str,
) -> None:
    """Refuse what a program cannot be told."""
    what = f"{agent.name} is a pipeline, a program that is given the last user message"
    if tools:
        raise bad_request(f"{what}: it calls no tools of a client", param="tools")
    if message is None:
        raise bad_request(f"{what}: send one", param=where)
    if message.parts:
        raise bad_request(f"{what}: it takes neither images nor files", param=where)


def _instructions(request: ChatRequest) -> Iterator[str]:
    for said in request.messages:
        if isinstance(said, System | Developer):
            yield _text(said.content)


def _conversation(request: ChatRequest) -> Iterator[tuple[str, Said]]:
    """Yield what was said, and where in the request that stands."""
    for index, said in enumerate(request.messages):
        where = f"messages[{index}]"
        match said:
            case System() | Developer():
                continue
            case User():
                yield where, _user(said, f"{where}.content")
            case Assistant():
                yield where, _assistant(said, where)
            case ToolAnswer():
                text = _text(said.content)
                yield where, Said(role="tool", text=text, call=said.tool_call_id)
            case _:
                assert_never(said)


def _require_valid_conversation(messages: list[tuple[str, Said]]) -> None:
    """Refuse a conversation that no model could be shown, or that leaves nothing to answer."""
    waiting: set[str] = set()
    for where, it in messages:
        if it.role == "tool":
            if it.call not in waiting:
                raise bad_request(
                    f"no call before this message has the id {it.call!r} and waits for an"
                    " answer: a tool message follows the assistant message that calls it",
                    param=f"{where}.tool_call_id",
                    code=INVALID_BODY,
                )
            waiting.remove(it.call)
            continue
        _require_no_open_calls(waiting, where)
        waiting = {call.id for call in it.calls}
    if not messages:
        raise bad_request(
            "there is nothing to answer: send a user message",
            param="messages",
            code=INVALID_BODY,
        )
    where, last = messages[-1]
    if last.role == "assistant" and not last.calls:
        raise bad_request(
            "the conversation ends with an assistant message, so there is nothing to"
            " answer: an agent does not go on with what it has said; end with a user"
            " message, or with what the tools have answered",
            param=where,
            code=INVALID_BODY,
        )
    _require_no_open_calls(waiting, where)


def _require_no_open_calls(waiting: set[str], where: str) -> None:
    if waiting:
        raise bad_request(
            f"the calls {', '.join(sorted(waiting))} have no answer: send a tool message"
            " for each, right behind the assistant message",
            param=where,
            code=INVALID_BODY,
        )


def _user(message: User, where: str) -> Said:
    if isinstance(message.content, str):
        return Said(role="user", text=message.content)
    texts: list[str] = []
    parts: list[Part] = []
    for index, part in enumerate(message.content):
        param = f"{where}[{index}]"
        try:
            match part:
                case TextPart():
                    texts.append(part.text)
                case ImagePart():
                    parts.append(image_from_url(part.image_url.url))
                case FilePart():
                    parts.append(_file(part.file, param))
                case AudioPart():
                    raise bad_request("agents do not hear: send text", param=param)
                case _:
                    assert_never(part)
        except DefinitionError as exc:
            raise HttpError(
                400, f"this part is wrong: {exc}", code=INVALID_BODY, param=param
            ) from exc
    return Said(role="user", text="\n\n".join(texts), parts=tuple(parts))


def _assistant(message: Assistant, where: str) -> Said:
    calls = tuple(
        _call(call, f"{where}.tool_calls[{index}]")
        for index, call in enumerate(message.tool_calls or ())
    )
    return Said(role="assistant", text=_text(message.content or ""), calls=calls)


def _call(call: FunctionCall, where: str) -> ToolCall:
    try:
        return call_of(call.function.name, call.function.arguments, id_=call.id)
    except DefinitionError as exc:
        raise HttpError(
            400, str(exc), code=INVALID_BODY, param=f"{where}.function.arguments"
        ) from exc


def _file(file: File, where: str) -> Part:
    if file.file_data is None:
        raise bad_request(
            "no files are kept here: send file_data, as a data: URL",
            param=f"{where}.file",
        )
    return file_from_data(file.file_data, name=file.filename)


def _text(content: str | list[TextPart] | list[TextPart | RefusalPart]) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(
        part.text if isinstance(part, TextPart) else part.refusal for part in content
    )
