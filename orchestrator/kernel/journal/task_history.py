"""The transcript of one task that has ended, folded from its own facts alone.

A run may have a hundred thousand facts, and a task a few. They are folded as the only task of a
session: what others did is no part of its transcript, but for the outputs that it was given of
tasks before it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from orchestrator.delegation import (
    DeliveryCapability,
    ImpossibleEventError,
    Ledger,
    Mode,
    SessionId,
    TaskId,
    events,
    root_of,
)
from orchestrator.kernel.journal.run_history import TaskTranscript, ended_transcript

SAYS: Final = (
    events.ModelAnswered,
    events.ModelFailed,
    events.ToolAnswered,
    events.Steered,
    events.SteeringSeen,
)
"""The facts of a transcript, besides the request and the starts."""
OPENED: Final = 3
"""The number of the last fact before the request."""


def read_task_transcript(
    session: SessionId, task: TaskId, entries: Sequence[events.Entry]
) -> TaskTranscript | None:
    """Return the transcript of an ended task, not a root; None if only the whole run tells it."""
    ledger = Ledger()
    try:
        for entry in _own_entries(session, task, entries):
            if isinstance(entry.event, events.TaskSettled):
                return ended_transcript(ledger.tasks[task], entry.event)
            ledger.fold(entry)
    except ImpossibleEventError:
        # It depends on other tasks, or has gone on in a way that its own facts do not tell.
        return None
    return None


def _own_entries(
    session: SessionId, task: TaskId, entries: Sequence[events.Entry]
) -> Iterator[events.Entry]:
    """Yield the facts of a session that has this task only."""
    root = root_of(session)
    capability = DeliveryCapability.PUSH
    opened: tuple[events.Event, ...] = (
        events.SessionOpened(session, ""),
        events.MessageReceived(session, ""),
        events.TurnStarted(session, 1, capability, (OPENED - 1,)),
    )
    last = 0
    has_started = False
    for entry in entries:
        event = entry.event
        if isinstance(event, events.TaskRequested):
            if event.request.id != task:
                continue
            if event.request.fork is not UNSET:
                return  # it continues the conversation of another task
            request = replace(event.request, parent=root)
            for last, fact in enumerate(opened, 1):
                yield events.Entry(last, entry.at, session, fact)
            has_started = event.started
            asked = events.TaskRequested(request, Mode.JOINED, event.reason, has_started)
            yield events.Entry(entry.seq, entry.at, session, asked)
        elif getattr(event, "task", None) != task:
            continue
        elif isinstance(event, events.TaskStarted):
            if has_started and last < entry.seq - 1:
                # Between both, the process had ended.
                taken_over = events.JournalOpened("")
                yield events.Entry(entry.seq - 1, entry.at, SessionId(""), taken_over)
            has_started = True
            yield entry
        elif isinstance(event, (*SAYS, events.TaskSettled)):
            yield entry
        last = entry.seq
