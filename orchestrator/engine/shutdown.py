"""Stopping in good order: nothing new is begun, what runs may finish, what hangs is written off.

What has not ended by then is what closing makes of it: interrupted where somebody can take it up
again, and cancelled where nobody can.
"""

from typing import Final

import trio

from delegation import Cause, Ending, Mode, Outcome
from orchestrator.engine.settlement import Settlement
from orchestrator.execution.outcomes import STOPPED
from orchestrator.execution.workspace.background_commands import BackgroundRunner
from orchestrator.journal.bookkeeper import Bookkeeper

WRITE_SECONDS: Final = 2
"""How long what is left may take to be written when nobody wants to wait any more."""


async def drain(book: Bookkeeper, seconds: float) -> bool:
    """Begin nothing new, wait for what runs, and tell whether all of it has ended."""
    book.stop_accepting()
    with trio.move_on_after(seconds):
        await trio.lowlevel.checkpoint()
        while book.has_running_tasks:
            await book.wait_changed()
    has_ended = not book.has_running_tasks
    await book.wait_durable()
    return has_ended


def count_running(book: Bookkeeper) -> int:
    """Return how many tasks an agent works on now."""
    count = 0
    pending = list(book.running_tasks())
    while pending:
        task = pending.pop()
        count += task.is_running
        children = task.children.unsettled.values()
        pending += [child for child in children if child.mode is Mode.JOINED]
    return count


async def abandon(
    book: Bookkeeper, settlement: Settlement, background: BackgroundRunner
) -> None:
    """Say of all that still runs how it ends, and take no more facts.

    Whoever hangs cannot say that itself. What can be taken up again is left as it is.
    """
    ledger = book.ledger
    background.kill_now()
    for task in list(book.running_tasks()):
        if not book.closed and ledger.settles_on_teardown(task.id):
            outcome = Outcome(Ending.CANCELLED, error=STOPPED, cause=Cause.SHUTDOWN)
            settlement.settle(task, outcome)
    book.close()
    with trio.move_on_after(WRITE_SECONDS, shield=True):
        await book.wait_durable()
