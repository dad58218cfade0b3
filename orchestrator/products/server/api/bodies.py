"""The bodies of runs and tasks. Times are seconds since the epoch."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from orchestrator.agents import Usage
from orchestrator.agents.tools.evidence import Evidence
from orchestrator.delegation import Mode, Outcome, SessionRecord
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.journals import Records, SessionSummary, is_asking, summarize
from orchestrator.ports.reads import FoundTask
from orchestrator.ports.sessions import is_over
from orchestrator.products.server.keys.key import DEFAULT
from orchestrator.products.server.operation import doc
from orchestrator.products.server.session_status import (
    State,
    failure_reason,
    last_outcome_of,
    state_in,
    state_of,
)

MOST_NOTES: Final = 16
"""The most entries that the metadata of a client may have."""
RunStatus: TypeAlias = Literal[
    "queued", "in_progress", "waiting", "completed", "failed", "cancelled"
]
Metadata: TypeAlias = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[str, msgspec.Meta(max_length=512)]],
    msgspec.Meta(max_length=MOST_NOTES, description="Your own notes, as strings."),
]


class Failure(msgspec.Struct, kw_only=True):
    """The reason why a run or a turn did not succeed."""

    code: Annotated[
        str,
        doc(
            "`rate_limit`, `auth`, `quota`, `context`, `provider`, `tool_limit`,"
            " `cancelled` or `internal`."
        ),
    ]
    message: str
    retry_after: Annotated[float | None, doc("The seconds to wait before a retry, if known.")] = (
        None
    )


class RunSummary(msgspec.Struct, kw_only=True):
    """A run without its input and output."""

    id: str
    object: Literal["run"] = "run"
    kind: Annotated[SessionKind, doc("The kind of request that opened it; `program`: no request.")]
    owner: Annotated[str, doc("The owner of the key that opened it.")]
    agent: str
    status: Annotated[
        RunStatus,
        doc("`waiting`: a call waits for an approval. An idle conversation is `completed`."),
    ]
    about: Annotated[str, doc("The input in one line.")]
    tasks: Annotated[dict[str, int], doc("The number of tasks of its tree by status.")]
    usage: Annotated[
        Usage,
        doc(
            "The usage of the whole tree. `micro_usd` is its cost in millionths of a"
            " dollar; with any `unpriced` or `estimated` calls it is a lower bound. Interrupted"
            " calls are `estimated`, because no provider reports their usage."
        ),
    ]
    metadata: dict[str, str]
    interrupted: Annotated[bool, doc("Its process died; it goes on when it is resumed.")]
    paused: Annotated[bool, doc("No new task of its tree starts until it is unpaused.")]
    forked_from: Annotated[
        str, doc("The run that it was copied from, and the first task that differs: RUN/TASK.")
    ]
    process: Annotated[
        int, doc("The id of the process that runs it, if that is not this server; otherwise 0.")
    ] = 0
    created: float
    changed: Annotated[float, doc("When its last turn began or ended.")]
    started: float | None
    ended: float | None


class Run(RunSummary, kw_only=True):
    """A run: the root of a tree of tasks."""

    input: str
    output: Annotated[str | None, doc("The answer, complete or not.")]
    error: Failure | None
    seq: Annotated[
        int,
        doc(
            "The number of the journal's last fact. This body was true at that fact;"
            " later events are new."
        ),
    ]


class Task(msgspec.Struct, kw_only=True):
    """One task of a tree; the root of a run has the id of the run."""

    id: str
    object: Literal["task"] = "task"
    run: str
    path: Annotated[str, doc("Its place in the tree, such as `/editor/researcher[3]`.")]
    agent: str
    goal: str
    label: str
    status: Annotated[
        str,
        doc(
            "`queued`, `running`, `quiet`, `waiting`, `interrupted`, `succeeded`,"
            " `failed`, `cancelled`, `timed_out`, `over_budget`, `refused` or `lost`."
        ),
    ]
    mode: Annotated[
        Mode, doc("`joined`: its parent waits for it; `detached`: its parent gets a notice.")
    ]
    reason: Annotated[str, doc("The reason why it is joined or detached.")]
    parent: str | None
    children: list[str]
    usage: Usage
    total: Annotated[Usage, doc("The usage of the task and all tasks below it.")]
    output: str | None
    error: Annotated[str, doc("The reason why it did not succeed.")]
    evidence: Annotated[
        Evidence | None,
        doc("Facts about its effects, from its tools; null before its end, or without tools."),
    ]
    paused: Annotated[bool, doc("No new task below it starts until it is unpaused.")]
    created: float
    started: float | None
    ended: float | None
    seq: Annotated[int, doc("The number of the journal's last fact.")]


def status_of(session: SessionRecord, records: Records) -> RunStatus:
    """Return the status of a run: its progress, or `waiting` for an approval."""
    return _status(state_of(session), is_asking=is_asking(session, records))


def _status(state: State, *, is_asking: bool) -> RunStatus:
    return "waiting" if is_asking and state == "in_progress" else state


def failure_of(session: SessionRecord) -> Failure | None:
    """Return the reason why a finished session did not succeed."""
    outcome = last_outcome_of(session)
    return failure_body(outcome) if outcome is not None and is_over(session) else None


def failure_body(outcome: Outcome) -> Failure | None:
    """Return the reason why an outcome is no success; None for a success."""
    reason = failure_reason(outcome)
    if reason is None:
        return None
    return Failure(code=reason.code, message=reason.message, retry_after=reason.retry_after)


def summary_of(session: SessionRecord, records: Records) -> RunSummary:
    return run_summary(summarize(session, records))


def run_summary(summary: SessionSummary, process: int = 0) -> RunSummary:
    """Return the entry of a run in a list; `process` runs it, if that is not this server."""
    return RunSummary(
        id=summary.id,
        kind=summary.kind,
        owner=summary.owner or DEFAULT,
        agent=summary.agent,
        status=_status(state_in(summary), is_asking=summary.is_asking),
        about=summary.about,
        tasks=summary.tasks,
        usage=summary.usage,
        metadata=summary.metadata,
        interrupted=summary.awaits_resume and not summary.closed,
        paused=summary.is_paused,
        forked_from=summary.forked_from,
        process=0 if summary.is_over else process,
        created=summary.created,
        changed=summary.changed,
        started=summary.started,
        ended=summary.ended if summary.is_over else None,
    )


def run_of(session: SessionRecord, records: Records, *, seq: int) -> Run:
    """Return the body of a run; `seq` is the number of the journal's last fact."""
    summary = summary_of(session, records)
    outcome = last_outcome_of(session) if is_over(session) else None
    return Run(
        **{name: getattr(summary, name) for name in RunSummary.__struct_fields__},
        input=session.tree[session.root.id].goal,
        output=None if outcome is None else outcome.output,
        error=failure_of(session),
        seq=seq,
    )


def task_of(found: FoundTask, *, seq: int) -> Task:
    """Return the body of a task."""
    session, record = found.session, found.task
    node = session.tree[record.id]
    outcome = session.last_outcome if record.is_root else record.outcome
    return Task(
        id=record.id,
        run=session.id,
        path=node.path,
        agent=node.agent,
        goal=node.goal,
        label=node.label,
        status=node.status,
        mode=record.mode,
        reason=node.reason,
        parent=node.parent,
        children=list(session.tree.children(record.id)),
        usage=node.usage,
        total=node.total,
        output=None if outcome is None else outcome.output,
        error=node.error,
        evidence=None if outcome is None else outcome.evidence,
        paused=record.id in session.slots.paused,
        created=node.requested,
        started=node.started,
        ended=node.ended,
        seq=seq,
    )
