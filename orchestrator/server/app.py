"""All routes, and the application that serves them."""

from typing import Final

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from orchestrator.server import health, models
from orchestrator.server.errors import HttpError, not_found
from orchestrator.server.gate import Gate
from orchestrator.server.office import Office
from orchestrator.server.operations import Endpoint, Operation

OPERATIONS: Final[tuple[Operation, ...]] = (
    *models.OPERATIONS,
    *health.OPERATIONS,
)
_OPEN: Final = frozenset(it.path for it in OPERATIONS if it.is_open)


def application(office: Office) -> ASGIApp:
    """Return what a server serves."""
    routes = [
        Route(it.path, Endpoint(office, it), methods=[it.method]) for it in OPERATIONS
    ]
    app = Starlette(
        routes=routes, exception_handlers={HTTPException: _explain, Exception: _own_up}
    )
    return Gate(
        app=app,
        token=office.settings.token,
        hosts=office.settings.hosts,
        body_limit=office.settings.body_limit,
        is_open=_OPEN.__contains__,
        over=office.over,
        refused=office.metrics.refused,
    )


async def _explain(request: Request, exc: Exception) -> Response:
    """Say in our own words what starlette found wrong: the path, or the method."""
    await trio.lowlevel.checkpoint()
    assert isinstance(exc, HTTPException), "that is what this is called for"
    path = request.url.path
    if exc.status_code == 405:
        return HttpError(
            405,
            f"{path} does not take {request.method}",
            code="method_not_allowed",
            headers=exc.headers or {},
        ).response()
    return not_found(
        f"there is nothing at {path}; /openapi.json says what is there"
    ).response()


async def _own_up(request: Request, exc: Exception) -> Response:
    """Say that something is wrong here; what it is stands on stderr."""
    await trio.lowlevel.checkpoint()
    id_ = request.state.request_id
    exc.add_note(f"in the request {id_}")
    return HttpError(
        500,
        f"the server has made a mistake; whoever runs it finds more under {id_}",
        code="internal",
        type="server_error",
    ).response()
