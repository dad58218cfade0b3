"""Runs and tasks as clients are shown them. Times are seconds since the epoch."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from agents import Usage
from delegation import Ledger, Mode, SessionRecord, TaskId, one_line
from orchestrator.doors.http import KIND, is_over
from orchestrator.server.session_status import failure_reason, state_of

METADATA: Final = "metadata"
"""The label of what a client wrote on a session, as JSON."""
RunStatus: TypeAlias = Literal[
    "queued", "in_progress", "waiting", "completed", "failed", "cancelled"
]
Metadata: TypeAlias = Annotated[
    dict[
        Annotated[str, msgspec.Meta(max_length=64)],
        Annotated[str, msgspec.Meta(max_length=512)],
    ],
    msgspec.Meta(max_length=16, description="What you write on it for yourself."),
]


class Failure(msgspec.Struct, kw_only=True):
    """Why something did not succeed."""

    code: Annotated[
        str,
        msgspec.Meta(
            description="`rate_limit`, `auth`, `quota`, `context`, `provider`, `tool_limit`,"
            " `cancelled` or `internal`."
        ),
    ]
    message: str
    retry_after: Annotated[
        float | None,
        msgspec.Meta(description="After how many seconds to try again, if known."),
    ] = None


class RunSummary(msgspec.Struct, kw_only=True):
    """A run in short."""

    id: str
    object: Literal["run"] = "run"
    kind: Annotated[
        str,
        msgspec.Meta(
            description="How it came in: `run`, `response`, `chat`, `session`; empty: not"
            " over HTTP."
        ),
    ]
    agent: str
    status: Annotated[
        RunStatus,
        msgspec.Meta(
            description="`waiting` is for an approval. A conversation is `completed`"
            " whenever it has nothing to do."
        ),
    ]
    about: Annotated[str, msgspec.Meta(description="The input in one line.")]
    tasks: Annotated[
        dict[str, int],
        msgspec.Meta(description="How many tasks of its tree have each status."),
    ]
    usage: Annotated[
        Usage,
        msgspec.Meta(
            description="Of the whole tree. `cost` is micro-dollars; with any `unpriced`"
            " calls it is a lower bound."
        ),
    ]
    metadata: dict[str, str]
    created: float
    started: float | None
    ended: float | None


class Run(RunSummary, kw_only=True):
    """A run, which is the root of a tree of tasks."""

    input: str
    output: Annotated[
        str | None,
        msgspec.Meta(description="What it has answered, or had when it ended."),
    ]
    error: Failure | None
    seq: Annotated[
        int,
        msgspec.Meta(
            description="The number of the journal's last fact: all of this was true then,"
            " and events after it are news."
        ),
    ]


class Task(msgspec.Struct, kw_only=True):
    """One task of a tree; the root of a run has the id of the run."""

    id: str
    object: Literal["task"] = "task"
    run: str
    path: Annotated[
        str, msgspec.Meta(description="Where it is, such as `/editor/researcher[3]`.")
    ]
    agent: str
    goal: str
    label: str
    status: Annotated[
        str,
        msgspec.Meta(
            description="`queued`, `running`, `quiet`, `waiting`, `interrupted`, `succeeded`,"
            " `failed`, `cancelled`, `timed_out`, `over_budget`, `refused` or `lost`."
        ),
    ]
    mode: Annotated[
        Mode,
        msgspec.Meta(
            description="`joined`: whoever asked waits for it; `detached`: is told later."
        ),
    ]
    reason: Annotated[str, msgspec.Meta(description="Why it is joined or detached.")]
    parent: str | None
    children: list[str]
    usage: Usage
    total: Annotated[
        Usage, msgspec.Meta(description="The usage of it and all below it.")
    ]
    output: str | None
    error: Annotated[str, msgspec.Meta(description="Why it did not succeed.")]
    created: float
    started: float | None
    ended: float | None
    seq: Annotated[
        int, msgspec.Meta(description="The number of the journal's last fact.")
    ]


def encode_metadata(metadata: Mapping[str, str]) -> str:
    """Return what a client writes on a session as a label."""
    return msgspec.json.encode(metadata).decode()


def metadata_of(session: SessionRecord) -> dict[str, str]:
    written = session.labels.get(METADATA)
    return msgspec.json.decode(written, type=dict[str, str]) if written else {}


def status_of(session: SessionRecord, ledger: Ledger) -> RunStatus:
    """Return how far a run is, and whether it waits for an approval."""
    state = state_of(session)
    asks = ledger.open_questions.values()
    if any(ledger.tasks[ask.task].session == session.id for ask in asks):
        return "waiting" if state == "in_progress" else state
    return state


def failure_of(session: SessionRecord) -> Failure | None:
    """Return why a session that is over did not succeed."""
    outcome = session.last_outcome
    why = failure_reason(outcome) if outcome is not None and is_over(session) else None
    if why is None:
        return None
    return Failure(code=why.code, message=why.message, retry_after=why.retry_after)


def summary_of(session: SessionRecord, ledger: Ledger) -> RunSummary:
    node = session.tree[session.root.id]
    return RunSummary(
        id=session.id,
        kind=session.labels.get(KIND, ""),
        agent=session.root.agent,
        status=status_of(session, ledger),
        about=one_line(node["goal"]),
        tasks=dict(session.tree.counts()),
        usage=session.tree.total,
        metadata=metadata_of(session),
        created=node["requested"],
        started=node["started"],
        ended=node["ended"] if is_over(session) else None,
    )


def run_of(session: SessionRecord, ledger: Ledger, *, seq: int) -> Run:
    """Return a run as it is shown.

    Args:
        session: which.
        ledger: whose it is: that of the orchestrator, or the fold of this session alone.
        seq: the number of the last fact of the journal.
    """
    short = summary_of(session, ledger)
    outcome = session.last_outcome if is_over(session) else None
    return Run(
        **{name: getattr(short, name) for name in RunSummary.__struct_fields__},
        input=session.tree[session.root.id]["goal"],
        output=None if outcome is None else outcome.output,
        error=failure_of(session),
        seq=seq,
    )


def task_of(task: TaskId, session: SessionRecord, ledger: Ledger, *, seq: int) -> Task:
    """Return a task as it is shown."""
    node, record = session.tree[task], ledger.tasks[task]
    is_root = record is session.root
    outcome = session.last_outcome if is_root else record.outcome
    return Task(
        id=task,
        run=session.id,
        path=node["path"],
        agent=node["agent"],
        goal=node["goal"],
        label=node["label"],
        status=node["status"],
        mode=record.mode,
        reason=node["reason"],
        parent=node["parent"],
        children=list(session.tree.children(task)),
        usage=node["usage"],
        total=node["total"],
        output=None if outcome is None else outcome.output,
        error=node["error"],
        created=node["requested"],
        started=node["started"],
        ended=node["ended"],
        seq=seq,
    )
