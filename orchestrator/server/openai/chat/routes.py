"""`POST /v1/chat/completions`: an agent takes one turn for whoever waits for it.

Nobody can be told anything afterwards. So what the agent delegates is joined, and whoever hangs up
cancels all of it: nothing of it runs any more when its request has ended.
"""

from functools import partial

import trio
from starlette.responses import Response

from delegation import SessionRecord
from orchestrator.doors.http import KIND
from orchestrator.server.openai.chat.bodies import ChatCompletion, ChatRequest
from orchestrator.server.openai.chat.request import asked_of
from orchestrator.server.openai.chat.response import completion
from orchestrator.server.openai.chat.stream import ChatStream
from orchestrator.server.openai.failures import failed, run_header
from orchestrator.server.operation import LEFT, Answer, Call, Operation, reply
from orchestrator.server.transport.idempotency import REQUEST, is_known, made_before
from orchestrator.server.transport.session_headers import context_of
from orchestrator.server.transport.sse import EVENTS, unless_left


async def create_chat_completion(call: Call) -> Response:
    await trio.lowlevel.checkpoint()
    request = call.body(ChatRequest)
    asked = asked_of(
        call.office.agent(request.model),
        request,
        context_of(call.request.headers),
        {KIND: "chat", REQUEST: call.fingerprint},
    )
    id_ = call.keyed_session()
    known = await made_before(call, id_) if is_known(call, id_) else None
    session = known or call.office.door.enter(asked, id_)
    if request.stream:
        options = request.stream_options
        # No checkpoint before it is called: then the turn of the session has an owner.
        return ChatStream(
            call.office,
            session,
            is_new=known is None,
            tells_usage=options is not None and options.include_usage,
        )
    return await _answer(call, session, is_new=known is None)


async def _answer(call: Call, session: SessionRecord, *, is_new: bool) -> Response:
    """Wait for the answer, and give up with whoever hangs up."""
    door = call.office.door
    wait = partial(door.take if is_new else door.wait_over, session)
    if not await unless_left(call.request.receive, wait):
        return Response(status_code=LEFT, headers=run_header(session))
    if (problem := failed(session)) is not None:
        raise problem
    return reply(completion(session), x_run_id=session.id)


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/chat/completions",
        handle=create_chat_completion,
        summary="Ask an agent, and wait for its answer",
        body=ChatRequest,
        answers={
            200: Answer(
                words="Its answer, or a stream of chunks",
                body=ChatCompletion,
                media=("application/json", EVENTS),
            )
        },
        fails=(400, 404, 409, 422, 429, 499, 500, 502, 503, 504),
        is_keyed=True,
    ),
)
