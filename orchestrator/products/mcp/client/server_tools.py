"""The tools of a connected server, as the tools of an agent.

Those that it lists, and for servers with resources, prompts or skills the ones that read these.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from orchestrator.agents import Part, Tool, ToolCall, ToolError
from orchestrator.agents.current_span import current_traceparent
from orchestrator.agents.tools.mcp.call_results import (
    as_tool_result,
    checked_arguments,
    read_blocks,
    read_resource,
    read_result,
    short_enough,
)
from orchestrator.agents.tools.mcp.json_values import list_in, object_in
from orchestrator.agents.tools.mcp.listed_tools import ListedTool, tool_name, visible_text
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.ports.execution import ServerCaller
from orchestrator.products.mcp.client.checked_messages import raw_part
from orchestrator.products.mcp.client.connection import READ_SKILL, ServerConnection
from orchestrator.products.mcp.client.server_call import ServerCall

if TYPE_CHECKING:
    from mcp import Client

MOST_LISTED: Final = 500
"""How many resources or prompts a model reads at once."""
NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


def tools_of(connection: ServerConnection, caller: ServerCaller) -> list[Tool]:
    """Return the tools of a server, as a task has them."""
    listed = () if connection.listing is None else connection.listing.tools
    tools = {it.name: _listed(connection, caller, it) for it in listed}
    for own_name, make in _READERS.items():
        name = tool_name(connection.server.name, own_name)
        if connection.server.offers(own_name) and name not in tools:
            tool = make(connection, caller, name)
            tools |= {} if tool is None else {name: tool}
    return list(tools.values())


def _listed(connection: ServerConnection, caller: ServerCaller, listed: ListedTool) -> Tool:
    async def run(call: ToolCall) -> ToolResult:
        arguments = checked_arguments(call, listed)

        async def request(client: "Client") -> Any:
            traceparent = current_traceparent()
            meta: Any = {"traceparent": traceparent} if traceparent else None
            return await client.call_tool(listed.own_name, arguments, meta=meta)

        server_call = ServerCall(caller, call.id, call.name)
        if task := caller.noted_task(call.id, connection.server.name):
            result = await connection.wait_task(server_call, task)
        else:
            result = await connection.call(request, server_call, repeatable=listed.repeatable)
        answer = {
            name: raw_part(result.meta, name)
            for name in ("content", "structuredContent", "isError")
        }
        return await short_enough(lambda: read_result(call.name, answer, listed.output))

    return _tool(
        listed.name, listed.description, listed.parameters, run, repeatable=listed.repeatable
    )


def _tool(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    run: Callable[[ToolCall], Awaitable[ToolResult]],
    *,
    repeatable: bool,
) -> Tool:
    return Tool(
        name=name,
        description=description,
        parameters=parameters,
        run=run,
        idempotent=repeatable,
        # What it does is known to its server alone.
        machine="other",
        server=name.partition("__")[0],
    )


def _list_resources(connection: ServerConnection, caller: ServerCaller, name: str) -> Tool | None:
    if connection.capabilities.resources is None:
        return None

    async def request(client: "Client") -> list[str]:
        found = await connection.pages(client.list_resources, "resources")
        templates = await connection.pages(client.list_resource_templates, "resourceTemplates")
        return [
            *(_described(it, "uri") for it in found),
            *(_described(it, "uriTemplate") for it in templates),
        ]

    return _reader(
        connection,
        caller,
        name,
        "Lists the resources of this server: what can be read, and by which URI.",
        request,
    )


def _list_prompts(connection: ServerConnection, caller: ServerCaller, name: str) -> Tool | None:
    if connection.capabilities.prompts is None:
        return None

    async def request(client: "Client") -> list[str]:
        found = await connection.pages(client.list_prompts, "prompts")
        return [_described(it, "name") for it in found]

    return _reader(
        connection, caller, name, "Lists the prompts of this server, and what they take.", request
    )


def _reader(
    connection: ServerConnection,
    caller: ServerCaller,
    name: str,
    description: str,
    request: "Callable[[Client], Awaitable[list[str]]]",
) -> Tool:
    async def run(call: ToolCall) -> ToolResult:
        lines = await connection.call(
            request, ServerCall(caller, call.id, call.name), repeatable=True
        )
        shown = lines[:MOST_LISTED]
        if more := len(lines) - len(shown):
            shown.append(f"({more:,} more)")
        return await short_enough(lambda: as_tool_result(shown or ["there are none"], []))

    return _tool(name, description, NO_ARGUMENTS, run, repeatable=True)


def _read_resource(connection: ServerConnection, caller: ServerCaller, name: str) -> Tool | None:
    if connection.capabilities.resources is None:
        return None
    parameters = {
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "which resource"}},
        "required": ["uri"],
    }

    async def run(call: ToolCall) -> ToolResult:
        uri = _text_argument(call, "uri")

        async def request(client: "Client") -> Any:
            return await client.read_resource(uri)

        result = await connection.call(
            request, ServerCall(caller, call.id, call.name), repeatable=True
        )
        contents = raw_part(result.meta, "contents")
        read = [read_resource(it) for it in list_in(contents)]
        texts = [text for text, _ in read if text]
        parts = [part for _, part in read if part is not None]
        return await short_enough(lambda: as_tool_result(texts, parts))

    return _tool(name, "Reads a resource of this server.", parameters, run, repeatable=True)


def _get_prompt(connection: ServerConnection, caller: ServerCaller, name: str) -> Tool | None:
    if connection.capabilities.prompts is None:
        return None
    parameters = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "which prompt"},
            "arguments": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "what it takes",
            },
        },
        "required": ["name"],
    }

    async def run(call: ToolCall) -> ToolResult:
        prompt = _text_argument(call, "name")
        given = object_in(call.arguments.get("arguments"))
        arguments = {key: str(value) for key, value in given.items()}

        async def request(client: "Client") -> Any:
            return await client.get_prompt(prompt, arguments)

        result = await connection.call(
            request, ServerCall(caller, call.id, call.name), repeatable=True
        )
        texts: list[str] = []
        parts: list[Part] = []
        for message in list_in(raw_part(result.meta, "messages")):
            fields = object_in(message)
            said, files = read_blocks([fields.get("content")])
            role = visible_text(fields.get("role"), 20)
            texts += [f"{role}: {text}" for text in said]
            parts += files
        return await short_enough(lambda: as_tool_result(texts, parts))

    return _tool(name, "Fills in a prompt of this server.", parameters, run, repeatable=True)


def _text_argument(call: ToolCall, name: str) -> str:
    value = call.arguments.get(name)
    if not isinstance(value, str) or not value:
        raise ToolError(f"the arguments of {call.name} do not fit: /{name} is no text")
    return value


def _described(item: Mapping[str, Any], key: str) -> str:
    """Return a line about a resource or a prompt."""
    line = visible_text(item.get(key), 1_000)
    name = visible_text(item.get("title") or item.get("name"), 200)
    about = visible_text(item.get("description"), 500)
    takes = [
        f"{visible_text(it.get('name'), 64)}{'' if it.get('required') else '?'}"
        for it in map(object_in, list_in(item.get("arguments")))
    ]
    words = [line, *([f"({', '.join(takes)})"] if takes else [])]
    words += [it for it in (name if name != line else "", about) if it]
    return " - ".join(words)


def _read_skill(connection: ServerConnection, caller: ServerCaller, name: str) -> Tool | None:
    if connection.listing is None or not connection.listing.skills:
        return None
    # Imported late: few servers have skills.
    from orchestrator.products.mcp.client.server_skills import read_skill_tool

    return read_skill_tool(connection, caller, name)


_READERS: Final = {
    "list_resources": _list_resources,
    "read_resource": _read_resource,
    "list_prompts": _list_prompts,
    "get_prompt": _get_prompt,
    READ_SKILL: _read_skill,
}
"""The tools for servers with resources, prompts or skills, by the names that filters know."""
