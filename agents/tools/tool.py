"""What an agent may use: a tool, and how a plain function becomes one.

A tool gets the whole call, so that it can tell two equal calls apart by their id. It raises
`ToolError` for what the model should read; anything else that it raises ends the task.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, TypeVar, get_type_hints, overload

import attrs
import msgspec
import trio

from agents.errors import DefinitionError, ToolError
from agents.messages import ToolCall

ArgumentsT = TypeVar("ArgumentsT")

# What every provider accepts.
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@attrs.frozen(kw_only=True)
class Tool:
    """Something an agent may use, as the model sees it and as we run it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """The JSON schema of the arguments."""
    run: Callable[[ToolCall], Awaitable[str]]
    idempotent: bool = False
    """Safe to run again when a crash leaves it unknown whether it ran."""


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, idempotent: bool = False
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    idempotent: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, sync or async, from its type hints and docstring.

    A sync function runs in a worker thread. What the function returns is the answer: text as it
    is, anything else as JSON.
    """
    if function is None:
        return partial(_tool_from, name=name, idempotent=idempotent)
    return _tool_from(function, name=name, idempotent=idempotent)


def _tool_from(
    function: Callable[..., Any], *, name: str | None, idempotent: bool
) -> Tool:
    name = name if name is not None else function.__name__
    if not NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} cannot be the name of a tool: models write it, so it has 1 to 64 of"
            " the letters a to z, digits, '-' and '_'"
        )
    description, about = _documentation(function)
    arguments = _arguments_type(name, function, about)

    async def run(call: ToolCall) -> str:
        given = read_arguments(call, arguments)
        keywords = {
            field: getattr(given, field) for field in arguments.__struct_fields__
        }
        if inspect.iscoroutinefunction(function):
            result = await function(**keywords)
        else:
            result = await trio.to_thread.run_sync(partial(function, **keywords))
        return result if isinstance(result, str) else _as_json(name, result)

    return Tool(
        name=name,
        description=description,
        parameters=arguments_schema(arguments),
        run=run,
        idempotent=idempotent,
    )


def arguments_schema(arguments: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the JSON schema of a type of arguments, with its title left to the tool's name."""
    schema = msgspec.json.schema(arguments)
    # It refers to itself by name, since other types may refer to it as well.
    name = schema.pop("$ref").rpartition("/")[2]
    own = schema["$defs"].pop(name)
    del own["title"]
    return {**own, **({"$defs": schema["$defs"]} if schema["$defs"] else {})}


def read_arguments(call: ToolCall, arguments: type[ArgumentsT]) -> ArgumentsT:
    """Return the arguments of a call, or say in a `ToolError` what is wrong with them."""
    try:
        # In JSON every key is text, also where the tool wants a number.
        return msgspec.convert(call.arguments, arguments, str_keys=True)
    except msgspec.ValidationError as exc:
        raise ToolError(f"the arguments of {call.name} do not fit: {exc}") from exc


def _documentation(function: Callable[..., Any]) -> tuple[str, Mapping[str, str]]:
    # Imported late: half of the programs that import us define no tool.
    import docstring_parser

    parsed = docstring_parser.parse(inspect.getdoc(function) or "")
    return (parsed.description or "").strip(), {
        parameter.arg_name: parameter.description or "" for parameter in parsed.params
    }


def _arguments_type(
    name: str, function: Callable[..., Any], about: Mapping[str, str]
) -> type[msgspec.Struct]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as exc:
        raise DefinitionError(f"tool {name!r} has a type hint of which {exc}") from exc
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in {
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        }:
            raise DefinitionError(
                f"tool {name!r}: parameter {str(parameter)!r} cannot be given by name"
            )
        if parameter.name not in hints:
            raise DefinitionError(
                f"tool {name!r}: parameter {parameter.name!r} has no type hint"
            )
        hint: Any = hints[parameter.name]
        if description := about.get(parameter.name):
            hint = Annotated[hint, msgspec.Meta(description=description)]
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, parameter.default))
    try:
        arguments = msgspec.defstruct(
            name, fields, kw_only=True, forbid_unknown_fields=True
        )
        arguments_schema(arguments)
    except (TypeError, NameError) as exc:
        raise DefinitionError(
            f"tool {name!r} has a parameter that JSON cannot carry: {exc}"
        ) from exc
    return arguments


def _as_json(name: str, result: object) -> str:
    try:
        return msgspec.json.encode(result).decode()
    except (TypeError, msgspec.MsgspecError) as exc:
        raise DefinitionError(
            f"tool {name!r} returned {type(result).__name__}, which JSON cannot carry: {exc}"
        ) from exc
