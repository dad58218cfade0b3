"""The table of all routes, and the ASGI application that serves them."""

from collections.abc import Awaitable
from functools import cache
from types import ModuleType
from typing import Any, Final

import msgspec
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.products.server import mcp_route
from orchestrator.products.server.agui import routes as agui
from orchestrator.products.server.anthropic import routes as messages
from orchestrator.products.server.api import (
    approvals,
    branches,
    copies,
    events,
    failures,
    health,
    inbox,
    jobs,
    models,
    overview,
    part_bytes,
    prune,
    runs,
    sessions,
    simulations,
    tasks,
)
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.console import evaluations, login, page
from orchestrator.products.server.console import events as console_events
from orchestrator.products.server.endpoint import Endpoint
from orchestrator.products.server.openai import completions
from orchestrator.products.server.openai.chat import routes as chat
from orchestrator.products.server.openai.chat import stored as stored_chats
from orchestrator.products.server.openai.conversations import routes as conversations
from orchestrator.products.server.openai.responses import routes as responses
from orchestrator.products.server.openapi import document
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.state import ServerState
from orchestrator.products.server.transport.access import AccessCheck
from orchestrator.products.server.transport.cross_origin import CrossOrigin
from orchestrator.products.server.transport.errors import JSON, HttpError, not_found


@Operation("GET", "/openapi.json", None, Answer("The document", dict[str, Any]), is_public=True)
async def openapi(call: ApiCall) -> Response:
    """Return the OpenAPI document."""
    await trio.lowlevel.checkpoint()
    del call
    return Response(encoded_document(), media_type=JSON)


@cache
def encoded_document() -> bytes:
    """Return the OpenAPI document: any client may ask for it, so it is encoded once."""
    return msgspec.json.encode(document(OPERATIONS))


def _operations(*modules: ModuleType) -> tuple[Operation, ...]:
    """Return the operations of modules, in the order of their definition."""
    values = (it for module in modules for it in vars(module).values())
    return tuple(it for it in values if isinstance(it, Operation) and it.path)


# The busiest routes come first: a request is compared with each path until one fits.
OPERATIONS: Final = (
    *_operations(chat, responses, messages, conversations, completions, stored_chats, models),
    *_operations(runs, failures, prune, simulations, tasks, part_bytes, copies, approvals),
    *_operations(sessions, branches, inbox, overview, jobs, events, health),
    openapi,
)
CONSOLE_OPERATIONS: Final = (*_operations(page, login, console_events, evaluations), *page.FILES)
"""The routes of the console's own page, which are no API: the document leaves them out."""
ROUTES: Final = (*OPERATIONS, *CONSOLE_OPERATIONS, mcp_route.answer_mcp, *_operations(agui))
"""All routes. MCP and AG-UI are protocols of their own, and not in the document."""
_PUBLIC_PATHS: Final = frozenset(it.path for it in ROUTES if it.is_public)


def application(server: ServerState) -> ASGIApp:
    """Return the ASGI application of a server."""
    routes = [Route(it.path, Endpoint(server, it), methods=[it.method]) for it in ROUTES]

    def note_refusal(scope: Scope, status: int) -> None:
        server.metrics.count_refusal(status)
        if (audit := server.audit) is not None:
            audit.note_refusal(scope, status)

    app = Starlette(routes=routes, exception_handlers={HTTPException: _routing_error})
    exact = {(it.method, it.path): Endpoint(server, it) for it in ROUTES if "{" not in it.path}

    def route(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # Most requests have a path without parameters: it is not compared with other paths, and
        # each step of a request resumes fewer coroutines.
        found = exact.get((scope["method"], scope["path"]))
        if found is None:
            return app(scope, receive, send)
        scope["path_params"] = {}
        return found(scope, receive, send)

    checked = AccessCheck(
        app=route,
        keys=server.keys,
        take_request=server.quotas.take_request,
        hosts=server.settings.hosts,
        body_limit=server.settings.body_limit,
        is_public=_PUBLIC_PATHS.__contains__,
        shutdown=server.shutdown,
        note_refusal=note_refusal,
        sign_ins=server.sign_ins,
        secret=server.settings.cluster_secret,
    )
    origins = server.settings.origins
    return CrossOrigin(app=checked, origins=origins) if origins else checked


async def _routing_error(request: Request, exc: Exception) -> Response:
    """Return the error for an unknown path or method, in OpenAI's shape."""
    await trio.lowlevel.checkpoint()
    assert isinstance(exc, HTTPException), "starlette calls this only for HTTPException"
    path = request.url.path
    if exc.status_code == 405:
        return HttpError(
            405,
            f"{path} does not take {request.method}",
            code="method_not_allowed",
            headers={"allow": ", ".join(_methods_of(request))},
        ).response()
    return not_found(f"there is no route {path}; /openapi.json lists all routes").response()


def _methods_of(request: Request) -> list[str]:
    """Return the methods of a path; routes with exactly this path win over parameters."""
    path = request.url.path
    routes = [
        route
        for route in request.app.routes
        if isinstance(route, Route) and route.path_regex.match(path)
    ]
    exact = [route for route in routes if route.path == path]
    return sorted({method for it in exact or routes for method in it.methods or ()})
