"""`/v1/tasks`: one task of a tree, its transcript, and ways to steer or cancel it."""

from typing import Annotated, Final, Literal

import attrs
import msgspec
from starlette.responses import Response

from orchestrator.agents import MessageId, UserMessage, well_formed
from orchestrator.delegation import Receipt, SessionRecord
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.reads import FoundTask
from orchestrator.ports.sessions import InboundRequest
from orchestrator.products.server.api.bodies import Task, task_of
from orchestrator.products.server.api.lookup import find_task, read_task
from orchestrator.products.server.api.transcripts import Messages, TranscriptQuery, transcript_of
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation, doc
from orchestrator.products.server.transport.idempotency import message_id
from orchestrator.products.server.transport.session_headers import traceparent_of

LONGEST_WAIT: Final = 60


class SteeringMessage(msgspec.Struct, kw_only=True):
    """A message to a running task."""

    text: Annotated[str, msgspec.Meta(min_length=1)]
    seconds: Annotated[
        float,
        msgspec.Meta(
            ge=0, le=LONGEST_WAIT, description="The most seconds to wait until the task sees it."
        ),
    ] = 0


class SteeringReceipt(msgspec.Struct, kw_only=True):
    """The fate of a message to a task."""

    task: str
    message: Annotated[str, doc("Its id in the transcript.")]
    state: Annotated[
        Literal["seen", "too_late", "gone", "waiting"],
        doc(
            "`waiting`: the task sees it before its next model call; `gone`: the"
            " task had already ended."
        ),
    ]
    seen_at: Annotated[int | None, doc("The number of the model call that saw it.")]
    sentence: str
    seq: int


_SETTLED: Final = Answer("Every task is settled", Task)
_STEER: Final = Operation("POST", "", Scope.STEER, _SETTLED, takes_idempotency_key=True)
_PAUSE: Final = attrs.evolve(_STEER, errors=(409,))


@Operation("GET", "/v1/tasks/{task}", Scope.READ, Answer("The task", Task))
async def get_task(call: ApiCall) -> Response:
    """Return the status, outcome and usage of a task."""
    return await _show(call, await read_task(call, call.path("task")))


async def _show(call: ApiCall, found: FoundTask) -> Response:
    """Respond with the present state of a task, once it is durable."""
    body = task_of(found, seq=call.journal.read.last_seq)
    return await call.durable_response(body, x_run_id=body.run)


@Operation(
    "GET",
    "/v1/tasks/{task}/transcript",
    Scope.READ,
    Answer("A page of messages", Messages),
    query=TranscriptQuery,
)
async def get_transcript(call: ApiCall) -> Response:
    """Return the transcript of a task, with tool calls and their results."""
    query = call.query(TranscriptQuery)
    found = await read_task(call, call.path("task"))
    messages = await transcript_of(call, found.session, found.task.id, query)
    return json_response(messages, x_run_id=found.session.id)


@_STEER.at("/v1/tasks/{task}/cancel")
async def cancel_task(call: ApiCall) -> Response:
    """Cancel a task, and respond when all tasks below it have settled."""
    found = await find_task(call, call.path("task"))
    session = found.session
    is_root = session.root.id == found.task.id
    call.record(found.task.id)
    if is_root and session.kind not in {SessionKind.PROGRAM, SessionKind.CONVERSATION}:
        # A closed session is not woken by the notices of the cancelled tasks.
        await call.journal.door.close(session)
    else:
        await call.journal.orchestrator.cancel(found.task.id, tree=True)
    return await _show(call, found)


@_PAUSE.at("/v1/tasks/{task}/pause", Answer("The task is paused", Task))
async def pause_task(call: ApiCall) -> Response:
    """Pause a task: no new task below it starts; running tasks go on."""
    return await _set_paused(call, paused=True)


@_PAUSE.at("/v1/tasks/{task}/unpause", Answer("The task is not paused", Task))
async def unpause_task(call: ApiCall) -> Response:
    """Unpause a task: tasks below it start again, waiting ones first."""
    return await _set_paused(call, paused=False)


async def _set_paused(call: ApiCall, *, paused: bool) -> Response:
    found = await find_task(call, call.path("task"))
    call.record(found.task.id)
    orchestrator = call.journal.orchestrator
    act = orchestrator.pause if paused else orchestrator.unpause
    await act(found.task.id)
    return await _show(call, found)


@Operation(
    "POST",
    "/v1/tasks/{task}/steer",
    Scope.STEER,
    Answer("The receipt", SteeringReceipt),
    body=SteeringMessage,
    errors=(422,),
    takes_idempotency_key=True,
)
async def steer_task(call: ApiCall) -> Response:
    """Send a message to a running task."""
    body = await call.body(SteeringMessage)
    await call.take_texts([well_formed(body.text)])
    found = await find_task(call, call.path("task"))
    session, task = found.session, found.task
    id_ = message_id(call, task.steering)
    is_waiting = session.turn is None and session.awaits_notices
    if task is session.root and is_waiting and session.door is not None:
        return await _send_to_session(call, session, id_, body.text)
    call.record(task.id)
    receipt = await call.journal.door.steer(
        task.id, well_formed(body.text), id_=id_, seconds=body.seconds
    )
    return await _receipt_response(call, session, id_, receipt)


async def _send_to_session(
    call: ApiCall, session: SessionRecord, id_: MessageId, text: str
) -> Response:
    """Post a message to a session that waits for its detached tasks; its next turn reads it."""
    mail = session.mail.values()
    is_unread = any(isinstance(it, UserMessage) and it.id == id_ for it in mail)
    if not is_unread and session.root.transcript.find(id_) is None:
        request = InboundRequest(
            agent=call.server.agent(session.root.agent),
            message=UserMessage(well_formed(text), id=id_),
            context={**session.root.context, "traceparent": traceparent_of(call.headers)},
        )
        with call.begin_run(session):
            call.journal.door.receive(session, request)
            call.record(session.id)
    return await _receipt_response(call, session, id_, Receipt("waiting"))


async def _receipt_response(
    call: ApiCall, session: SessionRecord, id_: MessageId, receipt: Receipt
) -> Response:
    body = SteeringReceipt(
        task=call.path("task"),
        message=id_,
        state=receipt.state,
        seen_at=receipt.seen_at,
        sentence=receipt.sentence,
        seq=call.journal.read.last_seq,
    )
    return await call.durable_response(body, x_run_id=session.id)
