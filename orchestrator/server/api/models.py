"""`GET /v1/models`: every agent is a model."""

import msgspec
import trio
from starlette.responses import Response

from orchestrator.server.operation import Answer, Call, Operation, reply


class Model(msgspec.Struct, kw_only=True):
    """An agent, as a client knows it."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "orchestrator"


class Models(msgspec.Struct, kw_only=True):
    data: list[Model]
    object: str = "list"


async def list_models(call: Call) -> Response:
    await trio.lowlevel.checkpoint()
    return reply(Models(data=[Model(id=name) for name in call.office.agents]))


async def get_model(call: Call) -> Response:
    await trio.lowlevel.checkpoint()
    return reply(Model(id=call.office.agent(call.path("model")).name))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/models",
        handle=list_models,
        summary="The agents that can be talked to",
        answers={200: Answer(words="All of them", body=Models)},
    ),
    Operation(
        method="GET",
        path="/v1/models/{model}",
        handle=get_model,
        summary="One of the agents",
        answers={200: Answer(words="It", body=Model)},
        fails=(404,),
    ),
)
