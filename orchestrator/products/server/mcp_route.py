"""`/mcp`: the agents as tools of MCP clients, over streamable HTTP.

Each request stands for itself. The protocol has no session, so any server of a cluster answers any
request, and a restart loses none. The SDK is an extra, and is imported with the first request.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import trio
from starlette.responses import Response

from orchestrator.ports.errors import ClosedError
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.transport.errors import JSON, HttpError
from orchestrator.products.server.transport.sse import SSE_MEDIA_TYPE

if TYPE_CHECKING:
    from orchestrator.products.server.mcp_endpoint import McpEndpoint

ENDPOINT: Final = "orchestrator.products.server.mcp_endpoint"
INSTALL: Final = "pip install 'delegation-orchestrator[mcp]'"


@Operation(
    "POST",
    "/mcp",
    None,
    Answer("The answer, as JSON or as events", media_types=(JSON, SSE_MEDIA_TYPE)),
    body=dict,
    is_json_rpc=True,
)
async def answer_mcp(call: ApiCall) -> Response:
    """Answer one message of MCP with the SDK."""
    await trio.lowlevel.checkpoint()
    _require_origin(call)
    endpoint = call.server.mcp or await _load(call)
    if call.opens_session and call.journal.is_stopping:
        raise ClosedError("the server is stopping, and begins no new work")
    return await endpoint.answer(call)


async def _load(call: ApiCall) -> "McpEndpoint":
    """Import the SDK in a thread: it takes a second, and other clients do not wait."""
    try:
        await trio.to_thread.run_sync(import_module, ENDPOINT)
    except ModuleNotFoundError as exc:
        raise HttpError(
            501,
            f"this server cannot speak MCP: it needs {exc.name}; its owner can install it with"
            f" {INSTALL}",
            code="mcp_not_installed",
        ) from exc
    from orchestrator.products.server.mcp_endpoint import McpEndpoint

    if call.server.mcp is None:
        call.server.mcp = McpEndpoint(call.server.tools)
    return call.server.mcp


def _require_origin(call: ApiCall) -> None:
    """Refuse a web page of an origin that may not call this server."""
    origin = call.request.headers.get("origin")
    settings = call.server.settings
    if origin is None or {origin, "*"} & settings.origins:
        return
    host = urlsplit(origin).hostname or ""
    named = f"[{host}]" if ":" in host else host
    if settings.hosts is None or named not in settings.hosts:
        raise HttpError(
            403,
            f"pages of {origin[:100]!r} may not call this server; start it with --allow-origin to"
            " allow them",
            code="wrong_origin",
        )
