"""The summary of a session: its row in a list of runs, stored beside its facts.

A list reads the summary of a long session instead of its facts. The summary names the last fact
that it includes. A session at rest has its summary in the commit of its last fact; the summary of a
session at work is at most a second, or a third of its facts, behind. The facts are the truth: a
reader folds them if the summary does not fit.
"""

from typing import Final, TypeAlias

import msgspec

from orchestrator.agents import Usage
from orchestrator.delegation import Ending, SessionId, SessionRecord, one_line
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.kernel.journal.checksums import row_checksum
from orchestrator.kernel.journal.records import Records

MIN_FACTS: Final = 200
"""A session with fewer facts has no summary: a reader folds it in 2 ms."""
SHARE: Final = 3
"""A session at work gets a new summary after this share of new facts, such as a third."""
SECONDS: Final = 1.0
"""The time after which the next fact of a session at work brings a new summary."""

StoredSummary: TypeAlias = tuple[SessionId, int, str, int]
"""The session, the number of the last fact in the summary, the summary, and the checksum."""


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a session, without its tasks and texts."""

    id: SessionId
    kind: SessionKind
    owner: str
    agent: str
    about: str
    """The goal in one line."""
    status: str
    """The status of its root in the tree."""
    tasks: dict[str, int]
    """The number of tasks by status."""
    usage: Usage
    metadata: dict[str, str]
    forked_from: str
    created: float
    changed: float
    """The time when its last turn began or ended."""
    started: float | None
    ended: float | None
    has_begun: bool
    is_over: bool
    is_at_rest: bool
    is_paused: bool
    is_asking: bool
    """It waits for an approval."""
    closed: bool
    deleted: bool
    awaits_resume: bool
    ending: Ending | None
    """The end of its last turn."""
    note: str = ""
    """The note of that end, or how its program has changed since a crash, on one line."""


_DECODER: Final = msgspec.json.Decoder(SessionSummary)


def is_over(session: SessionRecord) -> bool:
    """Return whether a session has nothing left to do, or waits until it is resumed."""
    if session.closed or session.awaits_resume:
        return True
    return session.has_nothing_pending and session.turns > 0


def summarize(session: SessionRecord, records: Records) -> SessionSummary:
    """Return the summary of a session."""
    tree = session.tree
    node = tree[session.root.id]
    outcome = session.last_outcome
    return SessionSummary(
        id=session.id,
        kind=session.kind,
        owner=session.owner,
        agent=session.root.agent,
        about=one_line(node.goal),
        status=str(node.status),
        tasks=dict(tree.counts()),
        usage=tree.total,
        metadata=dict(session.metadata),
        forked_from=session.forked_from,
        created=node.requested,
        changed=changed_at(session),
        started=node.started,
        ended=node.ended,
        has_begun=session.turn is not None or session.turns > 0,
        is_over=is_over(session),
        is_at_rest=session.is_at_rest,
        is_paused=session.root.id in session.slots.paused,
        is_asking=is_asking(session, records),
        closed=session.closed,
        deleted=session.deleted,
        awaits_resume=session.awaits_resume,
        ending=None if outcome is None else outcome.ending,
        note=one_line(_note(session)),
    )


def _note(session: SessionRecord) -> str:
    if session.turn is not None:
        return session.turn.change
    return "" if session.last_outcome is None else session.last_outcome.note


def is_asking(session: SessionRecord, records: Records) -> bool:
    """Return whether a task of a session waits for an approval."""
    questions = records.open_questions.values()
    return any(records.tasks[it.task].session == session.id for it in questions)


def changed_at(session: SessionRecord) -> float:
    """Return the time when the last turn of a session began or ended."""
    tree = session.tree
    if not tree.turns:
        return tree[tree.root].requested
    began, ended = tree.turns[-1]
    return began if ended is None else ended


def store_form(summary: SessionSummary, seq: int) -> StoredSummary:
    """Return the row of a summary that includes the fact with this number."""
    body = msgspec.json.encode(summary).decode()
    return summary.id, seq, body, row_checksum(summary.id, seq, body)


def read_summary(
    stored: StoredSummary | None, *, last: int, has_writer: bool
) -> SessionSummary | None:
    """Return a stored summary, or None if the facts must be folded instead.

    Args:
        stored: the row of the session, if it has one.
        last: the number of the last fact of the session.
        has_writer: whether a process writes the journal. Without one, a session at work is
            interrupted, which no summary says.
    """
    if stored is None:
        return None
    session, seq, body, checksum = stored
    if row_checksum(session, seq, body) != checksum:
        return None
    try:
        summary = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        return None  # another version wrote it
    is_exact = summary.is_at_rest and seq >= last
    return summary if is_exact or has_writer else None
