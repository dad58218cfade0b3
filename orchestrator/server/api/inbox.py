"""`/v1/sessions/{session}/inbox`: what a session says waits there until somebody has taken it.

Reading does not take, so nothing is lost with a connection.
"""

from typing import Annotated, Final, Literal

import attrs
import msgspec
import trio
from starlette.responses import Response

from delegation import Ending, Reply, SessionId
from orchestrator.server.api.bodies import Failure
from orchestrator.server.api.sessions import find_session, read_session
from orchestrator.server.operation import (
    ApiCall,
    Operation,
    ResponseSpec,
    json_response,
)
from orchestrator.server.session_status import failure_reason
from orchestrator.server.transport.errors import not_found
from orchestrator.server.transport.sse import wait_unless_disconnected

LONGEST_WAIT: Final = 60


class InboxReply(msgspec.Struct, kw_only=True):
    """What a session has said at the end of a turn."""

    turn: int
    status: Ending
    text: str
    error: Failure | None
    read: Annotated[
        list[int], msgspec.Meta(description="The `seq` of all that it answers.")
    ]


class Inbox(msgspec.Struct, kw_only=True):
    """What nobody has taken yet, the oldest first."""

    object: Literal["list"] = "list"
    data: list[InboxReply]
    seq: int


class TakenReply(msgspec.Struct, kw_only=True):
    """A reply that is in nobody's inbox any more."""

    session: str
    turn: int
    seq: int


@attrs.frozen(kw_only=True)
class InboxQuery:
    """How long to wait for something."""

    wait: Annotated[
        float,
        msgspec.Meta(
            ge=0, le=LONGEST_WAIT, description="How many seconds, if it is empty."
        ),
    ] = 0


async def read_inbox(call: ApiCall) -> Response:
    wait = call.query(InboxQuery).wait
    seen = await read_session(call)
    await _wait_for_replies(call, seen.session.id, wait)
    seen = await read_session(call)
    book = call.server.book
    inbox = Inbox(
        data=[_reply_shown(it) for it in seen.session.undelivered.values()],
        seq=book.ledger.last_seq,
    )
    await book.wait_durable()
    return json_response(inbox, x_run_id=seen.session.id)


async def _wait_for_replies(call: ApiCall, session: SessionId, seconds: float) -> None:
    """Wait until a session has said something that nobody has taken, or will say no more."""
    book = call.server.book

    def is_enough() -> bool:
        # At rest it may be forgotten, and be another record when it is remembered again.
        record = book.ledger.sessions.get(session)
        return record is not None and (bool(record.undelivered) or record.closed)

    async def wait() -> None:
        with trio.move_on_after(seconds):
            await trio.lowlevel.checkpoint()
            while not (is_enough() or book.stopping or book.closed):
                await book.wait_session_changed(session)

    await wait_unless_disconnected(call.request.receive, wait)


def _reply_shown(turn_reply: Reply) -> InboxReply:
    why = failure_reason(turn_reply.outcome)
    return InboxReply(
        turn=turn_reply.turn,
        status=turn_reply.outcome.ending,
        text=turn_reply.outcome.output,
        error=None
        if why is None
        else Failure(code=why.code, message=why.message, retry_after=why.retry_after),
        read=list(turn_reply.read),
    )


async def take_reply(call: ApiCall) -> Response:
    session = await find_session(call)
    turn = call.path("turn")
    # Not as a number: what is written with thousands of digits is none of ours.
    replies = {str(number): it for number, it in session.undelivered.items()}
    said = replies.get(turn)
    if said is None:
        raise not_found(f"there is no reply of turn {turn!r} to take in {session.id!r}")
    house = call.server.orchestrator.services
    house.turns.mark_delivered(said)
    seq = house.book.ledger.last_seq
    await house.book.wait_durable()
    return json_response(TakenReply(session=session.id, turn=said.turn, seq=seq))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/sessions/{session}/inbox",
        handle=read_inbox,
        summary="What nobody has taken yet; it may be waited for",
        query=InboxQuery,
        responses={200: ResponseSpec(description="It stays there", body=Inbox)},
        error_statuses=(400, 404),
    ),
    Operation(
        method="DELETE",
        path="/v1/sessions/{session}/inbox/{turn}",
        handle=take_reply,
        summary="Take a reply out of the inbox",
        responses={
            200: ResponseSpec(
                description="You have it, and nobody else", body=TakenReply
            )
        },
        error_statuses=(404,),
    ),
)
