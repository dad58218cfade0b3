"""`/health`, `/ready` and `/metrics`."""

from collections.abc import Mapping

import msgspec
import trio
from starlette.responses import Response

from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.metrics import CONTENT_TYPE_LATEST
from orchestrator.products.server.operation import ApiCall, Operation, ResponseSpec, json_response


class Health(msgspec.Struct):
    """The state of the server."""

    status: str


class Readiness(msgspec.Struct):
    """Whether the server accepts work."""

    status: str
    """`ok`, `stopping`, `no journal`, or `agents cannot run`."""
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
    if call.server.placement is None and not len(call.server.journals):
        # One without a shard passes all requests on; this one has nowhere to begin a run.
        return json_response(Readiness("no journal", problems), 503, retry_after="1")
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
        scope=None,
        is_public=True,
        responses={200: ResponseSpec(description="It is up", body=Health)},
    ),
    Operation(
        method="GET",
        path="/ready",
        handle=ready,
        summary="Whether the server accepts work",
        scope=None,
        is_public=True,
        responses={
            200: ResponseSpec(description="It does", body=Readiness),
            503: ResponseSpec(
                description="It is stopping, has no journal now, or an agent cannot run",
                body=Readiness,
            ),
        },
    ),
    Operation(
        method="GET",
        path="/metrics",
        handle=metrics,
        summary="Metrics for Prometheus",
        scope=Scope.ADMIN,
        responses={
            200: ResponseSpec(description="In its text format", media_types=("text/plain",))
        },
    ),
)
