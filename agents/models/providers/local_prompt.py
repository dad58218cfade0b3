"""What a model in this process is asked, and how its answer is read: pure.

A small model knows nothing of tools, so what it says is held to a JSON schema: an answer, or a
call.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, cast

import attrs
import msgspec

from agents.messages import (
    AssistantMessage,
    CallId,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agents.models.model import ModelRequest
from agents.tools.tool import Tool

# llama.cpp takes no grammar that repeats anything more often.
LONGEST_TEXT: Final = 2000
MOST_ITEMS: Final = 4


@attrs.frozen
class ChatMessage:
    """A message as chat templates know them."""

    role: str
    text: str


def answer_schema(request: ModelRequest, *, tokens: int) -> Mapping[str, Any] | None:
    """Return what an answer of so many tokens must look like, or None if any text will do."""
    if not request.tools and request.output is None:
        return None
    answer = request.output
    if answer is None:
        answer = {"type": "string", "maxLength": min(tokens * 3 // 4, LONGEST_TEXT)}
    calls = (
        {"tool": {"const": tool.name}, "arguments": tool.parameters}
        for tool in request.tools
    )
    definitions: dict[str, Any] = {}
    objects: list[Any] = []
    for number, properties in enumerate(({"answer": answer}, *calls)):
        # References start at the root, where two tools may use one name for two types.
        # A bound that is small for a good model is what lets a silly one end in time.
        bounds = _Bounds(f"{number}.", tokens // 4, definitions)
        parts = {name: bounds.of(part) for name, part in properties.items()}
        objects.append({"type": "object", "properties": parts, "required": [*parts]})
    return {"oneOf": objects, "$defs": definitions}


@attrs.frozen
class _Bounds:
    """Bounds what a schema leaves open, and moves its definitions to where all can be."""

    prefix: str
    letters: int
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
            most = min(schema.get("maxLength", self.letters), LONGEST_TEXT)
            return {"maxLength": max(most, schema.get("minLength", 0))}
        if "array" in kind and "maxItems" not in schema:
            return {"maxItems": max(MOST_ITEMS, schema.get("minItems", 0))}
        return {}


def read_answer(text: str, request: ModelRequest) -> ToolCall | str:
    """Return the call or the text that an answer of the schema holds."""
    said = msgspec.json.decode(text, type=dict[str, Any])
    if "tool" in said:
        # The position in the transcript makes an id unique there, also after a restart.
        id_ = CallId(f"call_{len(request.transcript)}_0")
        return ToolCall(said["tool"], said["arguments"], id=id_)
    answer: Any = said["answer"]
    return answer if request.output is None else as_json(answer)


def chat_messages(request: ModelRequest) -> list[ChatMessage]:
    """Return the instructions and the transcript as a chat whose roles take turns."""
    instructions = "\n\n".join(filter(None, (request.instructions, _form(request))))
    rows = [ChatMessage("system", instructions), *_transcript_messages(request)]
    by_role = groupby((row for row in rows if row.text), key=lambda row: row.role)
    # Many templates refuse two messages in a row from the same side.
    return [
        ChatMessage(role, "\n\n".join(row.text for row in same))
        for role, same in by_role
    ]


def _transcript_messages(request: ModelRequest) -> Iterator[ChatMessage]:
    names: dict[CallId, str] = {}
    for message in request.transcript:
        match message:
            case UserMessage(text, parts):
                yield ChatMessage("user", text)
                for part in parts:
                    yield ChatMessage(
                        "user", f"[Here {part.label} is attached. You cannot read it.]"
                    )
            case ToolMessage(id_, text, failed):
                what = "failed" if failed else "answered"
                yield ChatMessage("user", f"{names.get(id_, 'A tool')} {what}:\n{text}")
            case AssistantMessage(text, calls):
                yield ChatMessage("assistant", text)
                for call in calls:
                    names[call.id] = call.name
                    wish = {"tool": call.name, "arguments": call.arguments}
                    yield ChatMessage("assistant", as_json(wish))


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _form(request: ModelRequest) -> str:
    if request.tools:
        return (
            'Answer with JSON: {"answer": ...}, or to use a tool {"tool": its name,'
            ' "arguments": {...}}. The tools:\n' + "\n".join(map(_about, request.tools))
        )
    return "" if request.output is None else 'Answer with JSON: {"answer": ...}.'


def _about(tool: Tool) -> str:
    arguments = tool.parameters.get("properties", {}).items()
    lines = (f"  {name}: {about.get('description', '')}" for name, about in arguments)
    return "\n".join((f"- {tool.name}: {tool.description}", *lines))


def cut_to_fit(rows: Sequence[ChatMessage], characters: int) -> Sequence[ChatMessage]:
    """Return rows of at most so many letters: the beginning and the end, and what is missing."""
    if sum(len(row.text) for row in rows) <= characters:
        return rows
    share = characters // min(4, len(rows))
    rows = [attrs.evolve(row, text=_shortened(row.text, share)) for row in rows]
    beginning, rest = rows[:2], rows[2:]
    left = characters - sum(len(row.text) for row in beginning) - share // 2
    kept = 0
    for row in reversed(rest):
        if (left := left - len(row.text)) < 0:
            break
        kept += 1
    gone = len(rest) - kept
    note = ChatMessage("user", f"[{gone} messages are left out here, to fit]")
    return [*beginning, *([note] if gone else ()), *rest[gone:]]


def _shortened(text: str, letters: int) -> str:
    if len(text) <= letters:
        return text
    note = f" [{len(text) - letters} letters are left out here, to fit] "
    half = max(letters - len(note), 0) // 2
    return text[:half] + note + text[len(text) - half :]
