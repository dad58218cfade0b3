"""`POST /v1/responses/input_tokens`: estimates the input tokens of a response without running it.

It estimates the input of the first model call as budgets do, by the length of texts, images and
files. Instructions that a function of the agent makes are not counted.
"""

from typing import Literal

import msgspec
import trio
from starlette.responses import Response

from orchestrator.agents import ModelRequest
from orchestrator.agents.models.token_estimate import estimated_input
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.openai.responses.bodies import CreateResponse
from orchestrator.products.server.openai.responses.request import require_supported
from orchestrator.products.server.openai.responses.routes import prepare_response
from orchestrator.products.server.operation import Answer, Operation


class InputTokens(msgspec.Struct, kw_only=True):
    """An estimate of the input tokens."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


@Operation(
    "POST",
    "/v1/responses/input_tokens",
    Scope.RUN,
    Answer("The estimate", InputTokens),
    body=CreateResponse,
    errors=(404, 409, 503),
)
async def count_input_tokens(call: ApiCall) -> Response:
    """Estimate the number of tokens that an agent would read."""
    await trio.lowlevel.checkpoint()
    body = await call.body(CreateResponse)
    require_supported(body)
    request, _ = await prepare_response(call, body)
    own = request.agent.instructions
    messages = [it.message(number) for number, it in enumerate(request.history)]
    if request.message is not None:
        messages.append(request.message)
    asked = ModelRequest(
        instructions=f"{own if isinstance(own, str) else ''}\n{request.instructions}",
        transcript=messages,
        tools=(*request.agent.tools, *request.tools),
        output=request.terms.output_schema,
    )
    return json_response(InputTokens(input_tokens=max(1, estimated_input(asked))))
