"""Whether the server is there, whether it takes work, and what it counts."""

import msgspec
import trio
from starlette.responses import Response

from orchestrator.server.metrics import CONTENT_TYPE_LATEST
from orchestrator.server.operation import Answer, Call, Operation, reply


class Health(msgspec.Struct):
    """How the server is."""

    status: str


async def health(call: Call) -> Response:
    await trio.lowlevel.checkpoint()
    del call
    return reply(Health("ok"))


async def ready(call: Call) -> Response:
    await trio.lowlevel.checkpoint()
    if call.office.is_stopping:
        return reply(Health("stopping"), 503, retry_after="1")
    return reply(Health("ok"))


async def metrics(call: Call) -> Response:
    await trio.lowlevel.checkpoint()
    return Response(call.office.metrics.text(), media_type=CONTENT_TYPE_LATEST)


OPERATIONS = (
    Operation(
        method="GET",
        path="/health",
        handle=health,
        summary="Whether the server is there",
        answers={200: Answer(words="It is", body=Health)},
        is_open=True,
    ),
    Operation(
        method="GET",
        path="/ready",
        handle=ready,
        summary="Whether the server begins something new",
        answers={
            200: Answer(words="It does", body=Health),
            503: Answer(words="It is stopping", body=Health),
        },
        is_open=True,
    ),
    Operation(
        method="GET",
        path="/metrics",
        handle=metrics,
        summary="Counts for Prometheus",
        answers={200: Answer(words="In its text format", media=("text/plain",))},
    ),
)
