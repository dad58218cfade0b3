"""The transcript of one task that has ended, folded from its own facts alone.

A run may have a hundred thousand facts, and a task a few. They are folded as the only task of a
session: what others did is no part of its transcript, but for the outputs that it was given of
tasks before it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from orchestrator.delegation import (
    DeliveryCapability,
    ImpossibleEventError,
    Ledger,
    Mode,
    SessionId,
    TaskId,
    root_of,
)
from orchestrator.delegation.events import (
    Entry,
    Event,
    JournalOpened,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    SessionOpened,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnStarted,
)
from orchestrator.kernel.journal.run_history import TaskTranscript

SAYS: Final = (ModelAnswered, ModelFailed, ToolAnswered, Steered, SteeringSeen)
"""What makes a transcript, besides the request and the starts."""
OPENED: Final = 3
"""The number of the last fact before the request."""


def read_task_transcript(
    session: SessionId, task: TaskId, entries: Sequence[Entry]
) -> TaskTranscript | None:
    """Return the transcript of an ended task, not a root; None if only the whole run tells it."""
    ledger = Ledger()
    try:
        for entry in _own_entries(session, task, entries):
            if isinstance(entry.event, TaskSettled):
                record = ledger.tasks[task]
                messages = [*record.transcript]
                return TaskTranscript(messages, entry.event.outcome, record.incidents)
            ledger.fold(entry)
    except ImpossibleEventError:
        # It depends on other tasks, or has gone on in a way that its own facts do not tell.
        return None
    return None


def _own_entries(session: SessionId, task: TaskId, entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the facts of a session that has this task only."""
    root = root_of(session)
    capability = DeliveryCapability.PUSH
    opened: tuple[Event, ...] = (
        SessionOpened(session, ""),
        MessageReceived(session, ""),
        TurnStarted(session, 1, capability, (OPENED - 1,)),
    )
    last = 0
    has_started = False
    for entry in entries:
        event = entry.event
        if isinstance(event, TaskRequested):
            if event.request.id != task:
                continue
            request = replace(event.request, parent=root)
            for last, fact in enumerate(opened, 1):
                yield Entry(last, entry.at, session, fact)
            asked = TaskRequested(request, Mode.JOINED, event.reason)
            yield Entry(entry.seq, entry.at, session, asked)
        elif getattr(event, "task", None) != task:
            continue
        elif isinstance(event, TaskStarted):
            if has_started and last < entry.seq - 1:
                # Between both, the process had ended.
                taken_over = JournalOpened("")
                yield Entry(entry.seq - 1, entry.at, SessionId(""), taken_over)
            has_started = True
            yield entry
        elif isinstance(event, (*SAYS, TaskSettled)):
            yield entry
        last = entry.seq
