"""The answer of a server to a call, as the result of a tool: text, images and files.

A server may answer anything. An unreadable part becomes a sentence, and never an error of ours.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from orchestrator.agents.errors import DefinitionError, ToolError
from orchestrator.agents.messages import Part, ToolCall, well_formed
from orchestrator.agents.output.json_schema import schema_problems
from orchestrator.agents.tools import result_text
from orchestrator.agents.tools.long_results import shortened_and_saved
from orchestrator.agents.tools.mcp.json_values import list_in, object_in
from orchestrator.agents.tools.mcp.listed_tools import ListedTool, visible_text
from orchestrator.agents.tools.tool import CHARACTERS

LONGEST_URI: Final = 2_000
MOST_BLOCKS: Final = 1_000


def checked_arguments(call: ToolCall, listed: ListedTool) -> dict[str, Any]:
    """Return the arguments of a call; raise `ToolError` if they do not fit its schema."""
    arguments = dict(call.arguments)
    problems = schema_problems(listed.parameters, _as_json(arguments))
    if not problems:
        return arguments
    # Models write null for a missing value.
    required = listed.parameters.get("required") or ()
    given = {
        name: value for name, value in arguments.items() if value is not None or name in required
    }
    if given != arguments and not schema_problems(listed.parameters, _as_json(given)):
        return given
    raise ToolError(f"the arguments of {call.name} do not fit: {'; '.join(problems)}")


async def short_enough(read: Callable[[], result_text.ToolResult]) -> result_text.ToolResult:
    """Return a result, or raise its error, with a text that a model can read."""
    try:
        result = read()
    except ToolError as exc:
        said = str(exc)
        if len(said) <= CHARACTERS:
            raise
        raise ToolError(await shortened_and_saved(said, CHARACTERS, None)) from exc
    if len(result.text) <= CHARACTERS:
        return result  # noqa: ASYNC910 (its caller has waited for the server)
    text = await shortened_and_saved(result.text, CHARACTERS, None)
    return replace(result, text=text)


def read_result(
    tool: str, result: Mapping[str, Any], output: Mapping[str, Any] | None = None
) -> result_text.ToolResult:
    """Return the result of a call; raise `ToolError` if it failed, or is not as promised."""
    texts, parts = read_blocks(result.get("content"))
    structured = result.get("structuredContent")
    if result.get("isError") is True:
        said = "\n".join(texts) or (_as_json(structured) if structured is not None else "")
        raise ToolError(said or f"{tool} failed, and its server does not say why")
    if output is not None:
        if structured is None:
            raise ToolError(f"{tool} has promised a value, and its server answered without one")
        if problems := schema_problems(output, _as_json(structured)):
            raise ToolError(
                f"{tool} has answered something else than its server has promised:"
                f" {'; '.join(problems)}"
            )
    if structured is not None and not texts:
        texts.append(_as_json(structured))
    return as_tool_result(texts, parts)


def as_tool_result(texts: list[str], parts: list[Part]) -> result_text.ToolResult:
    """Return texts and files as the result of a tool, which is never empty."""
    # Every protocol wants a text, and people see nothing else of it in a terminal.
    text = "\n".join(texts)
    if not text and parts:
        text = f"see {', '.join(part.label for part in parts)}"
    return result_text.ToolResult(text or "(no content)", parts=tuple(parts))


def read_blocks(content: object) -> tuple[list[str], list[Part]]:
    """Return the texts and the files of content blocks, in JSON."""
    texts: list[str] = []
    parts: list[Part] = []
    blocks = list_in(content)
    for block in blocks[:MOST_BLOCKS]:
        said, part = _read_block(block)
        if said:
            texts.append(said)
        if part is not None:
            parts.append(part)
    if len(blocks) > MOST_BLOCKS:
        texts.append(f"({len(blocks) - MOST_BLOCKS:,} more blocks were left out)")
    return texts, parts


def _read_block(block: object) -> tuple[str, Part | None]:
    fields = object_in(block)
    kind = fields.get("type")
    match kind:
        case "text" if isinstance(text := fields.get("text"), str):
            return well_formed(text), None
        case "image" | "audio":
            return _file(fields.get("mimeType"), fields.get("data"), f"an {kind}")
        case "resource_link":
            name = visible_text(fields.get("title") or fields.get("name"), 200)
            about = visible_text(fields.get("description"), 500)
            uri = visible_text(fields.get("uri"), LONGEST_URI)
            return f"[{name or 'resource'}]({uri}){f': {about}' if about else ''}", None
        case "resource":
            return read_resource(fields.get("resource"))
        case _:
            named = visible_text(kind, 40)
            return f"(content of the unknown type {named!r} was left out)", None


def read_resource(resource: object) -> tuple[str, Part | None]:
    """Return the text or the file of the contents of a resource, in JSON."""
    fields = object_in(resource)
    uri = visible_text(fields.get("uri"), LONGEST_URI)
    if isinstance(text := fields.get("text"), str):
        return f"{uri}:\n{well_formed(text)}" if uri else well_formed(text), None
    media_type = fields.get("mimeType") or "application/octet-stream"
    return _file(media_type, fields.get("blob"), f"the resource {uri}", name=uri)


def _file(
    media_type: object, data: object, what: str, *, name: str = ""
) -> tuple[str, Part | None]:
    why = ""
    if not isinstance(data, str) or not isinstance(media_type, str):
        why = "it has no data, or no type"
    elif len(data) > result_text.MOST_PART_BYTES * 4 // 3 + 4:
        why = f"it is longer than {result_text.MOST_PART_BYTES:,} bytes"
    else:
        try:
            raw = base64.b64decode(data, validate=True)
            plain = media_type.partition(";")[0].strip().lower()
            return "", Part(plain, data=raw, name=name)
        except (DefinitionError, binascii.Error, ValueError) as exc:
            why = str(exc)
    return f"({what} could not be read: {why})", None


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
