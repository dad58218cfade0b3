"""What an agent promises as its final answer: a schema for the model, and a check of what comes."""

import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import msgspec

from agents.errors import DefinitionError, OutputError

OutputT = TypeVar("OutputT")


def output_schema(promised: Any) -> Mapping[str, Any] | None:
    """Return the JSON schema of a type of answers; plain text has none."""
    if promised is str:
        return None
    try:
        schemas, parts = msgspec.json.schema_components(
            _alternatives(promised), ref_template="#/$defs/{name}"
        )
    except (TypeError, NameError) as exc:
        raise DefinitionError(
            f"{_name(promised)} cannot be the output of an agent: {exc}"
        ) from exc
    schema: dict[str, Any] = (
        schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
    )
    return {**schema, "$defs": parts} if parts else schema


def read_output(promised: type[OutputT], text: str) -> OutputT:
    """Return a final answer as what was promised."""
    if promised is str:
        return cast("OutputT", text)
    problems: list[str] = []
    for alternative in _alternatives(promised):
        try:
            return cast("OutputT", msgspec.json.decode(text, type=alternative))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
            problems.append(str(exc))
    raise OutputError(
        f"the answer is not the {_name(promised)} it should be: {'; '.join(problems)}",
        problems,
    )


def _alternatives(promised: Any) -> tuple[Any, ...]:
    # One by one, since msgspec reads no union of two classes: the first that fits is meant.
    is_union = get_origin(promised) in {Union, types.UnionType}
    return get_args(promised) if is_union else (promised,)


def _name(promised: Any) -> str:
    return str(getattr(promised, "__name__", promised))
