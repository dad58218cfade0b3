"""`/health`, `/ready` and `/metrics`."""

from collections.abc import Mapping

import msgspec
import trio
from starlette.responses import Response

from orchestrator.server.metrics import CONTENT_TYPE_LATEST
from orchestrator.server.operation import (
    ApiCall,
    Operation,
    ResponseSpec,
    json_response,
)


class Health(msgspec.Struct):
    """The state of the server."""

    status: str


class Readiness(msgspec.Struct):
    """Whether the server accepts work."""

    status: str
    """`ok`, `stopping`, or `agents cannot run`."""
    agents: Mapping[str, str]
    """Why agents cannot run, by their names."""


async def health(call: ApiCall) -> Response:
    await trio.lowlevel.checkpoint()
    del call
    return json_response(Health("ok"))


async def ready(call: ApiCall) -> Response:
    await trio.lowlevel.checkpoint()
    problems = call.server.unusable_agents
    if call.server.is_stopping:
        return json_response(Readiness("stopping", problems), 503, retry_after="1")
    if problems:
        return json_response(Readiness("agents cannot run", problems), 503)
    return json_response(Readiness("ok", problems))


async def metrics(call: ApiCall) -> Response:
    await trio.lowlevel.checkpoint()
    return Response(call.server.metrics.text(), media_type=CONTENT_TYPE_LATEST)


OPERATIONS = (
    Operation(
        method="GET",
        path="/health",
        handle=health,
        summary="Whether the server is up",
        responses={200: ResponseSpec(description="It is up", body=Health)},
        is_public=True,
    ),
    Operation(
        method="GET",
        path="/ready",
        handle=ready,
        summary="Whether the server accepts work",
        responses={
            200: ResponseSpec(description="It does", body=Readiness),
            503: ResponseSpec(
                description="It is stopping, or an agent cannot run", body=Readiness
            ),
        },
        is_public=True,
    ),
    Operation(
        method="GET",
        path="/metrics",
        handle=metrics,
        summary="Metrics for Prometheus",
        responses={
            200: ResponseSpec(
                description="In its text format", media_types=("text/plain",)
            )
        },
    ),
)
