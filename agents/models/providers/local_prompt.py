"""The prompt of the local model, and the parser of its answer. Pure functions.

A JSON schema constrains the output to an answer or a call.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, cast

import attrs
import msgspec

from orchestrator.agents import messages
from orchestrator.agents.models.model import ModelRequest
from orchestrator.agents.tools.tool import Tool

# llama.cpp refuses grammars with longer repetitions.
LONGEST_TEXT: Final = 2000
MOST_ITEMS: Final = 4


@attrs.frozen
class ChatMessage:
    """A message of a chat template."""

    role: str
    text: str


def answer_schema(request: ModelRequest, *, tokens: int) -> Mapping[str, Any] | None:
    """Return the schema of an answer with this number of tokens, or None for a plain text."""
    if not request.tools and request.output is None:
        return None
    answer = request.output
    if answer is None:
        answer = {"type": "string", "maxLength": min(tokens * 3 // 4, LONGEST_TEXT)}
    calls = ({"tool": {"const": tool.name}, "arguments": tool.parameters} for tool in request.tools)
    definitions: dict[str, Any] = {}
    objects: list[Any] = []
    for number, properties in enumerate(({"answer": answer}, *calls)):
        # References start at the root, where two tools may use one name for two types.
        # A small model ends in time only if every text and list is bounded.
        bounds = _Bounds(f"{number}.", tokens // 4, definitions)
        parts = {name: bounds.of(part) for name, part in properties.items()}
        objects.append({"type": "object", "properties": parts, "required": [*parts]})
    return {"oneOf": objects, "$defs": definitions}


@attrs.frozen
class _Bounds:
    """Bounds the texts and lists of a schema, and moves its definitions to the root."""

    prefix: str
    characters: int
    definitions: dict[str, Any]

    def of(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        bounded: dict[str, Any] = {}
        for key, value in cast("dict[str, Any]", schema).items():
            match key:
                case "$defs":
                    for name, one in value.items():
                        self.definitions[self.prefix + name] = self.of(one)
                case "$ref":
                    name = value.removeprefix("#/$defs/")
                    bounded[key] = f"#/$defs/{self.prefix}{name}"
                case "properties":
                    bounded[key] = {name: self.of(one) for name, one in value.items()}
                case "anyOf" | "oneOf" | "allOf" | "prefixItems":
                    bounded[key] = [self.of(one) for one in value]
                case "items" | "additionalProperties":
                    bounded[key] = self.of(value)
                case _:
                    bounded[key] = value
        return {**bounded, **self._ends(bounded)}

    def _ends(self, schema: Mapping[str, Any]) -> Mapping[str, int]:
        kind = schema.get("type", "")
        if "string" in kind:
            most = min(schema.get("maxLength", self.characters), LONGEST_TEXT)
            return {"maxLength": max(most, schema.get("minLength", 0))}
        if "array" in kind and "maxItems" not in schema:
            return {"maxItems": max(MOST_ITEMS, schema.get("minItems", 0))}
        return {}


def read_answer(text: str, request: ModelRequest) -> messages.ToolCall | str:
    """Parse an answer of this schema: a call, or a text."""
    output = msgspec.json.decode(text, type=dict[str, Any])
    if "tool" in output:
        # The position in the transcript makes an id unique there, also after a restart.
        id_ = messages.CallId(f"call_{len(request.transcript)}_0")
        return messages.ToolCall(output["tool"], output["arguments"], id=id_)
    answer: Any = output["answer"]
    return answer if request.output is None else as_json(answer)


def chat_messages(request: ModelRequest) -> list[ChatMessage]:
    """Return the instructions and the transcript as messages whose roles alternate."""
    instructions = "\n\n".join(filter(None, (request.instructions, _format_instructions(request))))
    rows = [ChatMessage("system", instructions), *_transcript_messages(request)]
    by_role = groupby((row for row in rows if row.text), key=lambda row: row.role)
    # Many templates refuse two messages of the same role in a row.
    return [ChatMessage(role, "\n\n".join(row.text for row in same)) for role, same in by_role]


def _transcript_messages(request: ModelRequest) -> Iterator[ChatMessage]:
    names: dict[messages.CallId, str] = {}
    for message in request.transcript:
        match message:
            case messages.UserMessage(text, parts):
                yield ChatMessage("user", text)
                for part in parts:
                    yield ChatMessage(
                        "user", f"[Here {part.label} is attached. You cannot read it.]"
                    )
            case messages.ToolMessage(id_, text, failed):
                verb = "failed" if failed else "answered"
                yield ChatMessage("user", f"{names.get(id_, 'A tool')} {verb}:\n{text}")
                for part in message.parts:
                    yield ChatMessage(
                        "user", f"[Here {part.label} is attached. You cannot read it.]"
                    )
            case messages.AssistantMessage(text, calls):
                yield ChatMessage("assistant", text)
                for call in calls:
                    names[call.id] = call.name
                    as_written = {"tool": call.name, "arguments": call.arguments}
                    yield ChatMessage("assistant", as_json(as_written))


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _format_instructions(request: ModelRequest) -> str:
    if request.tools:
        return (
            'Answer with JSON: {"answer": ...}, or to use a tool {"tool": its name,'
            ' "arguments": {...}}. The tools:\n' + "\n".join(map(_describe, request.tools))
        )
    return "" if request.output is None else 'Answer with JSON: {"answer": ...}.'


def _describe(tool: Tool) -> str:
    arguments = tool.parameters.get("properties", {}).items()
    lines = (f"  {name}: {schema.get('description', '')}" for name, schema in arguments)
    return "\n".join((f"- {tool.name}: {tool.description}", *lines))


def cut_to_fit(rows: Sequence[ChatMessage], characters: int) -> Sequence[ChatMessage]:
    """Return the first and last messages within some characters, and a note about the gap."""
    if sum(len(row.text) for row in rows) <= characters:
        return rows
    share = characters // min(4, len(rows))
    rows = [attrs.evolve(row, text=_shortened(row.text, share)) for row in rows]
    beginning, rest = rows[:2], rows[2:]
    left = characters - sum(len(row.text) for row in beginning) - share // 2
    shown = 0
    for row in reversed(rest):
        if (left := left - len(row.text)) < 0:
            break
        shown += 1
    omitted = len(rest) - shown
    note = ChatMessage("user", f"[{omitted} messages are left out here, to fit]")
    return [*beginning, *([note] if omitted else ()), *rest[omitted:]]


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    note = f" [{len(text) - limit} letters are left out here, to fit] "
    half = max(limit - len(note), 0) // 2
    return text[:half] + note + text[len(text) - half :]
