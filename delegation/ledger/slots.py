"""The slots of one tree: which tasks may run now, and which wait for a slot.

A task that waits for its joined children lends them its slot: the first of them runs in it, so no
task holds the slot that its own child needs. Parents take turns, and the tasks of each keep their
order. Work per change is O(1). The fold changes the states of the tasks that got a slot.

Below a paused task no new task gets a slot. One that had begun before a crash goes on.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from orchestrator.delegation.rules import Rules
from orchestrator.delegation.task import DETACHED, JOINED, Mode, TaskId

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.task_record import TaskRecord

Queue: TypeAlias = "dict[TaskId, TaskRecord]"
QueueKey: TypeAlias = tuple[TaskId, Mode]

_NO_LIMITS: Final = (None, None, None)


class Slots:
    """Counts the slots of a tree, and queues its tasks."""

    __slots__ = (
        "_eligible",
        "_queues",
        "_rules",
        "detached",
        "in_use",
        "is_unlimited",
        "paused",
        "queued",
    )

    def __init__(self, rules: Rules, paused: "dict[TaskId, TaskRecord] | None" = None) -> None:
        self._rules = rules
        self.is_unlimited = (rules.live_tasks, rules.live_children, rules.detached) == _NO_LIMITS
        """No task ever waits for a slot, unless a person has paused that."""
        self.paused = {} if paused is None else paused
        """The tasks below which no new task starts."""
        self.in_use = 0
        """How many slots are in use. A task whose joined child runs has lent its slot."""
        self.detached = 0
        """How many of them detached tasks use."""
        self.queued = 0
        self._queues: dict[QueueKey, Queue] = {}
        """The waiting tasks, by parent and mode, oldest first."""
        self._eligible: dict[QueueKey, None] = {}
        """The queues whose parent may have one more running task, next first."""

    @property
    def queues(self) -> "list[tuple[TaskId, Mode, tuple[TaskId, ...]]]":
        """The waiting tasks, by parent and mode, each queue oldest first."""
        return [(*key, tuple(queue)) for key, queue in self._queues.items()]

    @property
    def eligible(self) -> tuple[QueueKey, ...]:
        """The queues whose parent may have one more running task, next first."""
        return tuple(self._eligible)

    def restore(
        self,
        queues: "Iterable[tuple[QueueKey, Queue]]",
        eligible: Iterable[QueueKey],
        *,
        in_use: int,
        detached: int,
        paused: "Iterable[TaskRecord]",
    ) -> None:
        """Take the state of other slots under the same rules."""
        self.paused = {task.id: task for task in paused}
        self._queues = dict(queues)
        self._eligible = dict.fromkeys(eligible)
        self.queued = sum(map(len, self._queues.values()))
        self.in_use, self.detached = in_use, detached

    def free(self, parent: "TaskRecord", mode: Mode) -> float:
        """Return how many more tasks of a parent could start now."""
        if self.is_paused(parent):
            return 0
        left = self._parent_allowance(parent, mode)
        if (most := self._rules.live_tasks) is not None:
            lent = mode is JOINED and _can_lend(parent)
            left = min(left, max(0, most - self.in_use) + lent)
        return max(0, left)

    def has_room(self, parent: "TaskRecord", mode: Mode) -> bool:
        """Return whether no task waits, and one more of a parent could start now."""
        if self._queues:
            return False
        return (self.is_unlimited and not self.paused) or bool(self.free(parent, mode))

    def is_paused(self, task: "TaskRecord") -> bool:
        """Return whether no new task below this one starts."""
        above: TaskRecord | None = task if self.paused else None
        while above is not None:
            if above.id in self.paused:
                return True
            above = above.parent
        return False

    def pause(self, task: "TaskRecord") -> None:
        """Start no new task below this one. It takes a pass over the tasks that wait."""
        self.paused[task.id] = task
        for key, queue in self._queues.items():
            if self.is_paused(_parent(self._first(key))):
                # Those that had begun do not wait behind new ones.
                begun = {id_: it for id_, it in queue.items() if it.has_begun}
                self._queues[key] = begun | queue
        for key in [it for it in self._eligible if not self._is_eligible(it)]:
            del self._eligible[key]

    def unpause(self, task: "TaskRecord") -> "Iterable[TaskRecord]":
        """Start tasks below this one again, and return those that got a slot by that."""
        del self.paused[task.id]
        return self._admit_next(*self._queues)

    def enter(self, task: "TaskRecord") -> "Iterable[TaskRecord]":
        """Queue a task that is due, and return the tasks that got a slot by that."""
        if self.has_room(_parent(task), task.node.mode):
            self.take(task)
            return (task,)
        key = _key(task)
        queue = self._queues.setdefault(key, {})
        queue[task.id] = task
        if task.has_begun and self.is_paused(_parent(task)):
            # Those before it wait for more than a slot.
            self._queues[key] = {task.id: task, **queue}
        self.queued += 1
        return self._admit_next(key)

    def leave(self, task: "TaskRecord") -> "Iterable[TaskRecord]":
        """Take back the slot of a task that ends, and return the tasks that got one by that."""
        if self.paused:
            self.paused.pop(task.id, None)
        if not task.has_slot:
            self._dequeue(task)
            return ()
        parent = task.parent
        assert parent is not None, "a root has no slot"
        children = parent.children
        children.slots_used -= 1
        if task.node.mode is DETACHED:
            self.detached -= 1
            self.in_use -= 1
        else:
            children.joined_slots_used -= 1
            # The last one gives the slot back to its parent.
            if children.joined_slots_used or not parent.has_slot:
                self.in_use -= 1
        if not self._queues:
            return ()
        return self._admit_next((parent.id, JOINED), (parent.id, DETACHED))

    def take(self, task: "TaskRecord") -> None:
        """Give a task a slot, whether one is free or not: a fact says that it has one."""
        if self._queues:
            self._dequeue(task)
        parent = task.parent
        assert parent is not None, "a root needs no slot"
        children = parent.children
        children.slots_used += 1
        if task.node.mode is DETACHED:
            self.detached += 1
            self.in_use += 1
            return
        if children.joined_slots_used or not parent.has_slot:
            self.in_use += 1
        children.joined_slots_used += 1

    def is_waiting(self, task: "TaskRecord") -> bool:
        return task.id in self._queues.get(_key(task), ())

    def positions(self, tasks: "Iterable[TaskRecord]") -> dict[TaskId, int]:
        """Return how many tasks start until each waiting one of these has started.

        It takes one pass over each queue.
        """
        indexes: dict[QueueKey, dict[TaskId, int]] = {}
        positions: dict[TaskId, int] = {}
        for task in tasks:
            if self.is_waiting(task):
                key = _key(task)
                if key not in indexes:
                    indexes[key] = {id_: at for at, id_ in enumerate(self._queues[key])}
                index = indexes[key][task.id]
                positions[task.id] = index + 1 + self._count_before(key, index)
        return positions

    def _count_before(self, key: QueueKey, index: int) -> int:
        """Return how many tasks of other queues start before one of this queue."""
        if key not in self._eligible:
            return 0
        rounds, before = index + 1, 0
        for other in self._eligible:
            if other == key:
                # The queues behind it in the round have one turn less.
                rounds = index
            else:
                before += min(rounds, len(self._queues[other]))
        return before

    def _parent_allowance(self, parent: "TaskRecord", mode: Mode) -> float:
        """Return how many more tasks of a parent could start if the tree had slots enough."""
        rules = self._rules
        left = math.inf
        if rules.live_children is not None:
            left = rules.live_children - parent.children.slots_used
        if mode is DETACHED and rules.detached is not None:
            left = min(left, rules.detached - self.detached)
        return left

    def _admit_next(self, *changed: QueueKey) -> "list[TaskRecord]":
        """Return the tasks that get a slot after a change to these queues."""
        admitted: list[TaskRecord] = []
        for key in changed:
            if self._is_eligible(key):
                self._eligible[key] = None
                if key[1] is JOINED and _can_lend(_parent(self._first(key))):
                    admitted.append(self._admit_first(key))
        while self._eligible and self._has_free_slot():
            key = next(iter(self._eligible))
            if self._is_eligible(key):
                admitted.append(self._admit_first(key))
            else:
                # Its parent has used its allowance for its other queue.
                del self._eligible[key]
        return admitted

    def _has_free_slot(self) -> bool:
        most = self._rules.live_tasks
        return most is None or self.in_use < most

    def _admit_first(self, key: QueueKey) -> "TaskRecord":
        """Give the first task of a queue a slot, and put the queue behind the others."""
        task = self._first(key)
        self.take(task)
        self._eligible.pop(key, None)
        if self._is_eligible(key):
            self._eligible[key] = None
        return task

    def _is_eligible(self, key: QueueKey) -> bool:
        if key not in self._queues:
            return False
        task = self._first(key)
        if self._parent_allowance(_parent(task), key[1]) <= 0:
            return False
        return task.has_begun or not self.is_paused(_parent(task))

    def _first(self, key: QueueKey) -> "TaskRecord":
        return next(iter(self._queues[key].values()))

    def _dequeue(self, task: "TaskRecord") -> None:
        """Remove a task from its queue, if it is in one."""
        queue = self._queues.get(key := _key(task))
        if queue is None or queue.pop(task.id, None) is None:
            return
        self.queued -= 1
        if not queue:
            del self._queues[key]
            self._eligible.pop(key, None)


def _key(task: "TaskRecord") -> QueueKey:
    return _parent(task).id, task.node.mode


def _parent(task: "TaskRecord") -> "TaskRecord":
    assert task.parent is not None, "a root needs no slot"
    return task.parent


def _can_lend(parent: "TaskRecord") -> bool:
    """Return whether a joined child could run in the slot of a task."""
    return not parent.children.joined_slots_used and parent.has_slot
