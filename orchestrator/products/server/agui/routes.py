"""`/agui`: a web front end runs an agent, answers its approvals, and comes back to its run.

A run outlives its stream, so its tasks may be detached. A run that may call tools of its client
ends with such a call, so its tasks are joined.
"""

from typing import Annotated, Final

import attrs
from starlette.responses import Response

from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.ports.errors import ClosedError
from orchestrator.products.server.agui import bodies
from orchestrator.products.server.agui.request import agent_of, to_inbound_request, verdict_of
from orchestrator.products.server.agui.stream import RunStream, error_event
from orchestrator.products.server.api.approvals import give_verdict
from orchestrator.products.server.api.lookup import find_run, read_run
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.endpoint import require_approver
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.openai.failures import run_header
from orchestrator.products.server.operation import Answer, Operation, doc
from orchestrator.products.server.transport.errors import bad_request
from orchestrator.products.server.transport.idempotency import session_exists
from orchestrator.products.server.transport.sse import SSE_MEDIA_TYPE, EventStream

_EVENTS: Final = Answer("Events of AG-UI", media_types=(SSE_MEDIA_TYPE,))


@attrs.frozen(kw_only=True)
class AguiQuery:
    """The agent of a run."""

    agent: Annotated[str, doc("The name of the agent; a server with one agent needs none.")] = ""


@Operation(
    "POST",
    "/agui",
    Scope.RUN,
    _EVENTS,
    body=bodies.RunInput,
    query=AguiQuery,
    errors=(404, 409, 422, 503),
    takes_idempotency_key=True,
    companion=bodies.resumed_session,
    run_key=bodies.run_key,
)
async def run_agui(call: ApiCall) -> Response:
    """Run an agent for a front end, or continue the stream of its run."""
    body = await call.body(bodies.RunInput)
    if body.resume:
        session, is_new = await _resume(call, body), False
    else:
        session, is_new = await _begin(call, body)
    # No event may show facts that a crash could still undo.
    await call.journal.read.wait_durable()
    return _stream(call, session, body, is_new=is_new)


@Operation("POST", "/agui/runs/{run}", Scope.READ, _EVENTS, body=bodies.RunInput, errors=(404,))
async def watch_run(call: ApiCall) -> Response:
    """Show a run that began elsewhere to a front end."""
    body = await call.body(bodies.RunInput)
    found = await read_run(call, call.path("run"))
    return _stream(call, found.session, body, is_new=False)


async def _begin(call: ApiCall, body: bodies.RunInput) -> tuple[SessionRecord, bool]:
    """Return the session of a run, and whether this request has opened it."""
    id_ = call.ids.new_session(call.journal.name)
    door = call.journal.door
    if session_exists(call, id_):
        return await door.find(str(id_)), False
    if call.journal.is_stopping:
        raise ClosedError("the server is stopping, and begins no new work")
    agent = agent_of(call, call.query(AguiQuery).agent)
    request = to_inbound_request(call, agent, body)
    await call.take_request(request)
    # Of two equal requests at the same time, one finds the other's session.
    if session_exists(call, id_):
        return await door.find(str(id_)), False
    with call.begin_run():
        session = door.open_background(request, id_)
        call.record(session.id)
    return session, True


async def _resume(call: ApiCall, body: bodies.RunInput) -> SessionRecord:
    """Answer the interrupts of a run; the first answer to each of them holds."""
    entries = body.resume or []
    sessions = {bodies.interrupt_parts(it.interrupt_id)[0] for it in entries}
    if len(sessions) > 1:
        raise bad_request("the interrupts belong to several runs: answer one run", param="resume")
    verdicts = [(bodies.interrupt_parts(it.interrupt_id)[1], *verdict_of(it)) for it in entries]
    await require_approver(call)
    await call.take_texts([reason for _, _, reason in verdicts])
    session = await find_run(call, SessionId(sessions.pop()))
    for approval, verdict, reason in verdicts:
        await give_verdict(call, session, approval, verdict, reason)
    return session


def _stream(
    call: ApiCall, session: SessionRecord, body: bodies.RunInput, *, is_new: bool
) -> Response:
    stream = RunStream(journal=call.journal, found=session, body=body, is_new=is_new)
    return EventStream(
        stream.send, headers=run_header(session), encode_error=error_event, error_name=""
    )
