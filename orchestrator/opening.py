"""Wiring the parts of an orchestrator, and taking over a journal that others have written."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Final

import trio

from agents import raising_one_error
from delegation import Ending, Outcome, SessionId, SessionRecord, TaskId, root_of
from delegation.events import JournalOpened, TaskSettled, TurnEnded
from orchestrator.acting import LOST, STOPPED, Acting
from orchestrator.bookkeeper import Bookkeeper
from orchestrator.delegator import OrchestratorDelegator
from orchestrator.house import House
from orchestrator.loops import dispatch_forever, wake_forever
from orchestrator.roster import Roster
from orchestrator.staging import Surroundings
from orchestrator.turns import Turns

CLOSE_SECONDS: Final = 5
"""How long connections to models may take to close."""


@asynccontextmanager
async def open_house(
    book: Bookkeeper,
    roster: Roster,
    surroundings: Surroundings,
    *,
    new_task_id: Callable[[], TaskId],
    delegating: Callable[
        [Bookkeeper, Acting, Callable[[], TaskId]], OrchestratorDelegator
    ] = OrchestratorDelegator,
) -> AsyncGenerator[House]:
    """Wire the parts of an orchestrator, and keep its promises as long as the block lasts.

    Args:
        book: who writes the journal.
        roster: who plays which part.
        surroundings: where they do.
        new_task_id: names tasks.
        delegating: makes who takes the requests of agents.
    """
    acting = Acting(book, roster, surroundings)
    delegator = delegating(book, acting, new_task_id)
    turns = Turns(book, acting, delegator)
    await _take_over(book, acting)
    house = House(
        book=book,
        roster=roster,
        acting=acting,
        delegator=delegator,
        turns=turns,
        listeners=acting.listeners,
        background=acting.background,
        new_session_id=_new_session_id,
        new_task_id=new_task_id,
    )
    try:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(dispatch_forever, book, delegator)
                nursery.start_soon(wake_forever, book, turns)
                nursery.start_soon(acting.background.run_forever)
                nursery.start_soon(acting.watch.watch_forever)
                try:
                    yield house
                finally:
                    turns.hang_up()
                    nursery.cancel_scope.cancel(reason="the orchestrator is closed")
    finally:
        book.close()
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await roster.aclose()


async def _take_over(book: Bookkeeper, acting: Acting) -> None:
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


def _new_session_id() -> SessionId:
    return SessionId(f"r_{token_hex(8)}")
