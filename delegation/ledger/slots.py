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

Line: TypeAlias = "dict[TaskId, TaskRecord]"
Key: TypeAlias = tuple[TaskId, Mode]


class Room:
    """The places of one tree."""

    __slots__ = ("_lines", "_open", "_rules", "detached", "waiting", "working")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.working = 0
        """How many tasks hold a place. One whose joined child runs has lent it."""
        self.detached = 0
        """How many of them run in the background."""
        self.waiting = 0
        self._lines: dict[Key, Line] = {}
        """Who waits, by parent and mode, oldest first."""
        self._open: dict[Key, None] = {}
        """The lines whose parent could have one more, in the order of their turns."""

    def free(self, parent: "TaskRecord", mode: Mode) -> float:
        """Return how many more tasks of a parent could start now."""
        left = self._left_of(parent, mode)
        if (most := self._rules.live_tasks) is not None:
            places = max(0, most - self.working)
            lent = mode is Mode.JOINED and _can_lend(parent)
            left = min(left, places + lent)
        return max(0, left)

    def enter(self, task: "TaskRecord") -> "Iterable[TaskRecord]":
        """Take a task that is due into its line, and return those that have room now."""
        if not self._lines and self.free(_parent(task), task.mode):
            self.take(task)
            return (task,)
        if not self.is_waiting(task):
            self._lines.setdefault(_key(task), {})[task.id] = task
            self.waiting += 1
        return self._moved_up(_key(task))

    def leave(self, task: "TaskRecord") -> "Iterable[TaskRecord]":
        """Let go of a task that has ended, and return those that have room now."""
        if not task.has_room:
            self._forget(task)
            return ()
        task.has_room = False
        parent = _parent(task)
        parent.children.running -= 1
        if task.mode is Mode.DETACHED:
            self.detached -= 1
            self.working -= 1
        else:
            parent.children.joined_running -= 1
            # The last one gives the place back to its parent.
            if not _can_lend(parent):
                self.working -= 1
        if not self._lines:
            return ()
        return self._moved_up((parent.id, Mode.JOINED), (parent.id, Mode.DETACHED))

    def take(self, task: "TaskRecord") -> None:
        """Give a task a place, whether there is one or not: what has happened is true."""
        if self._lines:
            self._forget(task)
        task.has_room = True
        parent = _parent(task)
        parent.children.running += 1
        if task.mode is Mode.DETACHED:
            self.detached += 1
            self.working += 1
            return
        if not _can_lend(parent):
            self.working += 1
        parent.children.joined_running += 1

    def is_waiting(self, task: "TaskRecord") -> bool:
        return task.id in self._lines.get(_key(task), ())

    def position(self, task: "TaskRecord") -> int:
        """Return how many tasks start before a waiting one does, itself included."""
        return self.positions([task])[task.id]

    def positions(self, tasks: "Iterable[TaskRecord]") -> dict[TaskId, int]:
        """Return the positions of those who wait, looking along each line once."""
        places: dict[Key, dict[TaskId, int]] = {}
        positions: dict[TaskId, int] = {}
        for task in tasks:
            if self.is_waiting(task):
                key = _key(task)
                if key not in places:
                    places[key] = {id_: it for it, id_ in enumerate(self._lines[key])}
                place = places[key][task.id]
                positions[task.id] = place + 1 + self._before(key, place)
        return positions

    def _before(self, key: Key, place: int) -> int:
        """Return how many of other lines start before this place in a line comes to its turn."""
        if key not in self._open:
            return 0
        turns, before = place + 1, 0
        for other in self._open:
            if other == key:
                # Those behind it in the round are one turn short.
                turns = place
            else:
                before += min(turns, len(self._lines[other]))
        return before

    def _left_of(self, parent: "TaskRecord", mode: Mode) -> float:
        """Return how many more a parent could have if the tree had room."""
        rules = self._rules
        left = math.inf
        if rules.live_children is not None:
            left = rules.live_children - parent.children.running
        if mode is Mode.DETACHED and rules.detached is not None:
            left = min(left, rules.detached - self.detached)
        return left

    def _moved_up(self, *changed: Key) -> "list[TaskRecord]":
        """Return who has room now that something has changed for these lines."""
        moved: list[TaskRecord] = []
        for key in changed:
            if self._is_open(key):
                self._open[key] = None
                if key[1] is Mode.JOINED and _can_lend(_parent(self._first(key))):
                    moved.append(self._next_in(key))
        while self._open and self._has_place():
            key = next(iter(self._open))
            if self._is_open(key):
                moved.append(self._next_in(key))
            else:
                # Its parent has got one more in its other line.
                del self._open[key]
        return moved

    def _has_place(self) -> bool:
        most = self._rules.live_tasks
        return most is None or self.working < most

    def _next_in(self, key: Key) -> "TaskRecord":
        """Give the first in a line a place, and put the line behind the others."""
        task = self._first(key)
        self.take(task)
        self._open.pop(key, None)
        if self._is_open(key):
            self._open[key] = None
        return task

    def _is_open(self, key: Key) -> bool:
        if key not in self._lines:
            return False
        return self._left_of(_parent(self._first(key)), key[1]) > 0

    def _first(self, key: Key) -> "TaskRecord":
        return next(iter(self._lines[key].values()))

    def _forget(self, task: "TaskRecord") -> None:
        """Take a task out of its line, if it is in one."""
        line = self._lines.get(key := _key(task))
        if line is None or line.pop(task.id, None) is None:
            return
        self.waiting -= 1
        if not line:
            del self._lines[key]
            self._open.pop(key, None)


def _key(task: "TaskRecord") -> Key:
    return _parent(task).id, task.mode


def _parent(task: "TaskRecord") -> "TaskRecord":
    assert task.parent is not None, "a session waits for no room"
    return task.parent


def _can_lend(parent: "TaskRecord") -> bool:
    """Tell whether a task holds a place in which a joined child of it could run."""
    return parent.has_room and not parent.children.joined_running
