"""`/v1/approvals`: the calls that wait until somebody has said whether they may be run."""

from typing import Annotated, Final, Literal

import msgspec
from starlette.responses import Response

from delegation import Ledger, TaskId
from delegation.events import ApprovalAnswered, ApprovalAsked
from delegation.events.approvals import DEADLINE, Ask
from delegation.events.approvals import Answer as Verdict
from orchestrator.server.api.lookup import ID
from orchestrator.server.operation import Answer, Call, Operation, reply
from orchestrator.server.transport.errors import HttpError, not_found
from orchestrator.server.transport.session_headers import context_of

BY: Final = "somebody over HTTP"


class Approval(msgspec.Struct, kw_only=True):
    """A call that waits, or has waited, for an answer."""

    id: str
    object: Literal["approval"] = "approval"
    task: str
    run: str
    path: Annotated[str, msgspec.Meta(description="Where in its tree the task is.")]
    tool: str
    subject: Annotated[
        str, msgspec.Meta(description="What is approved: this command, file, or call.")
    ]
    details: str
    asked: float
    deadline: Annotated[
        float, msgspec.Meta(description="When it is denied if nobody has answered.")
    ]


class Approvals(msgspec.Struct, kw_only=True):
    """All calls that wait now, the oldest first."""

    object: Literal["list"] = "list"
    data: list[Approval]


class Answering(msgspec.Struct, kw_only=True):
    """What somebody says to a call that waits."""

    answer: Annotated[
        Verdict,
        msgspec.Meta(
            description="`once`; `task`: the same again in this task and below it;"
            " `session`: in the whole run; or `deny`."
        ),
    ]
    reason: Annotated[str, msgspec.Meta(description="Why, for the agent to read.")] = ""


class Answered(msgspec.Struct, kw_only=True):
    """The answer that holds."""

    id: str
    object: Literal["approval.answered"] = "approval.answered"
    task: str
    answer: Verdict
    reason: str
    by: str
    seq: int


async def list_approvals(call: Call) -> Response:
    orchestrator = call.office.orchestrator
    book = orchestrator.house.book
    asks = [_shown(ask, book.ledger) for ask in orchestrator.approvals]
    await book.wait_durable()
    return reply(Approvals(data=asks))


def _shown(ask: Ask, ledger: Ledger) -> Approval:
    return Approval(
        id=ask.id,
        task=ask.task,
        run=ledger.tasks[TaskId(ask.task)].session,
        path=ask.path,
        tool=ask.tool,
        subject=ask.subject,
        details=ask.details,
        asked=ask.asked_at,
        deadline=ask.deadline,
    )


async def answer_approval(call: Call) -> Response:
    wanted = call.body(Answering)
    by = _by(call)
    id_ = call.path("approval")
    orchestrator = call.office.orchestrator
    asks = {str(ask.id): ask for ask in orchestrator.approvals}
    if id_ not in asks:
        return await _answered_before(call, id_, wanted)
    # Nothing waits until it is posted: it is still open.
    await orchestrator.answer(id_, wanted.answer, reason=wanted.reason, by=by)
    return reply(
        Answered(
            id=id_,
            task=asks[id_].task,
            answer=wanted.answer,
            reason=wanted.reason,
            by=by,
            seq=orchestrator.house.book.ledger.last_seq,
        )
    )


def _by(call: Call) -> str:
    name = context_of(call.request.headers)["user_name"]
    return f"{name}, over HTTP" if name else BY


async def _answered_before(call: Call, id_: str, wanted: Answering) -> Response:
    """Answer as the first time, if the same was said before."""
    book = call.office.book
    await book.wait_durable()
    if not ID.fullmatch(id_):
        raise _unknown(id_)
    for entry in await book.read_naming(ApprovalAnswered, id_):
        fact = entry.event
        if isinstance(fact, ApprovalAnswered) and fact.id == id_:
            if fact.answer is not wanted.answer or fact.by == DEADLINE:
                raise HttpError(
                    409,
                    f"approval {id_!r} was answered already, by {fact.by}: {fact.answer}",
                    code="answered_already",
                )
            return reply(
                Answered(
                    id=id_,
                    task=fact.task,
                    answer=fact.answer,
                    reason=fact.reason,
                    by=fact.by,
                    seq=entry.seq,
                )
            )
    for entry in await book.read_naming(ApprovalAsked, id_):
        if isinstance(entry.event, ApprovalAsked) and entry.event.id == id_:
            raise HttpError(
                409,
                f"nobody waits for approval {id_!r} any more: its time is over, or its task"
                " has ended",
                code="over",
            )
    raise _unknown(id_)


def _unknown(id_: str) -> HttpError:
    return not_found(f"there is no approval {id_!r}")


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/approvals",
        handle=list_approvals,
        summary="The calls that wait for an approval now",
        answers={200: Answer(words="All of them", body=Approvals)},
    ),
    Operation(
        method="POST",
        path="/v1/approvals/{approval}",
        handle=answer_approval,
        summary="Say whether a call may be run; the first answer holds",
        body=Answering,
        answers={200: Answer(words="That holds", body=Answered)},
        fails=(400, 404, 409),
        is_keyed=True,
    ),
)
