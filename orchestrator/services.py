"""The parts of an orchestrator, wired together. No part knows more than it is given here."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Final

import attrs
import trio

from agents import raising_one_error
from delegation import SessionId, TaskId
from orchestrator.engine.delegator import OrchestratorDelegator
from orchestrator.engine.loops import dispatch_forever, wake_forever
from orchestrator.engine.model_events import Listeners
from orchestrator.engine.recovery import take_over
from orchestrator.engine.turns import Turns
from orchestrator.execution.agent_registry import Roster
from orchestrator.execution.local import Acting
from orchestrator.execution.workspace.background_commands import Background
from orchestrator.execution.workspace.task_workspace import Surroundings
from orchestrator.journal.bookkeeper import Bookkeeper

CLOSE_SECONDS: Final = 5
"""How long connections to models may take to close."""


@attrs.frozen(kw_only=True)
class House:
    """What a door needs to let somebody in."""

    book: Bookkeeper
    roster: Roster
    acting: Acting
    delegator: OrchestratorDelegator
    turns: Turns
    listeners: Listeners
    background: Background
    new_session_id: Callable[[], SessionId]
    new_task_id: Callable[[], TaskId]


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
    await take_over(book, acting)
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


def _new_session_id() -> SessionId:
    return SessionId(f"r_{token_hex(8)}")
