"""`/health`, `/ready` and `/metrics`."""

from collections.abc import Mapping

import msgspec
import trio
from starlette.responses import Response

from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.metrics import CONTENT_TYPE_LATEST
from orchestrator.products.server.operation import Answer, Operation


class Health(msgspec.Struct):
    """The state of the server."""

    status: str


class Readiness(msgspec.Struct):
    """Whether the server accepts work."""

    status: str
    """`ok`, `stopping`, `no journal`, `no database`, or `agents cannot run`."""
    agents: Mapping[str, str]
    """The reasons why agents cannot run, by their names."""


@Operation("GET", "/health", None, Answer("The server is up", Health), is_public=True)
async def health(call: ApiCall) -> Response:
    """Check whether the server is up."""
    await trio.lowlevel.checkpoint()
    del call
    return json_response(Health("ok"))


@Operation(
    "GET",
    "/ready",
    None,
    Answer("The server accepts work", Readiness),
    other_answers=(
        Answer(
            "It is stopping, has no journal or no database, or an agent cannot run",
            Readiness,
            status=503,
        ),
    ),
    is_public=True,
)
async def ready(call: ApiCall) -> Response:
    """Check whether the server accepts work."""
    await trio.lowlevel.checkpoint()
    problems = call.server.unusable_agents
    if call.server.is_stopping:
        return json_response(Readiness("stopping", problems), 503, retry_after="1")
    if call.server.placement is None and not len(call.server.journals):
        # A server without a shard passes all requests on; this one has nowhere to begin a run.
        return json_response(Readiness("no journal", problems), 503, retry_after="1")
    if not call.server.is_in_touch():
        return json_response(Readiness("no database", problems), 503, retry_after="1")
    if problems:
        return json_response(Readiness("agents cannot run", problems), 503)
    return json_response(Readiness("ok", problems))


@Operation(
    "GET", "/metrics", Scope.ADMIN, Answer("Prometheus' text format", media_types=("text/plain",))
)
async def metrics(call: ApiCall) -> Response:
    """Return metrics for Prometheus."""
    await trio.lowlevel.checkpoint()
    return Response(call.server.metrics.text(), media_type=CONTENT_TYPE_LATEST)
