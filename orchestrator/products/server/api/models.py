"""`GET /v1/models`: every agent is a model. Also lists the language models that runs may choose."""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import trio
from starlette.responses import Response

from orchestrator.agents import Agent, DefinitionError, Pipeline
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation, doc


class Model(msgspec.Struct, kw_only=True):
    """An agent, in the words of OpenAI's and Anthropic's clients."""

    id: str
    object: str = "model"
    created: int
    """The time when this server began to serve it, in seconds since 1970."""
    owned_by: str = "orchestrator"
    type: str = "model"
    display_name: str
    created_at: str
    """The same time, as RFC 3339 writes it."""
    description: Annotated[str, doc("The purpose of the agent.")]
    language_model: Annotated[
        str | None, doc("The name of its own model; null for a pipeline, which calls no model.")
    ]


class Models(msgspec.Struct, kw_only=True):
    data: list[Model]
    object: str = "list"
    first_id: str | None
    last_id: str | None
    has_more: bool = False
    language_models: Annotated[
        list[str], doc("The values of `language_model` that a run may choose.")
    ]


@Operation("GET", "/v1/models", Scope.READ, Answer("All agents", Models))
async def list_models(call: ApiCall) -> Response:
    """List the agents of this server."""
    await trio.lowlevel.checkpoint()
    agents = call.server.agents
    usable = [it for it in call.server.language_models if _is_usable(call, it)]
    names = list(agents)
    return json_response(
        Models(
            data=[_body_of(call, name, agent) for name, agent in agents.items()],
            first_id=names[0] if names else None,
            last_id=names[-1] if names else None,
            language_models=usable,
        )
    )


def _body_of(call: ApiCall, name: str, agent: Agent[Any]) -> Model:
    own = agent.model if isinstance(agent.model, str) else agent.model.name
    return Model(
        id=name,
        created=call.server.started,
        display_name=name,
        created_at=datetime.fromtimestamp(call.server.started, UTC).isoformat(),
        description=call.server.tools[name].description,
        language_model=None if isinstance(agent, Pipeline) else own,
    )


def _is_usable(call: ApiCall, name: str) -> bool:
    journal = call.server.journals.first_or_none
    if journal is None:
        return False  # no run can begin now
    try:
        journal.door.require_model(Agent("any", model=name))
    except DefinitionError:
        return False
    return True


@Operation("GET", "/v1/models/{model}", Scope.READ, Answer("The agent", Model))
async def get_model(call: ApiCall) -> Response:
    """Return one of the agents."""
    await trio.lowlevel.checkpoint()
    name = call.path("model")
    return json_response(_body_of(call, name, call.server.agent(name)))
