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
    InLine,
    ModelEvent,
    Patience,
    Step,
    unanswered_calls,
)
from delegation import Mode, TaskRecord
from delegation.events import QuietChanged
from orchestrator.journal.bookkeeper import Bookkeeper


class Sign:
    """The last sign of life of one task."""

    __slots__ = (
        "_watch",
        "answers_due",
        "due",
        "is_in_line",
        "is_over",
        "is_quiet",
        "last",
        "patience",
        "place",
        "task",
    )

    def __init__(self, watch: "Watch", task: TaskRecord, patience: Patience) -> None:
        self._watch = watch
        self.task = task
        self.patience = patience
        self.last = watch.now()
        self.due = math.inf
        """When it is looked at next."""
        self.answers_due = len(unanswered_calls(task.transcript))
        """How many of its tools have not answered."""
        self.is_in_line = False
        """It waits for its turn, which is no silence."""
        self.is_quiet = False
        self.is_over = False
        self.place = "in a tool"

    def enter_program(self) -> None:
        """Say that it runs a program of its own, which is a tool in all but name."""
        self.answers_due = 1
        self.place = "in its function"

    def live(self) -> None:
        """Show a sign of life."""
        if self.is_over:
            return  # it came too late
        self.last = self._watch.now()
        if self.is_quiet:
            self.is_quiet = False
            self._watch.tell(self)
        elif self.due < math.inf:
            return
        self._watch.look_later(self, self.last)

    def hear(self, event: ModelEvent) -> None:
        """Show a sign of life: its model does something."""
        if isinstance(event, InLine):
            self.is_in_line = event.waiting
        self.live()

    def step(self, step: Step) -> None:
        """Show a sign of life: a model or a tool has answered."""
        if isinstance(step, AssistantMessage):
            self.answers_due = len(step.calls)
        else:
            self.answers_due -= 1
        self.live()

    @property
    def seconds_to_stall(self) -> float:
        return self.patience.until_stalled(in_tool=self.answers_due > 0)


class Watch:
    """Everybody who acts for another, and when to look at each of them next."""

    def __init__(
        self, book: Bookkeeper, stop: Callable[[TaskRecord, str], None]
    ) -> None:
        self.now = trio.lowlevel.current_clock().current_time
        self._book = book
        self._stop = stop
        self._looks: list[tuple[float, int, Sign]] = []
        """A heap: when, in which order, at whom."""
        self._count = 0
        self._over = 0
        self._wakes_at = math.inf
        self._is_early = trio.Event()

    def begin(self, task: TaskRecord, patience: Patience) -> Sign:
        """Watch a task from now on."""
        sign = Sign(self, task, patience)
        self.look_later(sign, sign.last)
        return sign

    def end(self, sign: Sign) -> None:
        """Watch a task no more."""
        sign.is_over = True
        self._over += 1
        # Those that are over stay until their time has come, unless they are too many.
        if self._over > 1_000 and self._over * 2 > len(self._looks):
            self._looks = [look for look in self._looks if not look[2].is_over]
            heapq.heapify(self._looks)
            self._over = 0

    def tell(self, sign: Sign) -> None:
        if not self._book.closed:
            self._book.post(QuietChanged(sign.task.id, sign.is_quiet))

    async def watch_forever(self) -> NoReturn:
        """Look at each task when it may have become quiet or stalled."""
        while True:
            now = self.now()
            while self._looks and self._looks[0][0] <= now:
                due, _, sign = heapq.heappop(self._looks)
                if sign.is_over:
                    self._over -= 1
                elif due == sign.due:
                    sign.due = math.inf
                    self._look(sign, now)
            self._wakes_at = self._looks[0][0] if self._looks else math.inf
            self._is_early = trio.Event()
            with trio.move_on_at(self._wakes_at):
                await self._is_early.wait()

    def _look(self, sign: Sign, now: float) -> None:
        children = sign.task.children.unsettled.values()
        is_waiting = sign.is_in_line or sign.task.is_asking
        if is_waiting or any(child.mode is Mode.JOINED for child in children):
            sign.live()
        silent = now - sign.last
        if silent >= sign.seconds_to_stall:
            where = sign.place if sign.answers_due > 0 else "waiting for its model"
            self._stop(
                sign.task,
                f"stalled: no sign of life for {_plain(silent)} seconds, {where}",
            )
            return
        if silent >= sign.patience.until_quiet and not sign.is_quiet:
            sign.is_quiet = True
            self.tell(sign)
        self.look_later(sign, now)

    def look_later(self, sign: Sign, now: float) -> None:
        """Look at a task again when it could next have become quiet or stalled."""
        patience = sign.patience
        due = math.inf
        for seconds in (patience.quiet, patience.stalled, patience.stalled_in_tool):
            if seconds is not None and now < (later := sign.last + seconds) < due:
                due = later
        if due >= sign.due:
            return
        sign.due = due
        self._count += 1
        heapq.heappush(self._looks, (due, self._count, sign))
        if due < self._wakes_at:
            self._is_early.set()


def _plain(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.3g}"
