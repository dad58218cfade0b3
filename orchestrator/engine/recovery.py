"""Taking over a journal that another process has written."""

from delegation import Ending, Outcome, SessionRecord, root_of
from delegation.events import JournalOpened, TaskSettled, TurnEnded
from orchestrator.execution.local import LOST, STOPPED, LocalExecutor
from orchestrator.journal.bookkeeper import Bookkeeper


async def recover(book: Bookkeeper, executor: LocalExecutor) -> None:
    """Say that what ran before runs no more, and end what nobody can ever take up again."""
    # Imported late: the reader of metadata is slow to import, and nobody else needs it.
    from importlib.metadata import version

    book.post(JournalOpened(version("delegation-orchestrator")))
    await executor.background.end_leftovers()
    for session in book.ledger.abandoned():
        assert session.turn is not None, "it is abandoned in the middle of a turn"
        executor.settle_descendants(root_of(session.id), Ending.LOST)
        outcome = Outcome(Ending.LOST, error=LOST)
        book.post(TurnEnded(session.id, session.turn.number, outcome))
    for session in list(book.ledger.sessions.values()):
        if session.closed:
            _settle_closed(book, executor, session)
    await book.wait_durable()


def _settle_closed(
    book: Bookkeeper, executor: LocalExecutor, session: SessionRecord
) -> None:
    """End what a session still had under way that was closed for good before a crash."""
    outcome = Outcome(Ending.CANCELLED, error=STOPPED)
    for task in list(session.unsettled_detached.values()):
        executor.settle_descendants(task.id, Ending.CANCELLED)
        # Who needed one of the others has been refused meanwhile.
        if task.outcome is None:
            book.post(TaskSettled(task.id, outcome))
    if session.turn is not None:
        executor.settle_descendants(session.root.id, Ending.CANCELLED)
        book.post(TurnEnded(session.id, session.turn.number, outcome))
