"""`/v1/sessions/{session}/inbox`: replies, also read ones, wait until the client takes them."""

from typing import Annotated, Final, Literal

import attrs
import msgspec
import trio
from starlette.responses import Response

from orchestrator.delegation import Ending, Reply, SessionId
from orchestrator.products.server.api.bodies import Failure, failure_body
from orchestrator.products.server.api.sessions import find_session, read_session
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation, doc
from orchestrator.products.server.transport.errors import not_found
from orchestrator.products.server.transport.sse import wait_unless_disconnected

LONGEST_WAIT: Final = 60


class InboxReply(msgspec.Struct, kw_only=True):
    """The reply of one turn."""

    turn: int
    status: Ending
    text: str
    error: Failure | None
    read: Annotated[list[int], doc("The `seq` of the messages that it answers.")]


class Inbox(msgspec.Struct, kw_only=True):
    """The replies that the client has not taken yet, oldest first."""

    object: Literal["list"] = "list"
    data: list[InboxReply]
    seq: int


class TakenReply(msgspec.Struct, kw_only=True):
    """A reply that the client took out of the inbox."""

    session: str
    turn: int
    seq: int


@attrs.frozen(kw_only=True)
class InboxQuery:
    """The time to wait for a reply."""

    wait: Annotated[
        float,
        msgspec.Meta(ge=0, le=LONGEST_WAIT, description="The most seconds to wait for a reply."),
    ] = 0


@Operation(
    "GET",
    "/v1/sessions/{session}/inbox",
    Scope.READ,
    Answer("The replies stay in the inbox", Inbox),
    query=InboxQuery,
)
async def read_inbox(call: ApiCall) -> Response:
    """List the replies that were not taken yet; it can wait for one."""
    wait = call.query(InboxQuery).wait
    found = await read_session(call)
    if not found.session.closed:
        await _wait_for_replies(call, found.session.id, wait)
    session = (await read_session(call)).session
    data = [_body_of(reply) for reply in session.undelivered.values()]
    inbox = Inbox(data=data, seq=call.journal.read.last_seq)
    return await call.durable_response(inbox, x_run_id=session.id)


async def _wait_for_replies(call: ApiCall, session: SessionId, seconds: float) -> None:
    """Wait until a session has a reply in its inbox, or is closed."""
    read = call.journal.read

    def is_enough() -> bool:
        # A session at rest may be evicted; loading it again makes another record.
        record = read.records.sessions.get(session)
        is_closed = record is not None and record.closed
        return is_closed or read.has_untaken_reply(session)

    async def wait() -> None:
        with trio.move_on_after(seconds):
            await trio.lowlevel.checkpoint()
            while not (is_enough() or read.is_stopping or read.is_closed):
                await read.wait_session_changed(session)

    await wait_unless_disconnected(call.request, wait)


def _body_of(reply: Reply) -> InboxReply:
    return InboxReply(
        turn=reply.turn,
        status=reply.outcome.ending,
        text=reply.outcome.output,
        error=failure_body(reply.outcome),
        read=list(reply.read),
    )


@Operation(
    "DELETE",
    "/v1/sessions/{session}/inbox/{turn}",
    Scope.RUN,
    Answer("The reply is yours", TakenReply),
)
async def take_reply(call: ApiCall) -> Response:
    """Take a reply out of the inbox."""
    session = await find_session(call)
    turn = call.path("turn")
    # Compare text: parsing a number with thousands of digits takes long.
    replies = {str(number): it for number, it in session.undelivered.items()}
    reply = replies.get(turn)
    if reply is None:
        raise not_found(f"session {session.id!r} has no reply of turn {turn!r} to take")
    seq = call.journal.door.take_reply(reply)
    call.record(session.id)
    return await call.durable_response(TakenReply(session=session.id, turn=reply.turn, seq=seq))
