"""`/health`, `/ready` and `/metrics`."""

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


async def health(call: ApiCall) -> Response:
    await trio.lowlevel.checkpoint()
    del call
    return json_response(Health("ok"))


async def ready(call: ApiCall) -> Response:
    await trio.lowlevel.checkpoint()
    if call.server.is_stopping:
        return json_response(Health("stopping"), 503, retry_after="1")
    return json_response(Health("ok"))


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
            200: ResponseSpec(description="It does", body=Health),
            503: ResponseSpec(description="It is stopping", body=Health),
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
