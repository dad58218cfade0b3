"""Watches tasks that have been silent for too long: quiet ones are shown, stalled ones stopped.

Every model event and every step is activity. A task that waits for its joined children, for an
approval, for a worker, for a limiter or for a budget is not silent.
"""

import heapq
import math
from collections.abc import Callable
from typing import Final, NoReturn

import msgspec
import trio

from orchestrator.agents import ModelEvent, Patience, Queued, unanswered_calls
from orchestrator.delegation import Mode, TaskId, TaskRecord
from orchestrator.delegation.events import QuietChanged
from orchestrator.kernel.journal.bookkeeper import Bookkeeper

MAX_OVER: Final = 30
"""How many ended tasks wait for their check before they are removed, once they are half of all."""


class TaskActivity(msgspec.Struct, eq=False):
    """The last activity of one task."""

    _watchdog: "Watchdog"
    task: TaskRecord
    patience: Patience
    last_active: float
    next_check: float = math.inf
    """When it is checked next."""
    is_in_program: bool = False
    """It runs the program of a pipeline, which counts as a tool."""
    is_queued: bool = False
    """It waits for a limiter or a budget, which does not count as silence."""
    is_quiet: bool = False
    is_over: bool = False

    def touch(self) -> None:
        """Note activity: an event of its model, or an answer of its model or of a tool."""
        if self.is_over:
            return  # the task has ended meanwhile
        self.last_active = self._watchdog.now()
        if self.is_quiet:
            self.is_quiet = False
            self._watchdog.post_quiet(self)
        elif self.next_check < math.inf:
            return
        self._watchdog.schedule_check(self, self.last_active)

    def on_model_event(self, event: ModelEvent) -> None:
        """Note activity of its model."""
        if isinstance(event, Queued):
            self.is_queued = event.waiting
        self.touch()

    @property
    def is_in_tool(self) -> bool:
        """A call has no answer yet, or its program runs."""
        return self.is_in_program or bool(unanswered_calls(self.task.transcript))


class Watchdog:
    """Checks each running child when it may have become quiet or stalled."""

    def __init__(self, book: Bookkeeper, stop: Callable[[TaskRecord, str], None]) -> None:
        self.now = trio.lowlevel.current_clock().current_time
        self._book = book
        self._stop = stop
        self._activities: dict[TaskId, TaskActivity] = {}
        self._checks: list[tuple[float, int, TaskActivity]] = []
        """A heap of the times of checks, with an order and an activity."""
        self._count = 0
        self._over = 0
        self._wakes_at = math.inf
        self._next_changed = trio.Event()

    def watch(self, task: TaskRecord, patience: Patience) -> TaskActivity:
        """Watch a task from now on, until `unwatch`."""
        now = self.now()
        activity = self._activities[task.id] = TaskActivity(self, task, patience, now)
        due = now + patience.shortest
        if due < math.inf:
            self._add_check(activity, due)
        return activity

    def touch(self, task: TaskId) -> None:
        """Note that a task is active: it has waited, and was not silent."""
        if task in self._activities:
            self._activities[task].touch()

    def unwatch(self, activity: TaskActivity) -> None:
        """Stop watching a task."""
        del self._activities[activity.task.id]
        activity.is_over = True
        # Until its check is due it would keep the records of an evicted session in memory.
        del activity.task
        self._over += 1
        # Those that are over stay until their check is due, unless they are too many.
        if self._over > MAX_OVER and self._over * 2 > len(self._checks):
            self._checks = [check for check in self._checks if not check[2].is_over]
            heapq.heapify(self._checks)
            self._over = 0

    def post_quiet(self, activity: TaskActivity) -> None:
        if not self._book.closed:
            self._book.post(QuietChanged(activity.task.id, activity.is_quiet))

    async def watch_forever(self) -> NoReturn:
        """Check each task when it may have become quiet or stalled."""
        while True:
            now = self.now()
            while self._checks and self._checks[0][0] <= now:
                due, _, activity = heapq.heappop(self._checks)
                if activity.is_over:
                    self._over -= 1
                elif due == activity.next_check:
                    activity.next_check = math.inf
                    self._check(activity, now)
            self._wakes_at = self._checks[0][0] if self._checks else math.inf
            self._next_changed = trio.Event()
            with trio.move_on_at(self._wakes_at):
                await self._next_changed.wait()

    def _check(self, activity: TaskActivity, now: float) -> None:
        children = activity.task.children.unsettled.values()
        task = activity.task
        is_waiting = activity.is_queued or task.awaits_approval or bool(task.awaits_worker)
        if is_waiting or any(child.mode is Mode.JOINED for child in children):
            activity.touch()
        silent = now - activity.last_active
        in_tool = activity.is_in_tool
        if silent >= activity.patience.until_stalled(in_tool=in_tool):
            where = "in a tool" if in_tool else "waiting for its model"
            where = "in its function" if activity.is_in_program else where
            self._stop(
                activity.task, f"stalled: no sign of life for {_plain(silent)} seconds, {where}"
            )
            return
        if silent >= activity.patience.until_quiet and not activity.is_quiet:
            activity.is_quiet = True
            self.post_quiet(activity)
        self.schedule_check(activity, now)

    def schedule_check(self, activity: TaskActivity, now: float) -> None:
        """Schedule the next check of a task: when it could become quiet or stalled."""
        patience = activity.patience
        due = math.inf
        for seconds in (patience.quiet, patience.stalled, patience.stalled_in_tool):
            if seconds is not None and now < (later := activity.last_active + seconds) < due:
                due = later
        if due < activity.next_check:
            self._add_check(activity, due)

    def _add_check(self, activity: TaskActivity, due: float) -> None:
        activity.next_check = due
        self._count += 1
        heapq.heappush(self._checks, (due, self._count, activity))
        if due < self._wakes_at:
            self._next_changed.set()


def _plain(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.3g}"
