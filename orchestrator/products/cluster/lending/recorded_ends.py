"""The ends of executions that wait to be acknowledged, until their answers are in the journal.

An end is acknowledged when its answer is durable. So the next writer gets what this one could not
record: its worker offers the end until then.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NoReturn

import trio

from orchestrator.agents import CallId
from orchestrator.delegation import TaskId, root_of
from orchestrator.delegation.events import Entry, TaskSettled, ToolAnswered, TurnEnded
from orchestrator.ports.journals import Bookkeeper
from orchestrator.products.cluster.lending.lent import Lent
from orchestrator.products.cluster.lending.lent_turn import LentTurn, TurnCall
from orchestrator.products.cluster.work import ExecutionId, Request
from orchestrator.products.cluster.worker.wire import Stopped


class RecordedEnds:
    """Tells workers that their ends are recorded."""

    def __init__(self, book: Bookkeeper, take: Callable[[Request], None]) -> None:
        self._book = book
        self._take = take
        self._unrecorded: dict[tuple[TaskId, str], Request] = {}
        self._recorded: list[Request] = []
        self._due = trio.Event()

    @contextmanager
    def subscribed(self) -> Generator[None]:
        """Receive recorded ends, for the block."""
        with self._book.subscribers.subscribe_kinds(
            self._on_recorded, (ToolAnswered, TaskSettled, TurnEnded)
        ):
            yield

    def add(self, lent: Lent) -> None:
        """Acknowledge an end, if there is one, as soon as the answer of its call is durable."""
        if lent.request is None:
            return
        if isinstance(lent.end, Stopped):
            self.add_recorded(lent.request)
        else:
            self._unrecorded[lent.task.id, lent.first_call] = lent.request

    def add_recorded(self, request: Request) -> None:
        """Acknowledge an end as soon as all that was posted before is durable."""
        self._recorded.append(request)
        self._due.set()

    def add_call(self, task: TaskId, call: TurnCall) -> None:
        """Acknowledge the end of a call of a turn, if it has one."""
        if call.request is not None:
            self._unrecorded[task, call.call.id] = call.request

    def add_late(self, turn: LentTurn, call: CallId, request: Request) -> None:
        """Acknowledge the end of a call that was answered without it."""
        if turn.is_unanswered(call):
            self._unrecorded[turn.task.id, call] = request
        else:
            self.add_recorded(request)

    def executions(self) -> set[ExecutionId]:
        """Return the executions whose ends wait."""
        waiting = [*self._unrecorded.values(), *self._recorded]
        return {request.execution for request in waiting}

    async def acknowledge_forever(self) -> NoReturn:
        while True:
            await self._due.wait()
            self._due = trio.Event()
            await self.acknowledge()

    async def acknowledge(self) -> None:
        """Acknowledge the ends whose answers are recorded, once they are durable."""
        count = len(self._recorded)
        await self._book.wait_durable()
        recorded = self._recorded[:count]
        del self._recorded[:count]
        for request in recorded:
            self._take(request)

    def _on_recorded(self, entry: Entry, _: object) -> None:
        match entry.event:
            case ToolAnswered(task, message):
                request = self._unrecorded.pop((task, message.call), None)
                recorded = [] if request is None else [request]
            case TaskSettled(task):
                recorded = self._of_task(task)
            case TurnEnded(session):
                recorded = self._of_task(root_of(session))
            case _:
                return
        if recorded:
            self._recorded += recorded
            self._due.set()

    def _of_task(self, task: TaskId) -> list[Request]:
        keys = [key for key in self._unrecorded if key[0] == task]
        return [self._unrecorded.pop(key) for key in keys]
