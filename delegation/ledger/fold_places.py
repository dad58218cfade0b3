"""The fold of calls that are lent to workers: where each waits, or runs."""

from typing import TYPE_CHECKING

from agents import CallId
from delegation.events import CallPlaced
from delegation.ledger.records import NOTHING_PLACED, TaskRecord
from delegation.ledger.transitions import require, running_task

if TYPE_CHECKING:
    from delegation.ledger.ledger import Ledger


def call_placed(ledger: "Ledger", event: CallPlaced) -> None:
    task = running_task(ledger, event)
    before = task.placed.get(event.call)
    is_next = before is None or before.attempt <= event.attempt
    require(is_next, event, "a later attempt was made already", task)
    task.placed = {**task.placed, event.call: event}


def drop_placed(task: TaskRecord, call: CallId) -> None:
    """Forget where a call runs that has its result."""
    left = {id_: it for id_, it in task.placed.items() if id_ != call}
    task.placed = left or NOTHING_PLACED
