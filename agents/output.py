"""What an agent promises as its final answer: a schema for the model, and a check of what comes."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec

from agents.errors import DefinitionError, OutputError

OutputT = TypeVar("OutputT")


def output_schema(promised: Any) -> Mapping[str, Any] | None:
    """Return the JSON schema of a type of answers; plain text has none."""
    if promised is str:
        return None
    try:
        return msgspec.json.schema(promised)
    except (TypeError, NameError) as exc:
        raise DefinitionError(
            f"{_name(promised)} cannot be the output of an agent: {exc}"
        ) from exc


def read_output(promised: type[OutputT], text: str) -> OutputT:
    """Return a final answer as what was promised."""
    if promised is str:
        return cast("OutputT", text)
    try:
        return msgspec.json.decode(text, type=promised)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise OutputError(
            f"the answer is not the {_name(promised)} it should be: {exc}"
        ) from exc


def _name(promised: Any) -> str:
    return str(getattr(promised, "__name__", promised))
