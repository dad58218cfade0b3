"""Who of one tree may run now, and who waits for room.

A task that waits for its joined children lends them its place: the first of them runs in it, so
nobody holds the place that its own child needs. Parents take turns, and each has its tasks in
order. Work per change is O(1).
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from delegation.rules import Rules
from delegation.task import Mode, TaskId

if TYPE_CHECKING:
    from delegation.ledger.records import TaskRecord

Queue: TypeAlias = "dict[TaskId, TaskRecord]"
QueueKey: TypeAlias = tuple[TaskId, Mode]


class Slots:
    """The places of one tree."""

    __slots__ = ("_eligible", "_queues", "_rules", "detached", "in_use", "queued")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.in_use = 0
        """How many tasks hold a place. One whose joined child runs has lent it."""
        self.detached = 0
        """How many of them run in the background."""
        self.queued = 0
        self._queues: dict[QueueKey, Queue] = {}
        """Who waits, by parent and mode, oldest first."""
        self._eligible: dict[QueueKey, None] = {}
        """The lines whose parent could have one more, in the order of their turns."""

    def free(self, parent: "TaskRecord", mode: Mode) -> float:
        """Return how many more tasks of a parent could start now."""
        left = self._parent_allowance(parent, mode)
        if (most := self._rules.live_tasks) is not None:
            places = max(0, most - self.in_use)
            lent = mode is Mode.JOINED and _can_lend(parent)
            left = min(left, places + lent)
        return max(0, left)

    def enter(self, task: "TaskRecord") -> "Iterable[TaskRecord]":
        """Take a task that is due into its line, and return those that have room now."""
        if not self._queues and self.free(_parent(task), task.mode):
            self.take(task)
            return (task,)
        if not self.is_waiting(task):
            self._queues.setdefault(_key(task), {})[task.id] = task
            self.queued += 1
        return self._admit_next(_key(task))

    def leave(self, task: "TaskRecord") -> "Iterable[TaskRecord]":
        """Let go of a task that has ended, and return those that have room now."""
        if not task.has_slot:
            self._dequeue(task)
            return ()
        task.has_slot = False
        parent = _parent(task)
        parent.children.slots_used -= 1
        if task.mode is Mode.DETACHED:
            self.detached -= 1
            self.in_use -= 1
        else:
            parent.children.joined_slots_used -= 1
            # The last one gives the place back to its parent.
            if not _can_lend(parent):
                self.in_use -= 1
        if not self._queues:
            return ()
        return self._admit_next((parent.id, Mode.JOINED), (parent.id, Mode.DETACHED))

    def take(self, task: "TaskRecord") -> None:
        """Give a task a place, whether there is one or not: what has happened is true."""
        if self._queues:
            self._dequeue(task)
        task.has_slot = True
        parent = _parent(task)
        parent.children.slots_used += 1
        if task.mode is Mode.DETACHED:
            self.detached += 1
            self.in_use += 1
            return
        if not _can_lend(parent):
            self.in_use += 1
        parent.children.joined_slots_used += 1

    def is_waiting(self, task: "TaskRecord") -> bool:
        return task.id in self._queues.get(_key(task), ())

    def position(self, task: "TaskRecord") -> int:
        """Return how many tasks start before a waiting one does, itself included."""
        return self.positions([task])[task.id]

    def positions(self, tasks: "Iterable[TaskRecord]") -> dict[TaskId, int]:
        """Return the positions of those who wait, looking along each line once."""
        places: dict[QueueKey, dict[TaskId, int]] = {}
        positions: dict[TaskId, int] = {}
        for task in tasks:
            if self.is_waiting(task):
                key = _key(task)
                if key not in places:
                    places[key] = {id_: it for it, id_ in enumerate(self._queues[key])}
                place = places[key][task.id]
                positions[task.id] = place + 1 + self._before(key, place)
        return positions

    def _before(self, key: QueueKey, place: int) -> int:
        """Return how many of other lines start before this place in a line comes to its turn."""
        if key not in self._eligible:
            return 0
        turns, before = place + 1, 0
        for other in self._eligible:
            if other == key:
                # Those behind it in the round are one turn short.
                turns = place
            else:
                before += min(turns, len(self._queues[other]))
        return before

    def _parent_allowance(self, parent: "TaskRecord", mode: Mode) -> float:
        """Return how many more a parent could have if the tree had room."""
        rules = self._rules
        left = math.inf
        if rules.live_children is not None:
            left = rules.live_children - parent.children.slots_used
        if mode is Mode.DETACHED and rules.detached is not None:
            left = min(left, rules.detached - self.detached)
        return left

    def _admit_next(self, *changed: QueueKey) -> "list[TaskRecord]":
        """Return who has room now that something has changed for these lines."""
        moved: list[TaskRecord] = []
        for key in changed:
            if self._is_eligible(key):
                self._eligible[key] = None
                if key[1] is Mode.JOINED and _can_lend(_parent(self._first(key))):
                    moved.append(self._admit_first(key))
        while self._eligible and self._has_place():
            key = next(iter(self._eligible))
            if self._is_eligible(key):
                moved.append(self._admit_first(key))
            else:
                # Its parent has got one more in its other line.
                del self._eligible[key]
        return moved

    def _has_place(self) -> bool:
        most = self._rules.live_tasks
        return most is None or self.in_use < most

    def _admit_first(self, key: QueueKey) -> "TaskRecord":
        """Give the first in a line a place, and put the line behind the others."""
        task = self._first(key)
        self.take(task)
        self._eligible.pop(key, None)
        if self._is_eligible(key):
            self._eligible[key] = None
        return task

    def _is_eligible(self, key: QueueKey) -> bool:
        if key not in self._queues:
            return False
        return self._parent_allowance(_parent(self._first(key)), key[1]) > 0

    def _first(self, key: QueueKey) -> "TaskRecord":
        return next(iter(self._queues[key].values()))

    def _dequeue(self, task: "TaskRecord") -> None:
        """Take a task out of its line, if it is in one."""
        line = self._queues.get(key := _key(task))
        if line is None or line.pop(task.id, None) is None:
            return
        self.queued -= 1
        if not line:
            del self._queues[key]
            self._eligible.pop(key, None)


def _key(task: "TaskRecord") -> QueueKey:
    return _parent(task).id, task.mode


def _parent(task: "TaskRecord") -> "TaskRecord":
    assert task.parent is not None, "a session waits for no room"
    return task.parent


def _can_lend(parent: "TaskRecord") -> bool:
    """Tell whether a task holds a place in which a joined child of it could run."""
    return parent.has_slot and not parent.children.joined_slots_used
