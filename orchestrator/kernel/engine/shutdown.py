"""The stop of an orchestrator: begin nothing new, let running tasks finish, give up the rest.

A task that has not finished by then is interrupted if it can be resumed, and cancelled if not.
"""

from collections.abc import Iterator
from typing import Final

import trio

from orchestrator.delegation import Cause, Ending, Mode, Outcome, TaskRecord
from orchestrator.kernel.engine.settlement import Settlement
from orchestrator.kernel.execution.outcomes import STOPPED
from orchestrator.kernel.execution.workspace.tool_machine import ToolMachine
from orchestrator.kernel.journal.bookkeeper import Bookkeeper

WRITE_SECONDS: Final = 2
"""The time for the last facts to become durable."""


async def drain(book: Bookkeeper, seconds: float) -> bool:
    """Begin nothing new, wait for running tasks, and return whether all have ended."""
    book.admission.stop()
    with trio.move_on_after(seconds):
        await trio.lowlevel.checkpoint()
        while has_running_tasks(book):
            await book.wakeups.wait_changed()
    has_ended = not has_running_tasks(book)
    await book.wait_durable()
    return has_ended


def running_tasks(book: Bookkeeper) -> Iterator[TaskRecord]:
    """Yield the sessions in a turn and the detached tasks that run; joined ones run in these."""
    for id_ in book.cache.active:
        session = book.ledger.sessions[id_]
        if session.root.is_running:
            yield session.root
        yield from (task for task in session.unsettled_detached.values() if task.is_running)


def has_running_tasks(book: Bookkeeper) -> bool:
    return next(running_tasks(book), None) is not None


def count_running(book: Bookkeeper) -> int:
    """Return how many tasks run now, joined ones included."""
    count = 0
    pending = list(running_tasks(book))
    while pending:
        task = pending.pop()
        count += task.is_running
        children = task.children.unsettled.values()
        pending += [child for child in children if child.mode is Mode.JOINED]
    return count


async def abandon(book: Bookkeeper, settlement: Settlement, machine: ToolMachine) -> None:
    """Settle the running tasks that cannot be resumed, and take no more facts.

    A task that hangs cannot settle itself.
    """
    ledger = book.ledger
    machine.kill_now()
    for task in list(running_tasks(book)):
        if not book.closed and ledger.settles_on_teardown(task.id):
            outcome = Outcome(Ending.CANCELLED, error=STOPPED, cause=Cause.SHUTDOWN)
            settlement.settle(task, outcome)
    book.close()
    with trio.move_on_after(WRITE_SECONDS, shield=True):
        await book.wait_durable()
