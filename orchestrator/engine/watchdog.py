"""Who has shown no sign of life for too long.

A word that a model streams is a sign of life, and so is an answer of a tool. Whoever waits for
its own children, for an approval, or in line for a limiter or a budget, is not silent. A quiet task
is only shown as such; a stalled one is stopped.
"""

import heapq
import math
from collections.abc import Callable
from typing import NoReturn

import trio

from agents import (
    AssistantMessage,
    ModelEvent,
    Patience,
    Queued,
    Step,
    unanswered_calls,
)
from delegation import Mode, TaskId, TaskRecord
from delegation.events import QuietChanged
from orchestrator.journal.bookkeeper import Bookkeeper


class TaskActivity:
    """The last sign of life of one task."""

    __slots__ = (
        "_watchdog",
        "is_over",
        "is_queued",
        "is_quiet",
        "last_active",
        "next_check",
        "patience",
        "pending_calls",
        "task",
        "where",
    )

    def __init__(
        self, watchdog: "Watchdog", task: TaskRecord, patience: Patience
    ) -> None:
        self._watchdog = watchdog
        self.task = task
        self.patience = patience
        self.last_active = watchdog.now()
        self.next_check = math.inf
        """When it is looked at next."""
        self.pending_calls = len(unanswered_calls(task.transcript))
        """How many of its tools have not answered."""
        self.is_queued = False
        """It waits for its turn, which is no silence."""
        self.is_quiet = False
        self.is_over = False
        self.where = "in a tool"

    def enter_program(self) -> None:
        """Say that it runs a program of its own, which is a tool in all but name."""
        self.pending_calls = 1
        self.where = "in its function"

    def touch(self) -> None:
        """Show a sign of life."""
        if self.is_over:
            return  # it came too late
        self.last_active = self._watchdog.now()
        if self.is_quiet:
            self.is_quiet = False
            self._watchdog.post_quiet(self)
        elif self.next_check < math.inf:
            return
        self._watchdog.schedule_check(self, self.last_active)

    def on_model_event(self, event: ModelEvent) -> None:
        """Show a sign of life: its model does something."""
        if isinstance(event, Queued):
            self.is_queued = event.waiting
        self.touch()

    def on_step(self, step: Step) -> None:
        """Show a sign of life: a model or a tool has answered."""
        if isinstance(step, AssistantMessage):
            self.pending_calls = len(step.calls)
        else:
            self.pending_calls -= 1
        self.touch()

    @property
    def seconds_to_stall(self) -> float:
        return self.patience.until_stalled(in_tool=self.pending_calls > 0)


class Watchdog:
    """Everybody who acts for another, and when to look at each of them next."""

    def __init__(
        self, book: Bookkeeper, stop: Callable[[TaskRecord, str], None]
    ) -> None:
        self.now = trio.lowlevel.current_clock().current_time
        self._book = book
        self._stop = stop
        self._activities: dict[TaskId, TaskActivity] = {}
        self._checks: list[tuple[float, int, TaskActivity]] = []
        """A heap: when, in which order, at whom."""
        self._count = 0
        self._over = 0
        self._wakes_at = math.inf
        self._is_early = trio.Event()

    def watch(self, task: TaskRecord, patience: Patience) -> TaskActivity:
        """Watch a task from now on."""
        activity = self._activities[task.id] = TaskActivity(self, task, patience)
        self.schedule_check(activity, activity.last_active)
        return activity

    def touch(self, task: TaskId) -> None:
        """Note that a task goes on: it has waited, and was not silent."""
        if task in self._activities:
            self._activities[task].touch()

    def unwatch(self, activity: TaskActivity) -> None:
        """Watch a task no more."""
        del self._activities[activity.task.id]
        activity.is_over = True
        self._over += 1
        # Those that are over stay until their time has come, unless they are too many.
        if self._over > 1_000 and self._over * 2 > len(self._checks):
            self._checks = [look for look in self._checks if not look[2].is_over]
            heapq.heapify(self._checks)
            self._over = 0

    def post_quiet(self, activity: TaskActivity) -> None:
        if not self._book.closed:
            self._book.post(QuietChanged(activity.task.id, activity.is_quiet))

    async def watch_forever(self) -> NoReturn:
        """Look at each task when it may have become quiet or stalled."""
        while True:
            now = self.now()
            while self._checks and self._checks[0][0] <= now:
                due, _, sign = heapq.heappop(self._checks)
                if sign.is_over:
                    self._over -= 1
                elif due == sign.next_check:
                    sign.next_check = math.inf
                    self._check(sign, now)
            self._wakes_at = self._checks[0][0] if self._checks else math.inf
            self._is_early = trio.Event()
            with trio.move_on_at(self._wakes_at):
                await self._is_early.wait()

    def _check(self, activity: TaskActivity, now: float) -> None:
        children = activity.task.children.unsettled.values()
        is_waiting = activity.is_queued or activity.task.awaits_approval
        if is_waiting or any(child.mode is Mode.JOINED for child in children):
            activity.touch()
        silent = now - activity.last_active
        if silent >= activity.seconds_to_stall:
            where = (
                activity.where
                if activity.pending_calls > 0
                else "waiting for its model"
            )
            self._stop(
                activity.task,
                f"stalled: no sign of life for {_plain(silent)} seconds, {where}",
            )
            return
        if silent >= activity.patience.until_quiet and not activity.is_quiet:
            activity.is_quiet = True
            self.post_quiet(activity)
        self.schedule_check(activity, now)

    def schedule_check(self, activity: TaskActivity, now: float) -> None:
        """Look at a task again when it could next have become quiet or stalled."""
        patience = activity.patience
        due = math.inf
        for seconds in (patience.quiet, patience.stalled, patience.stalled_in_tool):
            if (
                seconds is not None
                and now < (later := activity.last_active + seconds) < due
            ):
                due = later
        if due >= activity.next_check:
            return
        activity.next_check = due
        self._count += 1
        heapq.heappush(self._checks, (due, self._count, activity))
        if due < self._wakes_at:
            self._is_early.set()


def _plain(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.3g}"
