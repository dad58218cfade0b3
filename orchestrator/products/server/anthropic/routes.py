"""`POST /v1/messages`: an agent takes one turn while Anthropic's client waits.

As in a chat completion, no result can be delivered later. So every task is joined, and a client
that disconnects cancels the whole tree.
"""

from typing import Final

from starlette.responses import Response

from orchestrator.products.server.anthropic import bodies
from orchestrator.products.server.anthropic.request import to_inbound_request
from orchestrator.products.server.anthropic.response import message_of
from orchestrator.products.server.anthropic.stream import message_stream
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.openai.choices import (
    begin_choices,
    wait_for_answers,
    wait_for_turns,
)
from orchestrator.products.server.openai.estimate import estimated_tokens
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.transport.errors import JSON, MESSAGES, bad_request
from orchestrator.products.server.transport.sse import SSE_MEDIA_TYPE

NO_THREADS: Final = "thread_unsupported_request"
"""With this code Anthropic's tool runner goes on without a thread."""


@Operation(
    "POST",
    MESSAGES,
    Scope.RUN,
    Answer(
        "The message, or a stream of events",
        bodies.AnswerMessage,
        media_types=(JSON, SSE_MEDIA_TYPE),
    ),
    body=bodies.MessageRequest,
    errors=(404, 409, 422, 499, 502, 503, 504),
    takes_idempotency_key=True,
)
async def create_message(call: ApiCall) -> Response:
    """Run an agent, and wait for its answer in Anthropic's protocol."""
    request, unknown = await call.body_and_unknown(bodies.MessageRequest)
    if request.thread is not None:
        raise bad_request(
            "the server keeps no threads: send the whole conversation without 'thread'",
            param="thread",
            code=NO_THREADS,
        )
    inbound, call.answer_headers = to_inbound_request(call, request, unknown)
    await call.take_request(inbound)
    sessions = await begin_choices(call, [inbound])
    if request.stream:
        # No checkpoint before the stream is called, which then owns the turn.
        return message_stream(call, sessions[0])
    left = await wait_for_answers(call, sessions, wait_for_turns(call, sessions))
    return left or json_response(message_of(sessions[0]), x_run_id=sessions[0].id)


@Operation(
    "POST",
    f"{MESSAGES}/count_tokens",
    Scope.RUN,
    Answer("The estimate", bodies.TokenCount),
    body=bodies.CountRequest,
    errors=(404, 409, 503),
)
async def count_message_tokens(call: ApiCall) -> Response:
    """Estimate the number of tokens that an agent would read."""
    request, unknown = await call.body_and_unknown(bodies.CountRequest)
    inbound, call.answer_headers = to_inbound_request(call, request, unknown)
    await call.take_request(inbound)
    return json_response(bodies.TokenCount(estimated_tokens(inbound)))
