"""The result of a tool as text that a model can read.

A text stays unchanged, and any other value becomes JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import attrs
import msgspec

from orchestrator.agents.errors import DefinitionError, ToolError
from orchestrator.agents.messages import Part
from orchestrator.agents.output.pydantic_types import shown_part
from orchestrator.agents.type_checks import has_type

MOST_PART_BYTES: Final = 16 * 2**20
"""How many bytes of images and files one answer may have: all of them are journaled, and sent
again with every later request of the conversation."""


class ToolResult(msgspec.Struct, frozen=True, gc=False):
    """The answer of a tool that also delivers notices of its session."""

    text: str
    consumes: Sequence[int] = ()
    """The notices that the text contains: the session reads them with it, and not again."""
    parts: tuple[Part, ...] = ()
    """Images and files that the model reads with the text."""
    evidence: Mapping[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """The effect of the call as a value, for the parent of the task (`evidence.py`)."""

    def __post_init__(self) -> None:
        if self.parts == ():
            return
        if not has_type(self.parts, tuple) or not all(has_type(part, Part) for part in self.parts):
            raise DefinitionError(
                f"the parts of a tool's result must be a tuple of Part, not {self.parts!r}"
            )
        size = sum(len(part.data) for part in self.parts)
        if size > MOST_PART_BYTES:
            raise ToolError(
                f"the answer has files of {size:,} bytes, and a model can be sent"
                f" {MOST_PART_BYTES:,} at once: ask for less, or for smaller images"
            )


def with_parts(result: object) -> ToolResult | None:
    """Return the result of a tool that is an image or a file, or a list with one; else None."""
    if type(result) is ToolResult:
        return result
    items = cast("Sequence[object]", result if isinstance(result, list | tuple) else (result,))
    parts = tuple(item for item in items if isinstance(item, Part))
    if not parts or not all(isinstance(item, str | Part) for item in items):
        return None
    texts = [item for item in items if isinstance(item, str)]
    # Every protocol wants a text, and people see nothing else of it in a terminal.
    text = "\n".join(texts) if texts else f"see {', '.join(it.label for it in parts)}"
    return ToolResult(text, parts=parts)


def as_text(name: str, result: object) -> str:
    """Return the result of a tool as text."""
    if isinstance(result, str):
        return result
    try:
        return msgspec.json.encode(_in_order(result), enc_hook=shown_part).decode()
    except (TypeError, RecursionError, msgspec.MsgspecError) as exc:
        raise DefinitionError(
            f"tool {name!r} returned {type(result).__name__}, which JSON cannot carry: {exc}"
        ) from exc


def _in_order(value: object) -> object:
    # msgspec alone would sort the fields of attrs classes by name.
    kind = type(value)
    if attrs.has(kind):
        items = [
            (field.name, getattr(value, field.name, msgspec.UNSET))
            for field in attrs.fields(kind)
            if not field.name.startswith("_")  # msgspec omits private ones, too
        ]
        return {name: _in_order(item) for name, item in items if item is not msgspec.UNSET}
    if isinstance(value, list | tuple):
        return [_in_order(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value).items()
        return {key: _in_order(entry) for key, entry in entries}
    return value
