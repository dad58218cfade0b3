"""Reading what a client asks of `POST /v1/responses`.

What changes the meaning and cannot be had is refused, with the name of the parameter.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import attrs

from agents import (
    Agent,
    AssistantMessage,
    DefinitionError,
    Message,
    Part,
    Pipeline,
    Tool,
    ToolMessage,
    UserMessage,
    unanswered_calls,
    well_formed,
)
from delegation.events import Said
from orchestrator.server.openai.client_content import (
    call_of,
    client_tool,
    file_from_data,
    file_from_url,
    image_from_url,
    reserved_tool_names,
)
from orchestrator.server.openai.responses.bodies import (
    Content,
    CreateResponse,
    FunctionTool,
    InputFile,
    InputImage,
    InputText,
    Item,
    OutputText,
    Refusal,
)
from orchestrator.server.transport.errors import HttpError, bad_request

LOGPROBS: Final = "message.output_text.logprobs"


@attrs.frozen(kw_only=True)
class ParsedInput:
    """What the input says, as an agent hears it."""

    history: tuple[Said, ...]
    message: UserMessage | None
    """None goes on with what a function returned."""
    system_instructions: str
    """What system and developer say: it holds for the whole conversation."""


def require_supported(wanted: CreateResponse) -> None:
    """Refuse what cannot be had."""
    for name in ("conversation", "prompt", "moderation"):
        if getattr(wanted, name) is not None:
            raise bad_request(f"{name!r} cannot be had here", param=name)
    if wanted.text and wanted.text.format and wanted.text.format.type != "text":
        raise bad_request(
            "the form of an answer is the agent's own; 'text.format' can only be 'text'",
            param="text.format",
        )
    if wanted.top_logprobs or LOGPROBS in (wanted.include or ()):
        param = "top_logprobs" if wanted.top_logprobs else "include"
        raise bad_request("the probabilities of tokens are not known here", param=param)
    if wanted.tool_choice not in (None, "auto", "none"):
        raise bad_request(
            "an agent decides by itself what it calls: 'tool_choice' can be 'auto' or 'none'",
            param="tool_choice",
        )
    if wanted.background and wanted.store is False:
        raise bad_request(
            "a response in the background is one to ask for later, so it must be stored:"
            " leave out 'store', or 'background'",
            param="store",
        )
    if wanted.background and wanted.tools:
        raise bad_request(
            "nobody waits for the calls of a response in the background; leave out 'tools',"
            " or 'background'",
            param="tools",
        )
    if wanted.tools and wanted.parallel_tool_calls is False:
        raise bad_request(
            "how many functions an agent calls at once cannot be limited",
            param="parallel_tool_calls",
        )


def client_tools(wanted: CreateResponse, agent: Agent[Any]) -> tuple[Tool, ...]:
    """Return the functions that the client runs, as tools of the agent."""
    names = reserved_tool_names(agent)
    tools: list[Tool] = []
    for number, given in enumerate(wanted.tools or ()):
        tools.append(_tool(given, names, f"tools[{number}]"))
        names.add(given.name)
    if tools and isinstance(agent, Pipeline):
        raise bad_request(
            f"{agent.name!r} is a program, which calls no functions", param="tools"
        )
    return () if wanted.tool_choice == "none" else tuple(tools)


def _tool(given: FunctionTool, taken: Collection[str], param: str) -> Tool:
    if given.type != "function":
        raise bad_request(
            f"a tool of type {given.type!r} cannot be had here; functions can, and agents"
            " have tools of their own",
            param=f"{param}.type",
        )
    if not given.name or given.name in taken:
        raise _wrong(
            f"a function cannot be called {given.name!r}: the agent has a tool of that name"
            if given.name
            else "a function has a name",
            f"{param}.name",
        )
    return client_tool(given.name, given.description, given.parameters)


def parse_input(wanted: CreateResponse, before: Sequence[Message]) -> ParsedInput:
    """Return what the input says, behind the conversation that it goes on with."""
    given = wanted.input
    items = [Item(content=given)] if isinstance(given, str) else given
    standing: list[str] = []
    said: list[Said] = []
    calls: set[str] = {call.id for one in before for call in getattr(one, "calls", ())}
    for number, item in enumerate(items):
        param = "input" if isinstance(given, str) else f"input[{number}]"
        if item.type == "message" and item.role in {"system", "developer"}:
            standing.append(_text(item.content, f"{param}.content"))
        elif item.type == "function_call":
            _add_call(said, item, calls, param)
            calls.add(item.call_id)
        else:
            said.append(_parse_item(item, param))
    _require_answered([call.id for call in unanswered_calls(before)], said)
    if not said or said[-1].role == "assistant":
        raise _wrong(
            "the input must end with what a user says, or with what a function returned",
            "input",
        )
    message: UserMessage | None = None
    if said[-1].role == "user":
        last = said.pop()
        message = UserMessage(last.text, last.parts)
    return ParsedInput(
        history=(*map(_copied, before), *said),
        message=message,
        system_instructions="\n\n".join(standing),
    )


def _parse_item(item: Item, param: str) -> Said:
    match item.type, item.role:
        case "message", "user":
            text, parts = _content(item.content, f"{param}.content")
            if not text and not parts:
                raise _wrong("there is nothing in it", param)
            return Said(role="user", text=text, parts=parts)
        case "message", _:
            return Said(role="assistant", text=_text(item.content, f"{param}.content"))
        case "function_call_output", _:
            text = _text(item.output, f"{param}.output")
            return Said(role="tool", call=item.call_id, text=text)
        case _:
            raise bad_request(
                f"an item of type {item.type!r} cannot be had here; messages, function_call"
                " and function_call_output can",
                param=f"{param}.type",
            )


def _add_call(
    messages: list[Said], item: Item, taken: Collection[str], param: str
) -> None:
    """Add a call to what an assistant has said just before it."""
    if not item.call_id or item.call_id in taken:
        raise _wrong(
            f"no two calls have the call_id {item.call_id!r}"
            if item.call_id
            else "a function_call has a call_id",
            f"{param}.call_id",
        )
    if not item.name:
        raise _wrong("a function_call has a name", f"{param}.name")
    try:
        call = call_of(item.name, item.arguments, id_=item.call_id)
    except DefinitionError as exc:
        raise _wrong(str(exc), f"{param}.arguments") from exc
    if messages and messages[-1].role == "assistant":
        messages[-1] = attrs.evolve(messages[-1], calls=(*messages[-1].calls, call))
    else:
        messages.append(Said(role="assistant", calls=(call,)))


def _copied(message: Message) -> Said:
    match message:
        case UserMessage():
            return Said(role="user", text=message.text, parts=message.parts)
        case AssistantMessage():
            return Said(role="assistant", text=message.text, calls=message.calls)
        case ToolMessage():
            return Said(role="tool", call=message.call, text=message.text)


def _require_answered(calls: Iterable[str], messages: Iterable[Said]) -> None:
    """Refuse calls without what they returned, and the other way round.

    Args:
        calls: those that were not answered before.
        said: what is said now.
    """
    open_: dict[str, None] = dict.fromkeys(calls)
    for one in messages:
        if one.role == "tool":
            if one.call not in open_:
                raise _wrong(
                    f"no function_call has the call_id {one.call!r} of this"
                    " function_call_output",
                    "input",
                )
            del open_[one.call]
        elif open_:
            break
        else:
            open_ = dict.fromkeys(call.id for call in one.calls)
    if open_:
        raise _wrong(
            "there is no function_call_output for the function_call"
            f" {', '.join(map(repr, open_))}",
            "input",
        )


def _text(content: str | list[Content], param: str) -> str:
    text, parts = _content(content, param)
    if parts:
        raise bad_request("only text can be had here", param=param)
    return text


def _content(content: str | list[Content], param: str) -> tuple[str, tuple[Part, ...]]:
    if isinstance(content, str):
        return well_formed(content), ()
    texts: list[str] = []
    parts: list[Part] = []
    for number, part in enumerate(content):
        match part:
            case InputText() | OutputText():
                texts.append(part.text)
            case Refusal():
                texts.append(part.refusal)
            case InputImage():
                parts.append(_image(part, f"{param}[{number}].image_url"))
            case InputFile():
                parts.append(_file(part, f"{param}[{number}]"))
    return well_formed("\n".join(texts)), tuple(parts)


def _image(given: InputImage, param: str) -> Part:
    if given.image_url is None:
        raise _not_kept(param)
    try:
        return image_from_url(given.image_url)
    except DefinitionError as exc:
        raise _wrong(str(exc), param) from exc


def _file(given: InputFile, param: str) -> Part:
    name = given.filename or ""
    where = "file_url" if given.file_data is None else "file_data"
    try:
        if given.file_data is not None:
            return file_from_data(given.file_data, name=name)
        if given.file_url is not None:
            return file_from_url(given.file_url, name=name)
    except DefinitionError as exc:
        raise _wrong(str(exc), f"{param}.{where}") from exc
    raise _not_kept(f"{param}.{where}")


def _not_kept(param: str) -> HttpError:
    return bad_request(
        "files cannot be sent beforehand; send it in the input, or say where it can be"
        " fetched",
        param=param,
    )


def _wrong(message: str, param: str) -> HttpError:
    return bad_request(message, param=param, code="invalid_value")
