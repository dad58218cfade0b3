"""`/v1/tasks`: one task of a tree, what was said in it, and acting on it."""

from typing import Annotated, Final, Literal

import msgspec
from starlette.responses import Response

from agents import MessageId, UserMessage, well_formed
from delegation import Receipt, SessionRecord, TaskId
from orchestrator.doors.http import CONVERSATION, KIND
from orchestrator.doors.inbound import Asked
from orchestrator.server.api.bodies import Task, task_of
from orchestrator.server.api.lookup import Seen, find_task, look_at_task
from orchestrator.server.api.transcripts import (
    Messages,
    TranscriptQuery,
    transcript_of,
)
from orchestrator.server.operation import Answer, Call, Operation, reply
from orchestrator.server.transport.idempotency import message_id

BY: Final = "outside"
LONGEST_WAIT: Final = 60


class Steering(msgspec.Struct, kw_only=True):
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


class Told(msgspec.Struct, kw_only=True):
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


async def get_task(call: Call) -> Response:
    return await _show(call, await look_at_task(call.office, call.path("task")))


async def _show(call: Call, seen: Seen) -> Response:
    book = call.office.book
    task = TaskId(call.path("task"))
    shown = task_of(task, seen.session, seen.ledger, seq=book.ledger.last_seq)
    await book.wait_durable()
    return reply(shown, x_run_id=shown.run)


async def get_transcript(call: Call) -> Response:
    query = call.query(TranscriptQuery)
    seen = await look_at_task(call.office, call.path("task"))
    task = TaskId(call.path("task"))
    said = await transcript_of(call.office, seen, task, query)
    return reply(said, x_run_id=seen.session.id)


async def cancel_task(call: Call) -> Response:
    seen = await find_task(call.office, call.path("task"))
    session = seen.session
    is_whole = session.root.id == call.path("task")
    if is_whole and session.labels.get(KIND, CONVERSATION) != CONVERSATION:
        # Otherwise the news of what was cancelled would wake it again.
        await call.office.door.close(session)
    else:
        await call.office.orchestrator.cancel(call.path("task"), tree=True)
    return await _show(call, seen)


async def steer_task(call: Call) -> Response:
    wanted = call.body(Steering)
    task = TaskId(call.path("task"))
    seen = await find_task(call.office, task)
    id_ = message_id(call, seen.ledger.tasks[task].steering)
    session = seen.session
    is_waiting = session.turn is None and session.awaits_news
    if task == session.root.id and is_waiting and session.door is not None:
        return await _tell(call, session, id_, wanted.text)
    house = call.office.orchestrator.house
    receipts = await house.delegator.steer(
        {task: id_}, well_formed(wanted.text), by=BY, seconds=wanted.seconds
    )
    return await _receipted(call, session, id_, receipts[task])


async def _tell(
    call: Call, session: SessionRecord, id_: MessageId, text: str
) -> Response:
    """Tell a session something that waits for what it has handed on: its next turn reads it."""
    ours = (*session.mail.values(), *session.root.transcript)
    if not any(isinstance(it, UserMessage) and it.id == id_ for it in ours):
        asked = Asked(
            agent=call.office.agent(session.root.agent),
            message=UserMessage(well_formed(text), id=id_),
            context=session.root.context,
        )
        call.office.door.tell(session, asked)
    return await _receipted(call, session, id_, Receipt("waiting"))


async def _receipted(
    call: Call, session: SessionRecord, id_: MessageId, receipt: Receipt
) -> Response:
    book = call.office.orchestrator.house.book
    seq = book.ledger.last_seq
    await book.wait_durable()
    told = Told(
        task=call.path("task"),
        message=id_,
        state=receipt.state,
        seen_at=receipt.seen_at,
        sentence=receipt.sentence,
        seq=seq,
    )
    return reply(told, x_run_id=session.id)


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/tasks/{task}",
        handle=get_task,
        summary="What a task does, or has done",
        answers={200: Answer(words="It", body=Task)},
        fails=(404,),
    ),
    Operation(
        method="GET",
        path="/v1/tasks/{task}/transcript",
        handle=get_transcript,
        summary="What was said in a task, with its calls of tools and their answers",
        query=TranscriptQuery,
        answers={200: Answer(words="A part of it", body=Messages)},
        fails=(400, 404),
    ),
    Operation(
        method="POST",
        path="/v1/tasks/{task}/cancel",
        handle=cancel_task,
        summary="End a task, and answer when all below it have ended, too",
        answers={200: Answer(words="All have ended", body=Task)},
        fails=(404,),
        is_keyed=True,
    ),
    Operation(
        method="POST",
        path="/v1/tasks/{task}/steer",
        handle=steer_task,
        summary="Tell a task something while it works",
        body=Steering,
        answers={200: Answer(words="The receipt", body=Told)},
        fails=(400, 404, 422),
        is_keyed=True,
    ),
)
