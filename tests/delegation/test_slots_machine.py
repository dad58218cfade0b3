"""No limit is ever passed, no task waits while a slot is free for it, and the order is fair."""

import copy
import math
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orchestrator.delegation import (
    Children,
    Mode,
    Rules,
    SessionId,
    Slots,
    Status,
    TaskId,
    TaskRecord,
)
from orchestrator.delegation.ledger.task_state import READY
from orchestrator.delegation.tree.node import TaskNode

Key: TypeAlias = tuple[TaskId, Mode]

TASKS: Final = 25
S: Final = SessionId("s")
ROOT: Final = TaskId("s")

limits = st.sampled_from([None, 1, 2, 3])


def new_task(id_: str, mode: Mode, parent: TaskRecord | None = None) -> TaskRecord:
    node = TaskNode(
        None if parent is None else parent.id, "a", "", "", f"/{id_}", mode, Status.QUEUED, "", 0
    )
    task = TaskRecord(TaskId(id_), S, node, parent)
    task.children = Children()
    return task


def key_of(task: TaskRecord) -> Key:
    assert task.parent is not None
    return task.parent.id, task.mode


def at_most(limit: int | None) -> float:
    return math.inf if limit is None else limit


class SlotModel:
    """The slots under test, with plain lists of the tasks that run and that wait."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.slots = Slots(rules)
        self.root = new_task(ROOT, Mode.ROOT)
        self.live: dict[TaskId, TaskRecord] = {}
        self.running: set[TaskId] = set()
        self.waiting: dict[Key, list[TaskId]] = {}
        self.paused: set[TaskId] = set()
        self.asked = 0
        self.passed_over: dict[Key, dict[Key, int]] = {}
        """How often each queue was served since another one waits for its turn."""

    def parents(self) -> list[TaskRecord]:
        return [self.root, *(self.live[id_] for id_ in sorted(self.running))]

    def leaves(self) -> list[TaskRecord]:
        return [task for task in self.live.values() if not self.below(task)]

    def below(self, task: TaskRecord) -> list[TaskRecord]:
        return [it for it in self.live.values() if it.parent is task]

    def running_below(self, task: TaskRecord, *modes: Mode) -> int:
        return sum(it.id in self.running and it.mode in (modes or Mode) for it in self.below(task))

    def queued_tasks(self) -> Iterator[TaskRecord]:
        for queue in self.waiting.values():
            yield from (self.live[id_] for id_ in queue)

    def working(self) -> int:
        """Return how many hold a slot: not those in whose slot a joined child runs."""
        return sum(not self.running_below(self.live[id_], Mode.JOINED) for id_ in self.running)

    def detached(self) -> int:
        return sum(self.live[id_].mode is Mode.DETACHED for id_ in self.running)

    def could_borrow(self, task: TaskRecord) -> bool:
        parent = task.parent
        assert parent is not None
        return (
            task.mode is Mode.JOINED
            and parent.id in self.running
            and not self.running_below(parent, Mode.JOINED)
        )

    def is_open(self, key: Key) -> bool:
        """Return whether a queue waits for nothing but a slot of the tree."""
        task = self.live[self.waiting[key][0]]
        assert task.parent is not None
        children = at_most(self.rules.live_children)
        detached = at_most(self.rules.detached)
        above: TaskRecord | None = task.parent
        while above is not None:
            if above.id in self.paused:
                return False
            above = above.parent
        return self.running_below(task.parent) < children and (
            task.mode is Mode.JOINED or self.detached() < detached
        )

    def must_wait(self, task: TaskRecord) -> bool:
        """Return whether some limit that holds for a task is full."""
        is_full = self.working() >= at_most(self.rules.live_tasks)
        return not self.is_open(key_of(task)) or (is_full and not self.could_borrow(task))

    def ask(self, parent: TaskRecord, mode: Mode) -> TaskRecord:
        self.asked += 1
        task = new_task(f"t{self.asked:04}", mode, parent)
        self.live[task.id] = task
        self.waiting.setdefault(key_of(task), []).append(task.id)
        self.admit(self.slots.enter(task))
        return task

    def pause(self, task: TaskRecord) -> None:
        if task.id in self.paused:
            self.paused.remove(task.id)
            self.admit(self.slots.unpause(task))
        else:
            self.paused.add(task.id)
            self.slots.pause(task)

    def end(self, task: TaskRecord) -> None:
        del self.live[task.id]
        if task.id in self.running:
            self.running.remove(task.id)
        else:
            self.drop(task)
        self.admit(self.slots.leave(task))

    def force(self, task: TaskRecord) -> None:
        self.slots.take(task)
        task.set_state(READY)
        self.drop(task)
        self.running.add(task.id)

    def drop(self, task: TaskRecord) -> None:
        key = key_of(task)
        self.waiting[key].remove(task.id)
        if not self.waiting[key]:
            del self.waiting[key]

    def admit(self, tasks: Iterable[TaskRecord]) -> list[TaskId]:
        """Note the tasks that were let in, one by one, and check that it was their turn."""
        self.note_whose_turn_it_is()
        for task in tasks:
            key = key_of(task)
            task.set_state(READY)
            assert self.waiting[key][0] == task.id, "in the order they came"
            assert not self.must_wait(task), "a slot is free for it"
            if not self.could_borrow(task):
                for queue, served in self.passed_over.items():
                    served[key] = served.get(key, 0) + (queue != key)
                    assert served[key] <= 1, "parents take turns"
            self.drop(task)
            self.running.add(task.id)
            self.passed_over.pop(key, None)
            self.note_whose_turn_it_is()
        return [task.id for task in tasks]

    def note_whose_turn_it_is(self) -> None:
        self.passed_over = {
            key: self.passed_over.get(key, {}) for key in self.waiting if self.is_open(key)
        }


class Limits(RuleBasedStateMachine):
    """Tasks come and go, and some are let in whether a slot is free or not."""

    forces = False
    pauses = False
    only_the_tree = False

    @initialize(children=limits, tasks=limits, detached=limits)
    def begin(self, children: int | None, tasks: int | None, detached: int | None) -> None:
        rules = Rules(live_children=children, live_tasks=tasks, detached=detached)
        if self.only_the_tree:
            rules = Rules(live_tasks=tasks or 2, detached=None)
        self.model = SlotModel(rules)
        self.allowed: dict[str, float] = {}
        """A forced task is above a limit until enough tasks have left."""
        self.keep_limits()

    @property
    def slots(self) -> Slots:
        return self.model.slots

    def amounts(self) -> dict[str, tuple[int, float]]:
        """Return how much there is of all that has a limit, and the limit."""
        model, rules = self.model, self.model.rules
        of_parents = {
            f"children of {parent.id}": (parent.children.slots_used, at_most(rules.live_children))
            for parent in model.parents()
        }
        return {
            "working": (self.slots.in_use, at_most(rules.live_tasks)),
            "detached": (self.slots.detached, at_most(rules.detached)),
            **of_parents,
        }

    def keep_limits(self) -> None:
        for what, (amount, limit) in self.amounts().items():
            allowed = self.allowed.get(what, limit)
            assert amount <= allowed, what
            self.allowed[what] = max(limit, min(allowed, amount))

    @precondition(lambda self: len(self.model.live) < TASKS)
    @rule(data=st.data(), background=st.booleans(), times=st.integers(1, 4))
    def ask(self, data: st.DataObject, background: bool, times: int) -> None:
        parent = data.draw(st.sampled_from(self.model.parents()))
        # A child ends with its one turn, so only a session has somebody to be told later.
        is_detached = background and parent is self.model.root
        for _ in range(times):
            self.model.ask(parent, Mode.DETACHED if is_detached else Mode.JOINED)
            self.keep_limits()

    @precondition(lambda self: self.model.live)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.model.end(data.draw(st.sampled_from(self.model.leaves())))
        self.keep_limits()

    @precondition(lambda self: self.forces and self.model.waiting)
    @rule(data=st.data())
    def force(self, data: st.DataObject) -> None:
        """Facts written under other rules are kept."""
        self.model.force(data.draw(st.sampled_from(list(self.model.queued_tasks()))))
        self.allowed |= {
            what: max(amount, limit) for what, (amount, limit) in self.amounts().items()
        }

    @precondition(lambda self: self.pauses)
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        self.model.pause(data.draw(st.sampled_from(self.model.parents())))
        self.keep_limits()

    @precondition(lambda self: self.model.waiting and not self.pauses)
    @rule()
    def positions_are_the_order_of_admission(self) -> None:
        """If no other task comes, and the running ones end one by one."""
        model = self.model
        positions = self.slots.positions(model.queued_tasks())
        for queue in model.waiting.values():
            own = [positions[id_] for id_ in queue]
            assert own == sorted(set(own)), "no task overtakes in its own queue"
            assert all(1 <= position <= self.slots.queued for position in own)
        if len(model.waiting) > 1 and not self.only_the_tree:
            return  # Which task comes first then depends on which one ends first.
        later = copy.deepcopy(model)
        admitted: list[TaskId] = []
        while later.waiting and (leavers := list(filter(self.gives_back, later.leaves()))):
            before = {task.id for task in later.queued_tasks()}
            leaver = leavers[0]
            later.end(leaver)
            left = {task.id for task in later.queued_tasks()}
            admitted += sorted(before - left, key=positions.__getitem__)
        assert [positions[id_] for id_ in admitted] == [*range(1, len(admitted) + 1)]

    def gives_back(self, task: TaskRecord) -> bool:
        """Return whether a task gives its slot to the tree, and not back to its parent."""
        parent = task.parent
        assert parent is not None
        is_the_last = parent.has_slot and parent.children.joined_slots_used == 1
        is_only_queue = len(self.model.waiting) == 1
        return task.has_slot and (is_only_queue or not is_the_last)

    @invariant()
    def the_counts_agree(self) -> None:
        model = self.model
        waiting = list(model.queued_tasks())
        assert self.slots.in_use == model.working()
        assert self.slots.detached == model.detached()
        assert self.slots.queued == len(waiting)
        assert not any(task.has_slot for task in waiting)
        for parent in model.parents():
            joined = model.running_below(parent, Mode.JOINED)
            assert parent.children.slots_used == model.running_below(parent)
            assert parent.children.joined_slots_used == joined

    @invariant()
    def no_task_waits_while_a_slot_is_free_for_it(self) -> None:
        assert all(map(self.model.must_wait, self.model.queued_tasks()))

    @precondition(lambda self: not self.model.waiting)
    @rule(data=st.data(), background=st.booleans())
    def what_is_free_is_free(self, data: st.DataObject, background: bool) -> None:
        """As many as could start do start, if they ask now, and the next one waits."""
        later = copy.deepcopy(self.model)
        parent = data.draw(st.sampled_from(later.parents()))
        is_detached = background and parent is later.root
        mode = Mode.DETACHED if is_detached else Mode.JOINED
        free = later.slots.free(parent, mode)
        if not math.isinf(free):
            started = [later.ask(parent, mode).has_slot for _ in range(int(free) + 1)]
            assert started == [True] * int(free) + [False]


class ForcedLimits(Limits):
    forces = True


class PausedStarts(Limits):
    pauses = True


class OfTheTree(Limits):
    only_the_tree = True


SETTINGS: Final = settings(stateful_step_count=40)


def test_slots_never_pass_a_limit_and_never_idle_while_tasks_wait() -> None:
    """Each limit is kept at every moment, and every place is used."""
    run_state_machine_as_test(Limits, settings=SETTINGS)


def test_tasks_over_a_new_limit_leave_before_others_start() -> None:
    run_state_machine_as_test(ForcedLimits, settings=SETTINGS)


def test_a_paused_task_stops_starts_below_it_and_no_others() -> None:
    run_state_machine_as_test(PausedStarts, settings=SETTINGS)


def test_positions_are_exact_when_only_the_tree_is_full() -> None:
    run_state_machine_as_test(OfTheTree, settings=SETTINGS)


@attrs.define
class Parent:
    """Somebody who runs, and asks for many."""

    task: TaskRecord
    children: list[TaskRecord] = attrs.field(factory=list[TaskRecord])

    def running(self) -> list[TaskRecord]:
        return [child for child in self.children if child.has_slot]


def two_parents(model: SlotModel) -> tuple[Parent, Parent]:
    first = Parent(model.ask(model.root, Mode.JOINED))
    second = Parent(model.ask(model.root, Mode.JOINED))
    return first, second


def ask_for(model: SlotModel, parent: Parent, number: int) -> None:
    parent.children += [model.ask(parent.task, Mode.JOINED) for _ in range(number)]


def test_a_large_batch_delays_a_small_one_by_one_round() -> None:
    """Parents take turns, however long their lines are."""
    model = SlotModel(Rules(live_tasks=4))
    greedy, modest = two_parents(model)
    ask_for(model, greedy, 1_000)
    ask_for(model, modest, 3)
    assert (len(greedy.running()), len(modest.running())) == (3, 1)
    assert [*model.slots.positions(modest.children[1:]).values()] == [2, 4]

    for expected in (1, 2, 2, 3):
        model.end(greedy.children.pop(0))
        assert len(modest.running()) == expected
    assert model.slots.in_use == 4


def test_a_place_is_lent_down_a_chain_of_any_length() -> None:
    """A waiting parent lends its slot to its child, so one slot is enough."""
    model = SlotModel(Rules(live_tasks=1, live_children=1))
    chain = [model.ask(model.root, Mode.JOINED)]
    for _ in range(20):
        chain.append(model.ask(chain[-1], Mode.JOINED))
    assert all(task.has_slot for task in chain)
    assert model.slots.in_use == 1

    aside = model.ask(model.root, Mode.DETACHED)
    assert not aside.has_slot
    for task in reversed(chain):
        assert not aside.has_slot
        model.end(task)
    assert aside.has_slot


def test_the_first_child_runs_in_the_place_of_its_parent_and_the_second_needs_its_own() -> None:
    """One place is lent once, and comes back when the last child that runs has ended."""
    model = SlotModel(Rules(live_tasks=2))
    parent, _ = two_parents(model)
    ask_for(model, parent, 2)
    first, second = parent.children
    assert (first.has_slot, second.has_slot) == (True, False)

    model.end(first)
    assert second.has_slot
    model.end(second)
    assert model.slots.in_use == 2


def test_a_place_to_borrow_is_free_also_where_too_many_run() -> None:
    """They were let in under other rules, and took no place from it."""
    model = SlotModel(Rules(live_tasks=1))
    for _ in range(3):
        model.ask(model.root, Mode.JOINED)
    parent, other, _ = model.live.values()
    model.force(other)
    assert model.slots.in_use == 2

    assert model.slots.free(parent, Mode.JOINED) == 1
    assert model.ask(parent, Mode.JOINED).has_slot
