"""Typed final answers: a JSON schema of a Python type for the model, and the parser of answers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import msgspec

from orchestrator.agents.errors import DefinitionError, OutputError
from orchestrator.agents.output.codec import codec_of

if TYPE_CHECKING:
    from typing_extensions import TypeForm

OutputT = TypeVar("OutputT")


def output_schema(output_type: Any) -> Mapping[str, Any] | None:
    """Return the JSON schema of an output type; `str` has none."""
    if output_type is str:
        return None
    try:
        return codec_of(output_type).schema
    except (TypeError, NameError, DefinitionError) as exc:
        raise DefinitionError(
            f"{type_name(output_type)} cannot be the output of an agent: {exc}"
        ) from exc


def read_output(output_type: "TypeForm[OutputT]", text: str) -> OutputT:
    """Parse a final answer as a value of the output type."""
    if output_type is str:
        return cast("OutputT", text)
    try:
        return cast("OutputT", codec_of(output_type).read(text))
    except ValueError as exc:
        problems = [str(it) for it in exc.args]
        raise OutputError(
            f"the answer is not the {type_name(output_type)} it should be: {'; '.join(problems)}",
            problems,
        ) from exc


def accepts(type_: Any, value: object) -> bool:
    """Return whether a value that was decoded from JSON can be read as a type."""
    try:
        codec_of(type_).convert(value)
    except (ValueError, TypeError):
        return False
    return True


def type_name(output_type: Any) -> str:
    """Return a type as people write it."""
    # A class only has its name; the name of `list[int]` lacks its argument.
    is_plain = isinstance(output_type, type) and not get_args(output_type)
    return output_type.__name__ if is_plain else str(output_type).replace("typing.", "")


def encoded(value: object, agent: str, type_: Any = Any) -> str:
    """Return the JSON of an input or an output of an agent."""
    try:
        return msgspec.json.encode(codec_of(type_).plain(value)).decode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise DefinitionError(
            f"agent {agent!r}: {value!r} cannot be written as JSON: {exc}"
        ) from exc
