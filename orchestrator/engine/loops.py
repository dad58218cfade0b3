"""Two promises, kept: what is due is begun.

Both loops ask the ledger what is due. There is no queue that could lose anything, and a restart
needs no other code than this.
"""

from typing import NoReturn

import trio

from agents import raising_one_error
from delegation.session_context import reset_session_vars
from orchestrator.engine.delegator import OrchestratorDelegator
from orchestrator.engine.turns import Turns
from orchestrator.journal.bookkeeper import Bookkeeper


async def dispatch_forever(
    book: Bookkeeper, delegator: OrchestratorDelegator
) -> NoReturn:
    """Start detached children. This nursery owns every one of them."""
    # Whoever opened the orchestrator does not speak for those who ask it.
    reset_session_vars()
    with raising_one_error():
        async with trio.open_nursery() as children:
            while True:
                await book.wakeups.wait_startable()
                if book.admission.is_stopping:
                    await book.admission.wait_running()
                for task in list(book.ledger.startable.values()):
                    # Posted here, so that it is due no more; the child waits until it is durable.
                    if delegator.start(task):
                        children.start_soon(delegator.run_child, task.id)


async def wake_forever(book: Bookkeeper, turns: Turns) -> NoReturn:
    """Begin the turns of sessions that have mail. This nursery owns every one of them."""
    reset_session_vars()
    with raising_one_error():
        async with trio.open_nursery() as under_way:
            while True:
                await book.wakeups.wait_wakeable()
                if book.admission.is_stopping:
                    await book.admission.wait_running()
                for session in list(book.ledger.wakeable.values()):
                    assert session.door is not None, "nobody without a door is woken"
                    if turns.begin(session, session.door):
                        under_way.start_soon(turns.take_and_reply, session)
                    else:
                        under_way.start_soon(turns.deliver, session)
