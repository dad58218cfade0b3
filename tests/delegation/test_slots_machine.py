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

from delegation import Children, Mode, Rules, SessionId, Slots, TaskId, TaskRecord
from delegation.ledger.task_state import READY

Key: TypeAlias = tuple[TaskId, Mode]

TASKS: Final = 25
S: Final = SessionId("s")
ROOT: Final = TaskId("s")

limits = st.sampled_from([None, 1, 2, 3])


def new_task(id_: str, mode: Mode, parent: TaskRecord | None = None) -> TaskRecord:
    task = TaskRecord(
        TaskId(id_), session=S, agent="a", path=f"/{id_}", mode=mode, parent=parent
    )
    task.children = Children()
    return task


def key_of(task: TaskRecord) -> Key:
    assert task.parent is not None
    return task.parent.id, task.mode


def at_most(limit: int | None) -> float:
    return math.inf if limit is None else limit


class Places:
    """A room and those in it, with simple books of who runs and who waits."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.room = Slots(rules)
        self.root = new_task(ROOT, Mode.ROOT)
        self.live: dict[TaskId, TaskRecord] = {}
        self.running: set[TaskId] = set()
        self.waiting: dict[Key, list[TaskId]] = {}
        self.asked = 0
        self.passed_over: dict[Key, dict[Key, int]] = {}
        """How often each line was served since another one waits for its turn."""

    def parents(self) -> list[TaskRecord]:
        return [self.root, *(self.live[id_] for id_ in sorted(self.running))]

    def leaves(self) -> list[TaskRecord]:
        return [task for task in self.live.values() if not self.below(task)]

    def below(self, task: TaskRecord) -> list[TaskRecord]:
        return [it for it in self.live.values() if it.parent is task]

    def running_below(self, task: TaskRecord, *modes: Mode) -> int:
        return sum(
            it.id in self.running and it.mode in (modes or Mode)
            for it in self.below(task)
        )

    def in_line(self) -> Iterator[TaskRecord]:
        for line in self.waiting.values():
            yield from (self.live[id_] for id_ in line)

    def working(self) -> int:
        """Return how many hold a place: not those in whose place a joined child runs."""
        return sum(
            not self.running_below(self.live[id_], Mode.JOINED) for id_ in self.running
        )

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
        """Tell whether a line waits for nothing but a place in the tree."""
        task = self.live[self.waiting[key][0]]
        assert task.parent is not None
        children = at_most(self.rules.live_children)
        detached = at_most(self.rules.detached)
        return self.running_below(task.parent) < children and (
            task.mode is Mode.JOINED or self.detached() < detached
        )

    def must_wait(self, task: TaskRecord) -> bool:
        """Tell whether some limit that holds for a task is full."""
        is_full = self.working() >= at_most(self.rules.live_tasks)
        return not self.is_open(key_of(task)) or (
            is_full and not self.could_borrow(task)
        )

    def ask(self, parent: TaskRecord, mode: Mode) -> TaskRecord:
        self.asked += 1
        task = new_task(f"t{self.asked:04}", mode, parent)
        self.live[task.id] = task
        self.waiting.setdefault(key_of(task), []).append(task.id)
        self.admit(self.room.enter(task))
        return task

    def end(self, task: TaskRecord) -> None:
        del self.live[task.id]
        if task.id in self.running:
            self.running.remove(task.id)
        else:
            self.drop(task)
        self.admit(self.room.leave(task))

    def force(self, task: TaskRecord) -> None:
        self.room.take(task)
        task.state = READY
        self.drop(task)
        self.running.add(task.id)

    def drop(self, task: TaskRecord) -> None:
        key = key_of(task)
        self.waiting[key].remove(task.id)
        if not self.waiting[key]:
            del self.waiting[key]

    def admit(self, tasks: Iterable[TaskRecord]) -> list[TaskId]:
        """Book who was let in, one by one, and check that it was their turn."""
        self.note_whose_turn_it_is()
        for task in tasks:
            key = key_of(task)
            task.state = READY
            assert self.waiting[key][0] == task.id, "in the order they came"
            assert not self.must_wait(task), "there is room for it"
            if not self.could_borrow(task):
                for line, served in self.passed_over.items():
                    served[key] = served.get(key, 0) + (line != key)
                    assert served[key] <= 1, "parents take turns"
            self.drop(task)
            self.running.add(task.id)
            self.passed_over.pop(key, None)
            self.note_whose_turn_it_is()
        return [task.id for task in tasks]

    def note_whose_turn_it_is(self) -> None:
        self.passed_over = {
            key: self.passed_over.get(key, {})
            for key in self.waiting
            if self.is_open(key)
        }


class Limits(RuleBasedStateMachine):
    """Tasks come and go, and some are let in whether there is room or not."""

    forces = False
    only_the_tree = False

    @initialize(children=limits, tasks=limits, detached=limits)
    def begin(
        self, children: int | None, tasks: int | None, detached: int | None
    ) -> None:
        rules = Rules(live_children=children, live_tasks=tasks, detached=detached)
        if self.only_the_tree:
            rules = Rules(live_tasks=tasks or 2, detached=None)
        self.places = Places(rules)
        self.allowed: dict[str, float] = {}
        """What was forced is above a limit until enough have left."""
        self.keep_limits()

    @property
    def room(self) -> Slots:
        return self.places.room

    def amounts(self) -> dict[str, tuple[int, float]]:
        """Return how much there is of all that has a limit, and the limit."""
        places, rules = self.places, self.places.rules
        of_parents = {
            f"children of {parent.id}": (
                parent.children.slots_used,
                at_most(rules.live_children),
            )
            for parent in places.parents()
        }
        return {
            "working": (self.room.in_use, at_most(rules.live_tasks)),
            "detached": (self.room.detached, at_most(rules.detached)),
            **of_parents,
        }

    def keep_limits(self) -> None:
        for what, (amount, limit) in self.amounts().items():
            allowed = self.allowed.get(what, limit)
            assert amount <= allowed, what
            self.allowed[what] = max(limit, min(allowed, amount))

    @precondition(lambda self: len(self.places.live) < TASKS)
    @rule(data=st.data(), background=st.booleans(), times=st.integers(1, 4))
    def ask(self, data: st.DataObject, background: bool, times: int) -> None:
        parent = data.draw(st.sampled_from(self.places.parents()))
        # A child ends with its one turn, so only a session has somebody to be told later.
        is_detached = background and parent is self.places.root
        for _ in range(times):
            self.places.ask(parent, Mode.DETACHED if is_detached else Mode.JOINED)
            self.keep_limits()

    @precondition(lambda self: self.places.live)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.places.end(data.draw(st.sampled_from(self.places.leaves())))
        self.keep_limits()

    @precondition(lambda self: self.forces and self.places.waiting)
    @rule(data=st.data())
    def force(self, data: st.DataObject) -> None:
        """What was written under other rules has happened all the same."""
        self.places.force(data.draw(st.sampled_from(list(self.places.in_line()))))
        self.allowed |= {
            what: max(amount, limit) for what, (amount, limit) in self.amounts().items()
        }

    @precondition(lambda self: self.places.waiting)
    @rule()
    def positions_are_the_order_of_admission(self) -> None:
        """If nobody else comes, and those who run end one by one."""
        places = self.places
        positions = {task.id: self.room.position(task) for task in places.in_line()}
        for line in places.waiting.values():
            own = [positions[id_] for id_ in line]
            assert own == sorted(set(own)), "nobody overtakes in its own line"
            assert all(1 <= place <= self.room.queued for place in own)
        if len(places.waiting) > 1 and not self.only_the_tree:
            return  # Who comes first then depends on who ends first.
        later = copy.deepcopy(places)
        admitted: list[TaskId] = []
        while later.waiting and (
            leavers := list(filter(self.gives_back, later.leaves()))
        ):
            before = {task.id for task in later.in_line()}
            leaver = leavers[0]
            later.end(leaver)
            left = {task.id for task in later.in_line()}
            admitted += sorted(before - left, key=positions.__getitem__)
        assert [positions[id_] for id_ in admitted] == [*range(1, len(admitted) + 1)]

    def gives_back(self, task: TaskRecord) -> bool:
        """Tell whether a task gives its place to the tree, and not back to its parent."""
        parent = task.parent
        assert parent is not None
        is_the_last = parent.has_slot and parent.children.joined_slots_used == 1
        is_only_line = len(self.places.waiting) == 1
        return task.has_slot and (is_only_line or not is_the_last)

    @invariant()
    def the_books_agree(self) -> None:
        places = self.places
        waiting = list(places.in_line())
        assert self.room.in_use == places.working()
        assert self.room.detached == places.detached()
        assert self.room.queued == len(waiting)
        assert not any(task.has_slot for task in waiting)
        for parent in places.parents():
            joined = places.running_below(parent, Mode.JOINED)
            assert parent.children.slots_used == places.running_below(parent)
            assert parent.children.joined_slots_used == joined

    @invariant()
    def nobody_waits_while_there_is_room_for_it(self) -> None:
        assert all(map(self.places.must_wait, self.places.in_line()))

    @precondition(lambda self: not self.places.waiting)
    @rule(data=st.data(), background=st.booleans())
    def what_is_free_is_free(self, data: st.DataObject, background: bool) -> None:
        """As many as could start do start, if they ask now, and the next one waits."""
        later = copy.deepcopy(self.places)
        parent = data.draw(st.sampled_from(later.parents()))
        is_detached = background and parent is later.root
        mode = Mode.DETACHED if is_detached else Mode.JOINED
        free = later.room.free(parent, mode)
        if not math.isinf(free):
            started = [later.ask(parent, mode).has_slot for _ in range(int(free) + 1)]
            assert started == [True] * int(free) + [False]


class ForcedLimits(Limits):
    forces = True


class OfTheTree(Limits):
    only_the_tree = True


SETTINGS: Final = settings(max_examples=60, stateful_step_count=40)


def test_whoever_comes_and_goes_no_limit_is_passed_and_nobody_waits_in_vain() -> None:
    """Each limit is kept at every moment, and every place is used."""
    run_state_machine_as_test(Limits, settings=SETTINGS)


def test_what_was_let_in_under_other_rules_leaves_before_anybody_else_comes() -> None:
    """What has happened is true, and the limits hold again as soon as they can."""
    run_state_machine_as_test(ForcedLimits, settings=SETTINGS)


def test_where_only_the_tree_is_full_a_position_is_exact() -> None:
    """Whoever is told to be the third is the third."""
    run_state_machine_as_test(OfTheTree, settings=SETTINGS)


@attrs.define
class Parent:
    """Somebody who runs, and asks for many."""

    task: TaskRecord
    children: list[TaskRecord] = attrs.field(factory=list[TaskRecord])

    def running(self) -> list[TaskRecord]:
        return [child for child in self.children if child.has_slot]


def two_parents(places: Places) -> tuple[Parent, Parent]:
    first = Parent(places.ask(places.root, Mode.JOINED))
    second = Parent(places.ask(places.root, Mode.JOINED))
    return first, second


def ask_for(places: Places, parent: Parent, number: int) -> None:
    parent.children += [places.ask(parent.task, Mode.JOINED) for _ in range(number)]


def test_who_asks_for_a_thousand_delays_who_asks_for_two_by_one_round() -> None:
    """Parents take turns, however long their lines are."""
    places = Places(Rules(live_tasks=4))
    greedy, modest = two_parents(places)
    ask_for(places, greedy, 1_000)
    ask_for(places, modest, 3)
    assert (len(greedy.running()), len(modest.running())) == (3, 1)
    assert [places.room.position(it) for it in modest.children[1:]] == [2, 4]

    for expected in (1, 2, 2, 3):
        places.end(greedy.children.pop(0))
        assert len(modest.running()) == expected
    assert places.room.in_use == 4


def test_a_place_is_lent_down_a_chain_of_any_length() -> None:
    """Whoever waits holds nothing that its child needs: one place is enough for all."""
    places = Places(Rules(live_tasks=1, live_children=1))
    chain = [places.ask(places.root, Mode.JOINED)]
    for _ in range(20):
        chain.append(places.ask(chain[-1], Mode.JOINED))
    assert all(task.has_slot for task in chain)
    assert places.room.in_use == 1

    aside = places.ask(places.root, Mode.DETACHED)
    assert not aside.has_slot
    for task in reversed(chain):
        assert not aside.has_slot
        places.end(task)
    assert aside.has_slot


def test_the_first_child_runs_in_the_place_of_its_parent_and_the_second_needs_its_own() -> (
    None
):
    """One place is lent once, and comes back when the last child that runs has ended."""
    places = Places(Rules(live_tasks=2))
    parent, _ = two_parents(places)
    ask_for(places, parent, 2)
    first, second = parent.children
    assert (first.has_slot, second.has_slot) == (True, False)

    places.end(first)
    assert second.has_slot
    places.end(second)
    assert places.room.in_use == 2


def test_a_place_to_borrow_is_free_also_where_too_many_run() -> None:
    """They were let in under other rules, and took no place from it."""
    places = Places(Rules(live_tasks=1))
    for _ in range(3):
        places.ask(places.root, Mode.JOINED)
    parent, other, _ = places.live.values()
    places.force(other)
    assert places.room.in_use == 2

    assert places.room.free(parent, Mode.JOINED) == 1
    assert places.ask(parent, Mode.JOINED).has_slot
