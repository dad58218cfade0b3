"""The loops that start due work: detached tasks, and the turns of sessions with mail.

Both ask the ledger for due work. There is no second queue that could lose work, and a restart needs
no other code than this.
"""

from itertools import islice
from typing import NoReturn

import trio

from orchestrator.agents import raising_one_error
from orchestrator.delegation.session_context import reset_session_vars
from orchestrator.kernel.engine.delegator import OrchestratorDelegator
from orchestrator.kernel.engine.deliveries import Deliveries
from orchestrator.kernel.engine.turns import Turns
from orchestrator.kernel.journal.admission import START_AT_ONCE
from orchestrator.kernel.journal.bookkeeper import Bookkeeper


async def dispatch_forever(book: Bookkeeper, delegator: OrchestratorDelegator) -> NoReturn:
    """Start detached children. This nursery owns every one of them."""
    # The sessions do not inherit the context of the opener.
    reset_session_vars()
    with raising_one_error():
        async with trio.open_nursery() as children:
            while True:
                await book.wakeups.wait_startable()
                if book.admission.is_stopping:
                    await book.admission.wait_running()
                due = islice(book.ledger.startable.values(), START_AT_ONCE)
                for task in list(due):
                    # Posted here, so that it is no longer due; the child waits until it is durable.
                    if delegator.start(task):
                        children.start_soon(delegator.run_child, task.id)


async def wake_forever(book: Bookkeeper, turns: Turns, deliveries: Deliveries) -> NoReturn:
    """Begin the turns of sessions that have mail. This nursery owns every one of them."""
    reset_session_vars()
    with raising_one_error():
        async with trio.open_nursery() as under_way:
            while True:
                await book.wakeups.wait_wakeable()
                if book.admission.is_stopping:
                    await book.admission.wait_running()
                due = islice(book.ledger.wakeable.values(), START_AT_ONCE)
                for session in list(due):
                    assert session.door is not None, "a session without a door is not woken"
                    if turns.begin(session, session.door):
                        under_way.start_soon(turns.take_and_deliver, session)
                    else:
                        under_way.start_soon(deliveries.deliver, session)
