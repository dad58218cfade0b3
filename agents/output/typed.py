"""Typed final answers: a JSON schema of a Python type for the model, and the parser of answers."""

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast, get_args, get_origin

import msgspec

from agents.errors import DefinitionError, OutputError

if TYPE_CHECKING:
    from typing_extensions import TypeForm

OutputT = TypeVar("OutputT")


def output_schema(output_type: Any) -> Mapping[str, Any] | None:
    """Return the JSON schema of an output type; `str` has none."""
    if output_type is str:
        return None
    try:
        schemas, parts = msgspec.json.schema_components(
            _alternatives(output_type), ref_template="#/$defs/{name}"
        )
    except (TypeError, NameError) as exc:
        raise DefinitionError(
            f"{type_name(output_type)} cannot be the output of an agent: {exc}"
        ) from exc
    schema: dict[str, Any] = (
        schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
    )
    return {**schema, "$defs": parts} if parts else schema


def read_output(output_type: "TypeForm[OutputT]", text: str) -> OutputT:
    """Parse a final answer as a value of the output type."""
    if output_type is str:
        return cast("OutputT", text)
    problems: list[str] = []
    for alternative in _alternatives(output_type):
        try:
            return cast("OutputT", msgspec.json.decode(text, type=alternative))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
            problems.append(str(exc))
    raise OutputError(
        f"the answer is not the {type_name(output_type)} it should be: {'; '.join(problems)}",
        problems,
    )


def _alternatives(output_type: Any) -> tuple[Any, ...]:
    # One by one, since msgspec parses no union of two classes: the first that fits counts.
    is_union = get_origin(output_type) in {Union, types.UnionType}
    return get_args(output_type) if is_union else (output_type,)


def type_name(output_type: Any) -> str:
    """Return a type as people write it."""
    # A class has nothing but its name; `list[int]` has a name that leaves out the half of it.
    is_plain = isinstance(output_type, type) and not get_args(output_type)
    return output_type.__name__ if is_plain else str(output_type).replace("typing.", "")


def encoded(value: object, agent: str) -> str:
    """Return the JSON of an input or an output of an agent."""
    try:
        # The same text in another process, too: sets have no order of their own.
        plain = msgspec.to_builtins(value, str_keys=True, order="deterministic")
        return msgspec.json.encode(plain).decode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise DefinitionError(
            f"agent {agent!r}: {value!r} cannot be written as JSON: {exc}"
        ) from exc
