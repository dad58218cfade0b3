"""Waits for facts: a fact wakes exactly the tasks that wait for its change.

A wakeup only means that something may have changed. The caller looks at the ledger again, so an
early wakeup is harmless. No wakeup is lost, because no code runs between the look and the wait.
"""

from collections.abc import Collection
from typing import Protocol

import trio

from orchestrator.delegation import Ledger, SessionId, TaskId, events, root_of


class Schedule(Protocol):
    """Decides when due work is begun."""

    async def wait_start_due(self, ledger: Ledger) -> None:
        """Wait until the next startable task is to be started."""
        ...

    async def wait_turn_due(self, ledger: Ledger) -> None:
        """Wait until the next wakeable session is to begin its turn."""
        ...


class Wakeups:
    """The tasks that wait for a fact, by the change that they wait for."""

    def __init__(self, ledger: Ledger, schedule: Schedule | None = None) -> None:
        self._ledger = ledger
        self._schedule = schedule
        self._next_fact: trio.Event | None = None
        """The next fact of any session, if a task waits for it."""
        self._startable = trio.lowlevel.ParkingLot()
        self._wakeable = trio.lowlevel.ParkingLot()
        self._sessions: dict[SessionId, trio.lowlevel.ParkingLot] = {}
        self._slots: dict[TaskId, trio.Event] = {}
        """The joined tasks that wait for a slot."""
        self._last_joinable: TaskId | None = None
        """The newest task with a slot when those before it were woken."""
        self._tasks: dict[TaskId, set[trio.Event]] = {}

    def notify(self, entry: events.Entry) -> None:
        """Wake the tasks that wait for the change of a fact."""
        ledger = self._ledger
        if self._next_fact is not None:
            self._notify_any()
        if self._sessions and (waiting := self._sessions.get(entry.session)) is not None:
            waiting.unpark_all()
        if ledger.startable and self._startable:
            self._startable.unpark_all()
        if ledger.wakeable and self._wakeable:
            self._wakeable.unpark_all()
        if self._slots:
            self._notify_slots(entry.event)
        if self._tasks:
            self._notify_tasks(entry.event)

    def wake_session(self, session: SessionId) -> None:
        """Wake all that wait for a session or any fact: something of it changed that is no fact."""
        self._notify_any()
        if (waiting := self._sessions.get(session)) is not None:
            waiting.unpark_all()

    def wake_all(self) -> None:
        """Wake all that wait for a session or any fact: something changed that is no fact."""
        self._notify_any()
        for waiting in self._sessions.values():
            waiting.unpark_all()

    def _notify_any(self) -> None:
        if self._next_fact is not None:
            self._next_fact.set()
            self._next_fact = None

    def _notify_slots(self, event: events.Event) -> None:
        # The newest come last, and thousands may have a slot before their parent starts them.
        newest = None
        for task in reversed(self._ledger.joinable):
            newest = newest or task
            if (waiting := self._slots.get(task)) is not None:
                waiting.set()
            if task == self._last_joinable:
                break
        self._last_joinable = newest
        if isinstance(event, events.TaskSettled) and event.task in self._slots:
            self._slots[event.task].set()

    def _notify_tasks(self, event: events.Event) -> None:
        match event:
            case (
                events.TaskSettled(task) | events.SteeringSeen(task) | events.ApprovalAnswered(task)
            ):
                waiting = self._tasks.get(task, ())
            case events.TurnEnded(session):
                waiting = self._tasks.get(root_of(session), ())
            case _:
                return
        for changed in waiting:
            changed.set()

    async def wait_posted(self, *, after: int) -> None:
        """Wait until the last fact has a number above this."""
        await trio.lowlevel.checkpoint()
        while self._ledger.last_seq <= after:
            await self.wait_changed()

    async def wait_changed(self) -> None:
        """Wait for the next fact of any session, or `wake_all`."""
        if self._next_fact is None:
            self._next_fact = trio.Event()
        await self._next_fact.wait()

    async def wait_session_changed(self, session: SessionId) -> None:
        """Wait for the next fact of one session, or `wake_all`."""
        waiting = self._sessions.setdefault(session, trio.lowlevel.ParkingLot())
        try:
            await waiting.park()
        finally:
            # Another task may wait by now, at this one or at a new one.
            if not waiting and self._sessions.get(session) is waiting:
                del self._sessions[session]

    async def wait_slot(self, task: TaskId) -> None:
        """Wait until a joined task has a slot, or is settled without one."""
        # Its parent has given way to other tasks already: one that has a slot need not.
        await trio.lowlevel.checkpoint_if_cancelled()
        record = self._ledger.tasks[task]
        while not (record.has_slot or record.outcome):
            waiting = self._slots[task] = trio.Event()
            try:
                await waiting.wait()
            finally:
                del self._slots[task]

    async def wait_tasks_changed(self, tasks: Collection[TaskId]) -> None:
        """Wait until one of these is settled, has seen a message, or has an approval answered."""
        changed = trio.Event()
        for task in tasks:
            self._tasks.setdefault(task, set()).add(changed)
        try:
            await changed.wait()
        finally:
            for task in tasks:
                self._tasks[task].remove(changed)
                if not self._tasks[task]:
                    del self._tasks[task]

    async def wait_startable(self) -> None:
        """Wait until a detached task is due."""
        await trio.lowlevel.checkpoint()
        while True:
            while not self._ledger.startable:
                await self._startable.park()
            if self._schedule is None:
                return
            await self._schedule.wait_start_due(self._ledger)
            if self._ledger.startable:
                return

    async def wait_wakeable(self) -> None:
        """Wait until a session is due for a turn."""
        await trio.lowlevel.checkpoint()
        while True:
            while not self._ledger.wakeable:
                await self._wakeable.park()
            if self._schedule is None:
                return
            await self._schedule.wait_turn_due(self._ledger)
            if self._ledger.wakeable:
                return
