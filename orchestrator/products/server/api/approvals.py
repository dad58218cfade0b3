"""`/v1/approvals`: the tool calls that wait for a verdict."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import trio
from starlette.responses import Response

from orchestrator.delegation import SessionRecord, TaskId
from orchestrator.delegation.events import ApprovalAnswered, ApprovalAsked
from orchestrator.delegation.events.approvals import BY_DEADLINE, ApprovalQuestion
from orchestrator.delegation.events.approvals import ApprovalVerdict as Verdict
from orchestrator.ports.errors import JournalError
from orchestrator.ports.journals import Records
from orchestrator.products.server.api.lookup import all_bodies, other_answers
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import DEFAULT, Key, Scope
from orchestrator.products.server.operation import Answer, Operation, doc
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.transport.errors import HttpError, not_found
from orchestrator.products.server.transport.session_headers import context_of

if TYPE_CHECKING:
    from orchestrator.products.server.cluster.other_processes import OtherProcesses


class Approval(msgspec.Struct, kw_only=True):
    """A tool call that waits for a verdict."""

    id: str
    object: Literal["approval"] = "approval"
    task: str
    run: str
    path: Annotated[str, doc("The place of the task in its tree.")]
    tool: str
    subject: Annotated[
        str,
        doc(
            "The command, file content or call to approve. Runs of blanks and"
            " invisible characters are marked, such as `⟨2100 blanks⟩`."
        ),
    ]
    details: str
    why: Annotated[str, doc("The reason for the question, if no rule of the agent asks.")]
    asked: float
    deadline: Annotated[float, doc("The time when it is denied without a verdict.")]


class Approvals(msgspec.Struct, kw_only=True):
    """All calls that wait for a verdict now, oldest first."""

    object: Literal["list"] = "list"
    data: list[Approval]


class NewVerdict(msgspec.Struct, kw_only=True):
    """The verdict about a call."""

    answer: Annotated[
        Verdict,
        doc(
            "`once`; `task`: also the same call later in this task and below it;"
            " `session`: also in the whole run; or `deny`."
        ),
    ]
    reason: Annotated[str, doc("The reason, for the agent to read.")] = ""


class AcceptedVerdict(msgspec.Struct, kw_only=True):
    """The first verdict about a call, which holds."""

    id: str
    object: Literal["approval.answered"] = "approval.answered"
    task: str
    answer: Verdict
    reason: str
    by: str
    seq: int


@Operation("GET", "/v1/approvals", Scope.READ, Answer("All calls that wait", Approvals))
async def list_approvals(call: ApiCall) -> Response:
    """List the tool calls that wait for a verdict."""
    bodies = await all_bodies(call, approval_bodies)
    if call.server.others is not None and not call.is_forwarded:
        with suppress(JournalError):  # the journals of this server are listed in any case
            await call.server.others.look()
        bodies += other_approvals(call.server.others, call.key)
    for answer in await other_answers(call):
        bodies += msgspec.json.decode(answer, type=Approvals).data
    bodies.sort(key=lambda it: it.asked)
    return json_response(Approvals(data=bodies))


def approval_bodies(journal: ServedJournal, key: Key) -> list[Approval]:
    """Return the calls of a journal that wait for a verdict and that the key sees, oldest first."""
    records = journal.read.records
    return [body_of(it, records) for it in _open_questions(journal, key)]


def other_approvals(others: "OtherProcesses", key: Key) -> list[Approval]:
    """Return the calls of other processes that wait for a verdict and that the key sees."""
    return [
        body_of(it, records)
        for it, owner, records in others.questions()
        if key.may_see(owner or DEFAULT)
    ]


def _open_questions(journal: ServedJournal, key: Key) -> list[ApprovalQuestion]:
    read = journal.read
    tasks = read.records.tasks
    return [it for it in read.open_questions() if journal.owners.sees(key, tasks[it.task].session)]


def body_of(question: ApprovalQuestion, records: Records) -> Approval:
    return Approval(
        id=question.id,
        task=question.task,
        run=records.tasks[TaskId(question.task)].session,
        path=question.path,
        tool=question.tool,
        subject=question.subject,
        details=question.details,
        why=question.why,
        asked=question.asked_at,
        deadline=question.deadline,
    )


@Operation(
    "POST",
    "/v1/approvals/{approval}",
    Scope.APPROVE,
    Answer("The verdict that holds", AcceptedVerdict),
    body=NewVerdict,
    errors=(409,),
    takes_idempotency_key=True,
)
async def answer_approval(call: ApiCall) -> Response:
    """Approve or deny a tool call; the first verdict holds."""
    body = await call.body(NewVerdict)
    by = author_of(call)
    id_ = call.path("approval")
    questions = {str(it.id): it for it in _open_questions(call.journal, call.key)}
    if id_ not in questions:
        return await _repeated_answer(call, id_, body)
    # No checkpoint until the verdict is posted: so the question is still open.
    call.record(id_)
    await call.journal.orchestrator.answer(id_, body.answer, reason=body.reason, by=by)
    return json_response(
        AcceptedVerdict(
            id=id_,
            task=questions[id_].task,
            answer=body.answer,
            reason=body.reason,
            by=by,
            seq=call.journal.read.last_seq,
        )
    )


async def give_verdict(
    call: ApiCall, session: SessionRecord, approval: str, verdict: Verdict, reason: str
) -> None:
    """Answer a question of a session, if it is still open: the first verdict holds."""
    await trio.lowlevel.checkpoint()
    if approval in {it.id for it in call.journal.read.open_questions(session.id)}:
        call.record(approval)
        await call.journal.orchestrator.answer(approval, verdict, reason=reason, by=author_of(call))


def author_of(call: ApiCall) -> str:
    """Return the author of a verdict: the key, and the user name that its client claims."""
    key = call.key
    known = f"key {key.name}"
    if key.owner != key.name:
        known += f" (owner {key.owner})"
    claimed = context_of(call.headers)["user_name"]
    return f"{known}, who claims to be {claimed!r}" if claimed else known


async def _repeated_answer(call: ApiCall, id_: str, body: NewVerdict) -> Response:
    """Respond as the first time if the same verdict was given before."""
    read = call.journal.read
    for entry in await read.entries_naming(ApprovalAnswered, id_):
        fact = entry.event
        if not call.sees(entry.session):
            continue
        if isinstance(fact, ApprovalAnswered) and fact.id == id_:
            if fact.answer is not body.answer or fact.by == BY_DEADLINE:
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
    for entry in await read.entries_naming(ApprovalAsked, id_):
        is_it = isinstance(entry.event, ApprovalAsked) and entry.event.id == id_
        if is_it and call.sees(entry.session):
            raise HttpError(
                409,
                f"approval {id_!r} is no longer open: its deadline passed, or its task ended",
                code="over",
            )
    raise not_found(f"there is no approval {id_!r}")
