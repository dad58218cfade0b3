"""MCP as the official SDK speaks it: the handlers of all methods, for any transport.

Tasks are an extension that the SDK does not know: their methods, their headers and their results
are added here.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import trio
from mcp.server.apps import EXTENSION_ID as APPS
from mcp.server.apps import client_supports_apps
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    RequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from orchestrator.agents import DefinitionError
from orchestrator.delegation import DelegationError
from orchestrator.delegation.traceparent import checked_traceparent
from orchestrator.ports import errors
from orchestrator.products.mcp.server.caller import Ask, Caller
from orchestrator.products.mcp.server.calls import (
    TASKS,
    ToolCallRequest,
    call_tool,
    missing_capability,
)
from orchestrator.products.mcp.server.resources import (
    list_resources,
    read_resource,
    resource_templates,
)
from orchestrator.products.mcp.server.results import Json
from orchestrator.products.mcp.server.tasks import cancel_task, get_task, update_task
from orchestrator.products.mcp.server.tools import AgentTool
from orchestrator.products.mcp.server.tree_app import URI, add_tree, read_page, tool_meta
from orchestrator.version import VERSION

Context: TypeAlias = ServerRequestContext[Any, Any]
CallerOf: TypeAlias = Callable[[Context], Caller]
NAME: Final = "orchestrator"
FRESH_MS: Final = 60_000
"""How long a client may keep what does not change while a server runs."""


class TaskParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class UpdateTaskParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, Any]


def open_protocol(tools: Mapping[str, AgentTool], caller_of: CallerOf) -> Server[Any]:
    """Return the server of MCP for some tools."""
    handlers = _Handlers(tools, caller_of)
    lasting = CacheHint(ttl_ms=FRESH_MS, scope="private")
    changing = CacheHint(ttl_ms=0, scope="private")
    server: Server[Any] = Server(
        NAME,
        version=VERSION,
        title="Delegation Orchestrator",
        instructions="Each tool is an agent, which may delegate to others and take minutes.",
        cache_hints={
            "server/discover": lasting,
            "tools/list": lasting,
            "resources/templates/list": lasting,
            # A run goes on, and its owner may delete it.
            "resources/list": changing,
            "resources/read": changing,
        },
        on_list_tools=_typed(handlers.list_tools),
        on_call_tool=_typed(handlers.call_tool),
        on_list_resources=_typed(handlers.list_resources),
        on_list_resource_templates=_typed(handlers.list_templates),
        on_read_resource=_typed(handlers.read_resource),
    )
    server.extensions = {TASKS: {}, APPS: {}}
    server.add_request_handler("tasks/get", TaskParams, handlers.get_task)
    server.add_request_handler("tasks/update", UpdateTaskParams, handlers.update_task)
    server.add_request_handler("tasks/cancel", TaskParams, handlers.cancel_task)
    return server


def _typed(handler: Callable[[Context, Any], Awaitable[Json]]) -> Any:
    """Let a handler answer with JSON: the SDK checks it, whatever its signatures promise."""

    async def answer(context: Context, params: Any) -> Json:
        return {"resultType": "complete", **await handler(context, params)}

    return answer


class _Handlers:
    """Answers requests."""

    def __init__(self, tools: Mapping[str, AgentTool], caller_of: CallerOf) -> None:
        self._tools = tools
        self._caller_of = caller_of

    async def list_tools(self, context: Context, params: PaginatedRequestParams) -> Json:
        await trio.lowlevel.checkpoint()
        if params.cursor is not None:
            raise MCPError(INVALID_PARAMS, "all tools are on one page: send no cursor")
        listed = [_listed(it) for it in self._tools.values()]
        if self._shows_trees(context):
            listed = [{**it, "_meta": tool_meta()} for it in listed]
        return {"tools": listed}

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> Json:
        session, caller = context.session, self._caller_of(context)
        capabilities, sent = _capabilities(context), context.params or {}
        has_token = bool(context.meta and "progress_token" in context.meta)

        async def report(progress: float, message: str) -> None:
            await session.report_progress(progress, None, message)

        request = ToolCallRequest(
            name=params.name,
            arguments=params.arguments or {},
            can_poll=_can_poll(context),
            can_ask=isinstance(capabilities.get("elicitation"), dict),
            ask=caller.ask or _ask_over(context),
            answers=sent.get("inputResponses") or {},
            run=sent.get("requestState"),
            report=report if has_token else None,
            traceparent=checked_traceparent((context.meta or {}).get("traceparent")),
        )
        with _as_protocol_errors():
            result = await call_tool(self._tools, caller, request)
            if self._shows_trees(context):
                await add_tree(caller, result)
            return result

    async def get_task(self, context: Context, params: TaskParams) -> Json:
        _require_tasks(context, params.task_id)
        with _as_protocol_errors():
            caller = self._caller_of(context)
            task = await get_task(self._tools, caller, params.task_id)
            if "result" in task and self._shows_trees(context):
                await add_tree(caller, task["result"])
            return task

    async def update_task(self, context: Context, params: UpdateTaskParams) -> Json:
        _require_tasks(context, params.task_id)
        with _as_protocol_errors():
            caller = self._caller_of(context)
            return await update_task(caller, params.task_id, params.input_responses)

    async def cancel_task(self, context: Context, params: TaskParams) -> Json:
        _require_tasks(context, params.task_id)
        with _as_protocol_errors():
            return await cancel_task(self._caller_of(context), params.task_id)

    async def list_resources(self, context: Context, params: PaginatedRequestParams) -> Json:
        with _as_protocol_errors():
            return await list_resources(self._caller_of(context), params.cursor)

    async def list_templates(self, context: Context, params: PaginatedRequestParams) -> Json:
        await trio.lowlevel.checkpoint()
        return {"resourceTemplates": resource_templates()}

    async def read_resource(self, context: Context, params: ReadResourceRequestParams) -> Json:
        uri = str(params.uri)
        if uri == URI and self._shows_trees(context):
            await trio.lowlevel.checkpoint()
            return read_page()
        with _as_protocol_errors(about={"uri": uri}):
            return await read_resource(self._caller_of(context), uri)

    def _shows_trees(self, context: Context) -> bool:
        """Return whether a client shows pages of ours, and its caller may see trees."""
        return client_supports_apps(context) and self._caller_of(context).may_read


def _listed(tool: AgentTool) -> Json:
    listed: Json = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.arguments.schema,
    }
    if tool.output_schema is not None:
        listed["outputSchema"] = tool.output_schema
    return listed


def _capabilities(context: Context) -> Mapping[str, Any]:
    """Return the capabilities that a request declares for its client.

    A client of an earlier protocol declares them once for all requests of a connection. Such a
    promise may be over by now, and does not count.
    """
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return {}
    declared = context.session.client_capabilities
    return {} if declared is None else declared.model_dump(exclude_none=True)


def _ask_over(context: Context) -> Ask | None:
    """Return a function that asks the user at the other end of a connection that is still open."""
    session = context.session
    declared = session.client_capabilities
    is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    if is_modern or declared is None or declared.elicitation is None:
        return None
    if not session.can_send_request:
        return None

    async def ask(form: Mapping[str, Any]) -> Mapping[str, Any]:
        await trio.lowlevel.checkpoint()
        shown = form["params"]
        try:
            answer = await session.elicit_form(shown["message"], shown["requestedSchema"])
        except MCPError:
            return {"action": "cancel"}
        return answer.model_dump(by_alias=True, exclude_none=True)

    return ask


def _can_poll(context: Context) -> bool:
    return TASKS in _capabilities(context).get("extensions", {})


def _require_tasks(context: Context, task: str) -> None:
    """Refuse a method of tasks from a client that does not declare them, or names another one."""
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
    if not _can_poll(context):
        raise missing_capability()
    if context.request is None:
        return  # stdio has no headers
    header = context.request.headers.get(MCP_NAME_HEADER)
    if header is None or decode_header_value(header) != task:
        found = "is missing" if header is None else f"is {header[:100]!r}"
        raise MCPError(
            HEADER_MISMATCH, f"the header Mcp-Name {found}, and the task is {task[:100]!r}"
        )


@contextmanager
def _as_protocol_errors(about: Json | None = None) -> Generator[None]:
    """Translate errors of the orchestrator to errors of the protocol."""
    try:
        yield
    except errors.UnknownIdError as exc:
        raise MCPError(INVALID_PARAMS, str(exc), about) from exc
    except errors.SessionOpenError as exc:
        raise MCPError(INVALID_PARAMS, str(exc)) from exc
    except errors.JournalError as exc:
        # Without the path: clients have no business with the owner's machine.
        raise MCPError(INTERNAL_ERROR, f"the journal fails: {exc.problem}") from exc
    except (errors.OrchestratorError, DelegationError, DefinitionError) as exc:
        raise MCPError(INTERNAL_ERROR, str(exc)) from exc
