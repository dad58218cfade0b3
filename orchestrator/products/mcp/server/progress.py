"""The progress of a joined call: what its tree delegates, told as it becomes durable."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeAlias

import trio

from orchestrator.delegation import SessionId, TaskId
from orchestrator.delegation.events import TaskRequested, TaskSettled
from orchestrator.ports.reads import FactQueue, ReadApi

Report: TypeAlias = Callable[[float, str], Awaitable[None]]
"""Sends a number, which grows, and a line of text to the client."""
LONGEST_GOAL: Final = 200


class CallProgress:
    """Reports the delegations of one run to the client that waits for it."""

    def __init__(self, read: ReadApi, facts: FactQueue, report: Report) -> None:
        self._read = read
        self._facts = facts
        self._report = report
        self._idle = trio.CancelScope()
        self._has_ended = False
        self._count = 0

    def end(self) -> None:
        """Note that the run has ended: its facts so far are the rest."""
        self._has_ended = True
        self._idle.cancel(reason="the run has ended")

    async def report_all(self) -> None:
        """Report what becomes durable, until the run has ended and all is told."""
        while not self._has_ended:
            with self._idle:
                await self._facts.wait()
            # Not cancelled by the end: what is told in the middle of it would be told twice.
            self._idle = trio.CancelScope()
            await self._report_posted()
        await self._report_posted()

    async def _report_posted(self) -> None:
        until = self._read.last_seq
        await self._read.wait_durable()
        for entry, _ in self._facts.take(until=until):
            match entry.event:
                case TaskRequested(request):
                    goal = " ".join(request.goal.split())[:LONGEST_GOAL]
                    await self._tell(request.id, f"begins: {goal}")
                case TaskSettled(task, outcome):
                    await self._tell(task, str(outcome.ending))
                case _:
                    pass

    async def _tell(self, task: TaskId, text: str) -> None:
        self._count += 1
        record = self._read.records.tasks[task]
        await self._report(self._count, f"{record.path} {text}")


@contextmanager
def open_progress(read: ReadApi, session: SessionId, report: Report) -> Generator[CallProgress]:
    """Report the delegations of a run, as long as the block lasts."""
    with read.queue(session=session) as facts:
        yield CallProgress(read, facts, report)
