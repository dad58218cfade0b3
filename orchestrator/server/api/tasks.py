"""`/v1/tasks`: one task of a tree, what was said in it, and acting on it."""

from typing import Annotated, Final, Literal

import msgspec
from starlette.responses import Response

from agents import MessageId, UserMessage, well_formed
from delegation import Receipt, SessionRecord, TaskId
from delegation.events import SteeringOrigin
from orchestrator.doors.http import CONVERSATION, KIND
from orchestrator.doors.inbound import InboundRequest
from orchestrator.read_api import FoundSession
from orchestrator.server.api.bodies import Task, task_of
from orchestrator.server.api.lookup import find_task, read_task
from orchestrator.server.api.transcripts import (
    Messages,
    TranscriptQuery,
    transcript_of,
)
from orchestrator.server.operation import (
    ApiCall,
    Operation,
    ResponseSpec,
    json_response,
)
from orchestrator.server.transport.idempotency import message_id

BY: Final = "outside"
LONGEST_WAIT: Final = 60


class SteeringMessage(msgspec.Struct, kw_only=True):
    """Something to tell a task while it works."""

    text: Annotated[str, msgspec.Meta(min_length=1)]
    seconds: Annotated[
        float,
        msgspec.Meta(
            ge=0,
            le=LONGEST_WAIT,
            description="How long to wait until the task has seen it.",
        ),
    ] = 0


class SteeringReceipt(msgspec.Struct, kw_only=True):
    """What became of something that a task was told."""

    task: str
    message: Annotated[str, msgspec.Meta(description="Its id in the transcript.")]
    state: Annotated[
        Literal["seen", "too_late", "gone", "waiting"],
        msgspec.Meta(
            description="`waiting`: it will be seen before the next model call; `gone`: the"
            " task had ended already."
        ),
    ]
    seen_at: Annotated[
        int | None, msgspec.Meta(description="Before which model call it was seen.")
    ]
    sentence: str
    seq: int


async def get_task(call: ApiCall) -> Response:
    return await _show(call, await read_task(call.server, call.path("task")))


async def _show(call: ApiCall, found: FoundSession) -> Response:
    book = call.server.book
    task = TaskId(call.path("task"))
    shown = task_of(task, found.session, found.ledger, seq=book.ledger.last_seq)
    await book.wait_durable()
    return json_response(shown, x_run_id=shown.run)


async def get_transcript(call: ApiCall) -> Response:
    query = call.query(TranscriptQuery)
    seen = await read_task(call.server, call.path("task"))
    task = TaskId(call.path("task"))
    said = await transcript_of(call.server, seen, task, query)
    return json_response(said, x_run_id=seen.session.id)


async def cancel_task(call: ApiCall) -> Response:
    seen = await find_task(call.server, call.path("task"))
    session = seen.session
    is_whole = session.root.id == call.path("task")
    if is_whole and session.labels.get(KIND, CONVERSATION) != CONVERSATION:
        # Otherwise the news of what was cancelled would wake it again.
        await call.server.door.close(session)
    else:
        await call.server.orchestrator.cancel(call.path("task"), tree=True)
    return await _show(call, seen)


async def steer_task(call: ApiCall) -> Response:
    wanted = call.body(SteeringMessage)
    task = TaskId(call.path("task"))
    seen = await find_task(call.server, task)
    id_ = message_id(call, seen.ledger.tasks[task].steering)
    session = seen.session
    is_waiting = session.turn is None and session.awaits_notices
    if task == session.root.id and is_waiting and session.door is not None:
        return await _send_to_session(call, session, id_, wanted.text)
    house = call.server.orchestrator.services
    receipts = await house.delegator.steer(
        {task: id_},
        well_formed(wanted.text),
        by=BY,
        origin=SteeringOrigin.OUTSIDE,
        seconds=wanted.seconds,
    )
    return await _receipt_response(call, session, id_, receipts[task])


async def _send_to_session(
    call: ApiCall, session: SessionRecord, id_: MessageId, text: str
) -> Response:
    """Tell a session something that waits for what it has handed on: its next turn reads it."""
    ours = (*session.mail.values(), *session.root.transcript)
    if not any(isinstance(it, UserMessage) and it.id == id_ for it in ours):
        asked = InboundRequest(
            agent=call.server.agent(session.root.agent),
            message=UserMessage(well_formed(text), id=id_),
            context=session.root.context,
        )
        call.server.door.receive(session, asked)
    return await _receipt_response(call, session, id_, Receipt("waiting"))


async def _receipt_response(
    call: ApiCall, session: SessionRecord, id_: MessageId, receipt: Receipt
) -> Response:
    book = call.server.orchestrator.services.book
    seq = book.ledger.last_seq
    await book.wait_durable()
    told = SteeringReceipt(
        task=call.path("task"),
        message=id_,
        state=receipt.state,
        seen_at=receipt.seen_at,
        sentence=receipt.sentence,
        seq=seq,
    )
    return json_response(told, x_run_id=session.id)


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/tasks/{task}",
        handle=get_task,
        summary="What a task does, or has done",
        responses={200: ResponseSpec(description="It", body=Task)},
        error_statuses=(404,),
    ),
    Operation(
        method="GET",
        path="/v1/tasks/{task}/transcript",
        handle=get_transcript,
        summary="What was said in a task, with its calls of tools and their answers",
        query=TranscriptQuery,
        responses={200: ResponseSpec(description="A part of it", body=Messages)},
        error_statuses=(400, 404),
    ),
    Operation(
        method="POST",
        path="/v1/tasks/{task}/cancel",
        handle=cancel_task,
        summary="End a task, and answer when all below it have ended, too",
        responses={200: ResponseSpec(description="All have ended", body=Task)},
        error_statuses=(404,),
        takes_idempotency_key=True,
    ),
    Operation(
        method="POST",
        path="/v1/tasks/{task}/steer",
        handle=steer_task,
        summary="Tell a task something while it works",
        body=SteeringMessage,
        responses={200: ResponseSpec(description="The receipt", body=SteeringReceipt)},
        error_statuses=(400, 404, 422),
        takes_idempotency_key=True,
    ),
)
