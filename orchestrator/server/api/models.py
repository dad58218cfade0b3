"""`GET /v1/models`: every agent is a model."""

import msgspec
import trio
from starlette.responses import Response

from orchestrator.server.keys.key import Scope
from orchestrator.server.operation import (
    ApiCall,
    Operation,
    ResponseSpec,
    json_response,
)


class Model(msgspec.Struct, kw_only=True):
    """An agent, in the words of OpenAI's clients."""

    id: str
    object: str = "model"
    created: int
    """When this server began to serve it, in seconds since 1970."""
    owned_by: str = "orchestrator"


class Models(msgspec.Struct, kw_only=True):
    data: list[Model]
    object: str = "list"


async def list_models(call: ApiCall) -> Response:
    await trio.lowlevel.checkpoint()
    created = call.server.started
    names = call.server.agents
    return json_response(Models(data=[Model(id=it, created=created) for it in names]))


async def get_model(call: ApiCall) -> Response:
    await trio.lowlevel.checkpoint()
    agent = call.server.agent(call.path("model"))
    return json_response(Model(id=agent.name, created=call.server.started))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/models",
        handle=list_models,
        summary="The agents of this server",
        scope=Scope.READ,
        responses={200: ResponseSpec(description="All of them", body=Models)},
    ),
    Operation(
        method="GET",
        path="/v1/models/{model}",
        handle=get_model,
        summary="One of the agents",
        scope=Scope.READ,
        responses={200: ResponseSpec(description="The agent", body=Model)},
        error_statuses=(404,),
    ),
)
