"""Handing work on: where joined and detached part ways.

They differ in nothing but who owns the task: the caller, or `dispatch_forever`. Both are run by
`run_child`.
"""

from collections.abc import Callable, Sequence

import trio

from agents import CallId, ToolError, raising_one_error
from delegation import (
    Assignment,
    DeliveryCapability,
    Ending,
    Mode,
    Origin,
    Outcome,
    TaskId,
    TaskRecord,
    TaskRequest,
    dispatched_answer,
    joined_answer,
)
from delegation.events import CancelRequested, TaskSettled, TaskStarted, TurnEnded
from orchestrator.acting import Acting
from orchestrator.bookkeeper import Bookkeeper


class OrchestratorDelegator:
    """Takes the requests of all agents, runs their children, and stops them."""

    def __init__(
        self, book: Bookkeeper, acting: Acting, new_task_id: Callable[[], TaskId]
    ) -> None:
        self._book = book
        self._acting = acting
        self._new_task_id = new_task_id

    async def delegate(
        self,
        assignments: Sequence[Assignment],
        *,
        parent: TaskId,
        origin: Origin,
        call: CallId,
        background: bool | None,
    ) -> str:
        """Hand work on, and return what the model reads."""
        ledger = self._book.ledger
        caller = ledger.tasks[parent]
        calls = [f"{call}#{index}" for index in range(len(assignments))]
        refused = self._book.admit(
            [
                TaskRequest(
                    id=self._new_task_id(),
                    parent=parent,
                    origin=origin,
                    call=key,
                    agent=assignment.agent,
                    goal=assignment.goal,
                    context=assignment.context,
                    label=assignment.label,
                    background=background,
                )
                for key, assignment in zip(calls, assignments, strict=True)
                # Asked for before a crash, and still there.
                if key not in caller.children.asked
            ]
        )
        if refused is not None:
            await trio.lowlevel.checkpoint()
            raise ToolError(refused.reason)
        tasks = [ledger.tasks[caller.children.asked[key]] for key in calls]
        if tasks[0].mode is Mode.DETACHED:
            await trio.lowlevel.checkpoint()
            return dispatched_answer(tasks)
        with raising_one_error():
            # Every child gets a task of its own, also a single one: a chain of delegations
            # would otherwise be one stack, and end where Python's recursion ends.
            async with trio.open_nursery() as children:
                for task in tasks:
                    if task.outcome is None:
                        self._book.post(TaskStarted(task.id))
                        children.start_soon(self.run_child, task.id)
        return joined_answer(tasks, ledger.sessions[origin.session])

    async def run_child(self, task: TaskId) -> None:
        """Run a task that was posted as started, until it is settled."""
        record = self._book.ledger.tasks[task]
        assert record.request is not None, "a session's root is run by its turns"
        # A child ends with its one turn, so nobody can tell it anything later.
        origin = Origin(
            session=record.session,
            turn=record.request.origin.turn,
            capability=DeliveryCapability.NONE,
        )
        await self._acting.see_through(
            task,
            origin=origin,
            delegator=self,
            ended=lambda outcome: TaskSettled(task, outcome),
        )

    async def cancel(self, task: TaskId) -> None:
        """End a task and all below it, and return when every one of them has ended.

        A session ends its turn and all that it has in the background, and then goes on.
        """
        record = self._book.ledger.tasks[task]
        targets = [record]
        if record.mode is Mode.ROOT:
            targets += self._book.ledger.sessions[record.session].outstanding.values()
        for target in targets:
            self._stop(target)
        while not all(map(self._has_ended, targets)):
            await self._book.wait_posted(after=self._book.ledger.last_seq)
        await self._book.wait_durable()

    def _stop(self, record: TaskRecord) -> None:
        if self._has_ended(record):
            return
        if not self._book.ledger.nobody_runs(record.id):
            self._book.post(CancelRequested(record.id))
            self._acting.stop(record.id)
            return
        # There is no agent to tell, so there is nobody but us to say that it has ended.
        self._acting.end_below(record.id, Ending.CANCELLED)
        outcome = Outcome(
            Ending.CANCELLED, error="it was stopped before it could go on"
        )
        session = self._book.ledger.sessions[record.session]
        if session.turn is not None and record.mode is Mode.ROOT:
            self._book.post(TurnEnded(session.id, session.turn.number, outcome))
        else:
            self._book.post(TaskSettled(record.id, outcome))

    def _has_ended(self, record: TaskRecord) -> bool:
        if record.mode is Mode.ROOT:
            return self._book.ledger.sessions[record.session].turn is None
        return record.outcome is not None
