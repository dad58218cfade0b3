"""Taking over a journal that another process has written."""

from orchestrator.delegation import Cause, Ending, Outcome, SessionRecord
from orchestrator.delegation.events import JournalOpened
from orchestrator.kernel.engine.settlement import Settlement
from orchestrator.kernel.execution.outcomes import STOPPED
from orchestrator.kernel.execution.workspace.tool_machine import ToolMachine
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.version import VERSION


async def recover(
    book: Bookkeeper, settlement: Settlement, machine: ToolMachine, *, host: str
) -> None:
    """Mark the work of the last process as interrupted, and settle tasks that cannot go on."""
    last_host = book.ledger.host
    book.post(JournalOpened(VERSION, host))
    settlement.refuse_unstartable()
    await machine.end_leftovers(last_host)
    for session in list(book.ledger.sessions.values()):
        if session.closed:
            _settle_closed(session, settlement)
    book.cache.trim()
    await book.wait_durable()


def _settle_closed(session: SessionRecord, settlement: Settlement) -> None:
    """Settle all tasks of a session that was closed before a crash."""
    outcome = Outcome(Ending.CANCELLED, error=STOPPED, cause=Cause.SESSION_CLOSED)
    for task in list(session.unsettled_detached.values()):
        # It may have been refused meanwhile, because it depended on one of the others.
        if task.outcome is None:
            settlement.settle(task, outcome)
    if session.turn is not None:
        settlement.settle(session.root, outcome)
