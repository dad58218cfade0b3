"""`/v1/approvals`: the calls that wait until somebody has said whether they may be run."""

from typing import Annotated, Final, Literal

import msgspec
from starlette.responses import Response

from delegation import Ledger, TaskId
from delegation.events import ApprovalAnswered, ApprovalAsked
from delegation.events.approvals import BY_DEADLINE, ApprovalQuestion
from delegation.events.approvals import ApprovalVerdict as Verdict
from orchestrator.server.api.lookup import ID
from orchestrator.server.operation import (
    ApiCall,
    Operation,
    ResponseSpec,
    json_response,
)
from orchestrator.server.transport.errors import HttpError, not_found
from orchestrator.server.transport.session_headers import context_of

ANONYMOUS: Final = "somebody over HTTP"


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


class NewVerdict(msgspec.Struct, kw_only=True):
    """What somebody says to a call that waits."""

    answer: Annotated[
        Verdict,
        msgspec.Meta(
            description="`once`; `task`: the same again in this task and below it;"
            " `session`: in the whole run; or `deny`."
        ),
    ]
    reason: Annotated[str, msgspec.Meta(description="Why, for the agent to read.")] = ""


class AcceptedVerdict(msgspec.Struct, kw_only=True):
    """The answer that holds."""

    id: str
    object: Literal["approval.answered"] = "approval.answered"
    task: str
    answer: Verdict
    reason: str
    by: str
    seq: int


async def list_approvals(call: ApiCall) -> Response:
    orchestrator = call.server.orchestrator
    book = orchestrator.services.book
    asks = [_shown(ask, book.ledger) for ask in orchestrator.approvals]
    await book.wait_durable()
    return json_response(Approvals(data=asks))


def _shown(ask: ApprovalQuestion, ledger: Ledger) -> Approval:
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


async def answer_approval(call: ApiCall) -> Response:
    wanted = call.body(NewVerdict)
    by = _by(call)
    id_ = call.path("approval")
    orchestrator = call.server.orchestrator
    asks = {str(ask.id): ask for ask in orchestrator.approvals}
    if id_ not in asks:
        return await _repeated_answer(call, id_, wanted)
    # Nothing waits until it is posted: it is still open.
    await orchestrator.answer(id_, wanted.answer, reason=wanted.reason, by=by)
    return json_response(
        AcceptedVerdict(
            id=id_,
            task=asks[id_].task,
            answer=wanted.answer,
            reason=wanted.reason,
            by=by,
            seq=orchestrator.services.book.ledger.last_seq,
        )
    )


def _by(call: ApiCall) -> str:
    name = context_of(call.request.headers)["user_name"]
    return f"{name}, over HTTP" if name else ANONYMOUS


async def _repeated_answer(call: ApiCall, id_: str, wanted: NewVerdict) -> Response:
    """Answer as the first time, if the same was said before."""
    book = call.server.book
    await book.wait_durable()
    if not ID.fullmatch(id_):
        raise _unknown(id_)
    for entry in await book.read_naming(ApprovalAnswered, id_):
        fact = entry.event
        if isinstance(fact, ApprovalAnswered) and fact.id == id_:
            if fact.answer is not wanted.answer or fact.by == BY_DEADLINE:
                raise HttpError(
                    409,
                    f"approval {id_!r} was answered already, by {fact.by}: {fact.answer}",
                    code="answered_already",
                )
            return json_response(
                AcceptedVerdict(
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
        responses={200: ResponseSpec(description="All of them", body=Approvals)},
    ),
    Operation(
        method="POST",
        path="/v1/approvals/{approval}",
        handle=answer_approval,
        summary="Say whether a call may be run; the first answer holds",
        body=NewVerdict,
        responses={200: ResponseSpec(description="That holds", body=AcceptedVerdict)},
        error_statuses=(400, 404, 409),
        takes_idempotency_key=True,
    ),
)
