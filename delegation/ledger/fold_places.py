"""The fold of calls and turns that are lent to workers: where each waits, or runs."""

from typing import TYPE_CHECKING, Final

from orchestrator.agents import CallId
from orchestrator.delegation.events import CallPlaced, Entry, TaskStarted, TurnResumed
from orchestrator.delegation.ledger.fold_approvals import drop_questions
from orchestrator.delegation.ledger.fold_table import FoldRow, fold_row
from orchestrator.delegation.ledger.task_record import NOTHING_PLACED, TaskRecord
from orchestrator.delegation.ledger.transitions import require, running_task

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.ledger import Ledger


def call_placed(ledger: "Ledger", event: CallPlaced, _: Entry) -> None:
    task = running_task(ledger, event)
    before = task.placed.get(event.call)
    is_next = before is None or before.attempt <= event.attempt
    require(is_next, event, "a later attempt was made already", task)
    # A turn has one worker.
    others = {it: by for it, by in task.placed.items() if not (event.turn and by.turn)}
    task.placed = {**others, event.call: event}


def drop_placed(task: TaskRecord, call: CallId) -> None:
    """Forget where a call runs that has its result; the worker of a turn stays until its end."""
    left = {id_: it for id_, it in task.placed.items() if id_ != call or it.turn}
    task.placed = left or NOTHING_PLACED


def begin_anew(
    ledger: "Ledger", task: TaskRecord, event: TaskStarted | TurnResumed, *, start: int
) -> None:
    """Let a task begin anew that runs: its worker is gone, with the state of its tools.

    Args:
        ledger: has the task.
        task: the task.
        event: says so.
        start: the length that its transcript had when it began.
    """
    placed = task.placed_turn
    had_worker = placed is not None and bool(placed.execution)
    require(had_worker, event, "it runs, and no worker has its turn", task)
    require(not task.children.unsettled, event, "tasks below it have not ended", task)
    drop_questions(ledger, task)
    task.rewind(start)


FOLDS: Final[tuple[FoldRow, ...]] = (fold_row(CallPlaced, call_placed),)
