"""The progress of a joined call: what its tree delegates, told as it becomes durable."""

from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final, NoReturn, TypeAlias

from delegation import SessionId, TaskId
from delegation.events import Event, TaskRequested, TaskSettled
from orchestrator.journal.subscriptions import FactQueue
from orchestrator.read_api import ReadApi

Report: TypeAlias = Callable[[float, str], Awaitable[None]]
"""Sends a number, which grows, and a line of text to the client."""
LONGEST_GOAL: Final = 200


class CallProgress:
    """Reports the delegations of one run to the client that waits for it."""

    def __init__(self, read: ReadApi, facts: FactQueue, report: Report) -> None:
        self._read = read
        self._facts = facts
        self._report = report
        self._unreported: deque[Event] = deque()
        self._count = 0

    async def report_forever(self) -> NoReturn:
        """Report what becomes durable, until cancelled."""
        while True:
            await self._facts.wait()
            await self.report_rest()

    async def report_rest(self) -> None:
        """Report what was posted until now."""
        until = self._read.last_seq
        await self._read.wait_durable()
        self._unreported += (it.event for it, _ in self._facts.take(until=until))
        while self._unreported:
            match self._unreported[0]:
                case TaskRequested(request):
                    goal = " ".join(request.goal.split())[:LONGEST_GOAL]
                    await self._tell(request.id, f"begins: {goal}")
                case TaskSettled(task, outcome):
                    await self._tell(task, str(outcome.ending))
                case _:
                    pass
            # Only now: a report that is cancelled is made by `report_rest`.
            self._unreported.popleft()

    async def _tell(self, task: TaskId, text: str) -> None:
        self._count += 1
        record = self._read.ledger.tasks[task]
        await self._report(self._count, f"{record.path} {text}")


@contextmanager
def open_progress(
    read: ReadApi, session: SessionId, report: Report
) -> Generator[CallProgress]:
    """Report the delegations of a run, as long as the block lasts."""
    with read.queue(session=session) as facts:
        yield CallProgress(read, facts, report)
