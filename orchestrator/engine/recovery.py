"""Taking over a journal that another process has written."""

from delegation import Ending, Outcome, SessionRecord, root_of
from delegation.events import JournalOpened, TaskSettled, TurnEnded
from orchestrator.execution.local import LOST, STOPPED, Acting
from orchestrator.journal.bookkeeper import Bookkeeper


async def take_over(book: Bookkeeper, acting: Acting) -> None:
    """Say that what ran before runs no more, and end what nobody can ever take up again."""
    # Imported late: the reader of metadata is slow to import, and nobody else needs it.
    from importlib.metadata import version

    book.post(JournalOpened(version("delegation-orchestrator")))
    await acting.background.end_leftovers()
    for session in book.ledger.abandoned():
        assert session.turn is not None, "it is abandoned in the middle of a turn"
        acting.end_below(root_of(session.id), Ending.LOST)
        outcome = Outcome(Ending.LOST, error=LOST)
        book.post(TurnEnded(session.id, session.turn.number, outcome))
    for session in list(book.ledger.sessions.values()):
        if session.closed:
            _end_closed(book, acting, session)
    await book.wait_durable()


def _end_closed(book: Bookkeeper, acting: Acting, session: SessionRecord) -> None:
    """End what a session still had under way that was closed for good before a crash."""
    outcome = Outcome(Ending.CANCELLED, error=STOPPED)
    for task in list(session.outstanding.values()):
        acting.end_below(task.id, Ending.CANCELLED)
        # Who needed one of the others has been refused meanwhile.
        if task.outcome is None:
            book.post(TaskSettled(task.id, outcome))
    if session.turn is not None:
        acting.end_below(session.root.id, Ending.CANCELLED)
        book.post(TurnEnded(session.id, session.turn.number, outcome))
