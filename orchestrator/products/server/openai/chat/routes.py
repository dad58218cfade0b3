"""`POST /v1/chat/completions`: an agent takes one turn while the client waits.

No result can be delivered later. So every task is joined, and a client that disconnects cancels the
whole tree: no task runs on after the request.
"""

from msgspec.structs import replace
from starlette.responses import Response

from orchestrator.delegation.session_kind import SessionKind
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.openai.chat import bodies
from orchestrator.products.server.openai.chat.request import to_inbound_request
from orchestrator.products.server.openai.chat.response import completion
from orchestrator.products.server.openai.chat.stored import StoredChatState
from orchestrator.products.server.openai.chat.stream import stream_or_wait
from orchestrator.products.server.openai.requested_settings import also_ignored
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.session_status import wants_logprobs
from orchestrator.products.server.transport.sse import SSE_MEDIA_TYPE


@Operation(
    "POST",
    "/v1/chat/completions",
    Scope.RUN,
    Answer(
        "The answer, or a stream of chunks",
        bodies.ChatCompletion,
        media_types=("application/json", SSE_MEDIA_TYPE),
    ),
    body=bodies.ChatRequest,
    errors=(404, 409, 422, 499, 502, 503, 504),
    takes_idempotency_key=True,
)
async def create_chat_completion(call: ApiCall) -> Response:
    """Run an agent, and wait for its answer."""
    request, unknown = await call.body_and_unknown(bodies.ChatRequest)
    inbound, call.answer_headers = to_inbound_request(
        call, request, SessionKind.CHAT_COMPLETION, unknown
    )
    if request.store:
        stored = StoredChatState(is_stored=True, instructions=inbound.instructions)
        inbound = replace(inbound, states=(*inbound.states, stored))
    await call.take_request(inbound)
    count, include_reasoning = request.n or 1, bool(request.include_reasoning)
    begun = await stream_or_wait(
        call, [inbound] * count, request, include_reasoning=include_reasoning
    )
    if isinstance(begun, Response):
        return begun
    answer = completion(begun)
    if wants_logprobs(begun[0]) and any(_lacks_logprobs(it) for it in answer.choices):
        names = ["logprobs", *(["top_logprobs"] if request.top_logprobs else [])]
        call.answer_headers = also_ignored(call.answer_headers, names)
    return json_response(answer, x_run_id=begun[0].id)


def _lacks_logprobs(choice: bodies.Choice) -> bool:
    """Return whether a text lacks log probabilities: no model sent them, or it had a secret."""
    return bool(choice.message.content) and choice.logprobs is None
