"""Trees of any shape, as they could have grown: who waits ends last, who needs starts later."""

import itertools
import random
from collections.abc import Iterable

import attrs
from hypothesis import strategies as st

from orchestrator.agents import Usage
from orchestrator.delegation import Ending, Mode, Status, TaskId, Tree
from tests.delegation.built_trees import add_task

NOTHING = Usage()
ROOT = TaskId("s")
AGENTS = ("coder", "coder", "coder", "tester", "writer")


@attrs.define
class Grown:
    """A task of a tree that is being made up."""

    id: TaskId
    parent: "Grown | None"
    agent: str
    mode: Mode
    requested: int
    started: int = 0
    ended: int = 0
    needs: "tuple[Grown, ...]" = ()
    ending: Ending = Ending.SUCCEEDED
    usage: Usage = NOTHING
    abandoned: bool = False


class Making:
    """Makes up one tree."""

    def __init__(self, seed: int, most: int, least: int = 0) -> None:
        self.random = random.Random(seed)
        self.least = least
        """How long somebody works at least, whenever they do."""
        self.most = most
        self.tasks: list[Grown] = []
        self.turns: list[tuple[int, int]] = []
        self.ids = itertools.count(1)

    def number(self, most: int) -> int:
        return self.random.randint(0, most)

    def new(self, parent: Grown | None, mode: Mode, requested: int) -> Grown:
        agent = AGENTS[self.number(len(AGENTS) - 1)]
        id_ = TaskId(f"t{next(self.ids)}") if parent else ROOT
        task = Grown(id_, parent, agent, mode, requested)
        self.tasks.append(task)
        tokens, price = self.number(9), self.number(3)
        task.usage = Usage(
            calls=1, input_tokens=tokens, micro_usd=7 * price, unpriced=int(not price)
        )
        return task

    def live(self, task: Grown, ready: int, depth: int) -> None:
        """Let a task live from when it could start."""
        task.started = ready + self.number(2)
        task.ended = self.work(task, task.started, depth)
        endings = [Ending.SUCCEEDED, Ending.SUCCEEDED, Ending.FAILED, Ending.CANCELLED]
        task.ending = endings[self.number(3)]

    def work(self, task: Grown, at: int, depth: int) -> int:
        for _ in range(self.number(2)):
            at += self.least + self.number(4)
            if depth and len(self.tasks) < self.most:
                at = self.batch(task, at, depth)
        return at + self.least + self.number(4)

    def batch(self, task: Grown, at: int, depth: int) -> int:
        """Let a task hand some tasks on, and return when it goes on."""
        is_wide = not self.number(5)
        size = 12 if is_wide else 1 + self.number(3)
        batch: list[Grown] = []
        goes_on = at
        for _ in range(size):
            mode = Mode.JOINED if self.number(3) else Mode.DETACHED
            child = self.new(task, mode, at)
            if batch and not self.number(2):
                child.needs = (batch[self.number(len(batch) - 1)],)
            ready = max([at, *(need.ended for need in child.needs)])
            self.live(child, ready, 0 if is_wide else depth - 1)
            if mode is Mode.JOINED and not child.needs and not self.number(7):
                child.ending, child.abandoned = Ending.CANCELLED, True
            else:
                batch.append(child)
            if mode is Mode.JOINED:
                goes_on = max(goes_on, child.ended)
        return goes_on

    def make(self) -> None:
        root = self.new(None, Mode.ROOT, 0)
        at = root.started = self.number(2)
        for _ in range(1 + self.number(2)):
            end = self.work(root, at, 3)
            self.turns.append((at, end))
            later = [it.ended for it in self.tasks[1:] if it.ended > end]
            # Woken by news, or by somebody who takes their time.
            at = min(later) if later and self.number(2) else end + self.number(3)
        root.ended = self.turns[-1][1]


def grown(tasks: Iterable[Grown], turns: list[tuple[int, int]], cut: int) -> Tree:
    """Return a tree as it was at a moment: what comes later has not happened yet."""
    tree = Tree(ROOT)
    counts: dict[tuple[str, str], int] = {}
    paths: dict[TaskId, str] = {}
    for task in sorted(tasks, key=lambda it: (it.requested, it.id != ROOT)):
        if task.requested > cut:
            continue
        above = "" if task.parent is None else paths[task.parent.id]
        number = counts[above, task.agent] = counts.get((above, task.agent), 0) + 1
        name = task.agent if task.parent is None else f"{task.agent}[{number}]"
        paths[task.id] = f"{above}/{name}"
        add_task(
            tree,
            task.id,
            parent=None if task.parent is None else task.parent.id,
            agent=task.agent,
            path=paths[task.id],
            mode=task.mode,
            at=float(task.requested),
            goal=f"goal of {task.id}",
            needs=[need.id for need in task.needs],
        )
    for begin, end in turns:
        if begin <= cut:
            tree.begin_turn(float(begin))
            tree.set_status(ROOT, Status.RUNNING)
        if end <= cut:
            tree.end_turn(float(end), "")
            tree.set_status(ROOT, Ending.SUCCEEDED)
    for task in tasks:
        if task.parent is not None and task.started <= cut:
            tree.start(task.id, float(task.started))
            tree.set_status(task.id, Status.RUNNING)
            tree.add_usage(task.id, task.usage)
        if task.parent is not None and task.ended <= cut:
            tree.end(task.id, float(task.ended), "", task.ending, abandoned=task.abandoned)
    return tree


def _tree(seed: int, most: int, cut: float, least: int = 0) -> Tree:
    making = Making(seed, most, least)
    making.make()
    last = max(it.ended for it in making.tasks)
    return grown(making.tasks, making.turns, round(cut * last))


def trees(*, most: int = 60, whole: bool = False, least: int = 0) -> st.SearchStrategy[Tree]:
    """Return any trees: as they ended, or as they were at any moment.

    Args:
        most: how many tasks they have, or some more.
        whole: all of it has ended.
        least: how long somebody works at least, whenever they do.
    """
    # A tree is drawn as one number: drawn task by task it would take a hundred times as long.
    cuts = st.just(1.0) if whole else st.just(1.0) | st.floats(0, 1)
    return st.builds(_tree, st.integers(0, 10**9), st.integers(1, most), cuts, st.just(least))
