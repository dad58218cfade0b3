"""The agents of one round: random trees from a seed, equal in all processes.

An agent is a node, and each of its model calls a step. The provider and the oracle look steps up
by the name of the node and by how many answers its conversation has; so neither needs to remember
anything, and a process that was killed is served like one that was not.
"""

import random
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, Literal, TypeAlias

import attrs

from orchestrator.agents import Budget

Tool: TypeAlias = Literal["launch", "measure", "pay", "guarded"]
Fault: TypeAlias = Literal["500", "429", "cut", "filter", "400"]
PERMANENT: Final = frozenset({"filter", "400"})
"""The faults after which no client asks again."""


@attrs.frozen
class Act:
    """Calls tools that have an effect, all in one answer."""

    tools: tuple[Tool, ...]


@attrs.frozen
class Delegate:
    """Delegates to children, all in one call."""

    children: tuple[str, ...]
    background: bool


@attrs.frozen
class Control:
    """Waits for a child of its own, steers it or cancels it."""

    action: Literal["wait", "steer", "cancel"]
    child: str


@attrs.frozen
class Command:
    """Starts a command in the background."""

    seconds: float
    notify: bool
    stubborn: bool
    """It ignores SIGTERM."""


@attrs.frozen
class Listen:
    """Measures until it hears a message, and not for ever."""


@attrs.frozen
class Hang:
    """The provider says half an answer, and then nothing until the client hangs up."""


Step: TypeAlias = Act | Delegate | Control | Command | Listen | Hang


@attrs.frozen(kw_only=True)
class Node:
    """An agent, which has one task or, at the root, the turns of one session."""

    id: str
    parent: str = ""
    needs: tuple[str, ...] = ()
    is_program: bool = False
    """A pipeline: it has no model, and delegates to its children one by one."""
    steps: tuple[Step, ...] = ()
    """Its model calls; a last one gives the final answer."""
    asks: tuple[int, ...] = ()
    """Of a root: how many of the steps follow each message."""
    is_run: bool = False
    """Of a root: a run, which is resumed after a kill; otherwise a session."""
    budget: Budget | None = None
    on_restart: Literal["resume", "restart", "lose"] = "resume"
    faults: tuple[tuple[Fault, ...], ...] = ()
    """The faults of the provider at each step before it answers."""
    detached: bool = False
    approves: bool = True
    """The verdict of a person on its guarded calls."""

    @property
    def is_root(self) -> bool:
        return not self.parent

    def fault(self, step: int, attempt: int) -> Fault | None:
        """Return what goes wrong when a step is asked for, counted from 0."""
        faults = self.faults[step] if step < len(self.faults) else ()
        if not faults:
            return None
        if faults[-1] in PERMANENT:
            return faults[min(attempt, len(faults) - 1)]
        return faults[attempt] if attempt < len(faults) else None


LISTENS: Final = 25
"""How often a node measures at most before it gives up listening."""
DEEPEST: Final = 3
SERVED: Final = 6
"""One of so many rounds is played with a server."""
RUNS: Final = 5
"""One of so many has a run beside its sessions."""


@attrs.frozen
class Plan:
    """One round."""

    seed: int
    nodes: dict[str, Node]
    steers: frozenset[str]
    """The nodes that a message is sent to from outside."""
    cancels: dict[str, float]
    """The nodes that are cancelled from outside, and how many seconds after their request."""

    @property
    def is_served(self) -> bool:
        """Whether the process is `orchestrator serve`."""
        return self.seed % SERVED == 0

    @property
    def roots(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_root]

    def children(self, node: str) -> list[Node]:
        return self._children.get(node, [])

    @cached_property
    def _children(self) -> dict[str, list[Node]]:
        children: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            children.setdefault(node.parent, []).append(node)
        return children

    def above(self, node: str) -> Iterator[Node]:
        """Yield a node and all its ancestors."""
        while node:
            yield self.nodes[node]
            node = self.nodes[node].parent

    def below(self, node: str) -> Iterator[Node]:
        """Yield a node and all its descendants."""
        yield self.nodes[node]
        for child in self.children(node):
            yield from self.below(child.id)

    def is_certain(self, node: str) -> bool:
        """Return whether a node succeeds, whatever is killed and when."""
        return all(
            each.budget is None
            and each.on_restart != "lose"
            # What begins anew loses its children.
            and (each.id == node or each.on_restart == "resume")
            and each.id not in self.cancels
            and not any(isinstance(step, Hang) for step in each.steps)
            and not any(faults and faults[-1] in PERMANENT for faults in each.faults)
            and all(map(self.is_certain, each.needs))
            and not self._is_cancelled_by_parent(each)
            for each in self.above(node)
        )

    def _is_cancelled_by_parent(self, node: Node) -> bool:
        return bool(node.parent) and any(
            isinstance(step, Control) and step.action == "cancel" and step.child == node.id
            for step in self.nodes[node.parent].steps
        )


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed: always the same."""
    return _Planner(seed).plan()


class _Planner:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._chance = random.Random(f"plan {seed}")
        self._nodes: dict[str, Node] = {}
        self._steers: set[str] = set()
        self._cancels: dict[str, float] = {}
        # Faults and budgets come in rounds of their own, so that most results are certain.
        self._is_costly = self._one_in(3)
        self._is_faulty = self._is_costly or self._one_in(4)

    def plan(self) -> Plan:
        for number in range(self._chance.choice((1, 1, 2))):
            self._root(f"s{number}", asks=self._chance.randint(1, 3))
        if self._seed % RUNS == 0 and self._seed % SERVED:
            self._root("s9", asks=1, is_run=True)
        return Plan(self._seed, self._nodes, frozenset(self._steers), self._cancels)

    def _one_in(self, number: int) -> bool:
        return self._chance.randrange(number) == 0

    def _root(self, id_: str, *, asks: int, is_run: bool = False) -> None:
        budget = self._budget(8, 30) if self._is_costly and self._one_in(2) else None
        self._nodes[id_] = Node(id=id_)
        said = [self._steps(id_, ask * 10, 0) for ask in range(asks)]
        steps = tuple(step for ask in said for step in ask)
        self._nodes[id_] = Node(
            id=id_,
            steps=steps,
            asks=tuple(map(len, said)),
            is_run=is_run,
            budget=budget,
            faults=self._faults(len(steps)),
            approves=not self._one_in(3),
        )

    def _steps(self, id_: str, first: int, depth: int) -> list[Step]:
        """Return some steps of a node, and plan the children that they need.

        Args:
            id_: the node.
            first: the number of the first child.
            depth: of the node.
        """
        steps: list[Step] = []
        if self._one_in(2):
            steps.append(self._act())
        if depth < DEEPEST and (not depth or self._one_in(depth + 2)):
            for batch in range(self._chance.choice((1, 1, 2))):
                steps += self._batch(id_, first + batch * 5, depth)
        if self._one_in(6):
            steps.append(
                Command(
                    round(self._chance.uniform(0, 0.3), 2),
                    notify=self._one_in(2),
                    stubborn=self._one_in(4),
                )
            )
        if self._one_in(3):
            steps.append(self._act())
        return steps

    def _act(self) -> Act:
        tools: Sequence[Tool] = ("launch", "measure", "pay", "guarded")
        return Act(tuple(self._chance.sample(tools, self._chance.choice((1, 1, 2)))))

    def _batch(self, id_: str, first: int, depth: int) -> Iterator[Step]:
        background = self._one_in(2)
        children = [f"{id_}-{first + number}" for number in range(self._chance.randint(1, 3))]
        for number, child in enumerate(children):
            needs = (
                (children[self._chance.randrange(number)],) if number and self._one_in(4) else ()
            )
            self._child(child, id_, needs, depth + 1, detached=background)
        yield Delegate(tuple(children), background)
        # Only a detached child can be reached while its parent goes on.
        for child in children if background else ():
            hangs = any(isinstance(step, Hang) for step in self._nodes[child].steps)
            listens = any(isinstance(step, Listen) for step in self._nodes[child].steps)
            if hangs and self._one_in(2):
                yield Control("cancel", child)
            elif listens and child not in self._steers:
                yield Control("steer", child)
            elif not hangs and self._one_in(4):
                yield Control("wait", child)

    def _child(
        self, id_: str, parent: str, needs: tuple[str, ...], depth: int, *, detached: bool
    ) -> None:
        self._nodes[id_] = Node(id=id_, parent=parent)
        if depth < DEEPEST and self._one_in(6):
            for number in range(self._chance.randint(1, 3)):
                self._child(f"{id_}-{number}", id_, (), depth + 1, detached=False)
            self._nodes[id_] = Node(
                id=id_, parent=parent, needs=needs, is_program=True, detached=detached
            )
            return
        steps = self._steps(id_, 0, depth)
        # A task that waits for another one cannot be reached while it does.
        if not needs and self._one_in(5):
            steps.append(Listen())
            if self._one_in(2) or not detached:
                self._steers.add(id_)
        elif not needs and self._one_in(6):
            steps.append(Hang())
            # Its parent may cancel it before, if it comes to that.
            self._cancels[id_] = self._chance.choice((0.05, 0.2, 1))
        elif self._one_in(12):
            self._cancels[id_] = round(self._chance.uniform(0, 0.1), 3)
        self._nodes[id_] = Node(
            id=id_,
            parent=parent,
            needs=needs,
            steps=tuple(steps),
            budget=self._budget(1, 8) if self._is_costly and self._one_in(3) else None,
            on_restart=self._chance.choice(("resume",) * 8 + ("restart", "lose")),
            faults=self._faults(len(steps) + 1),
            detached=detached,
            approves=not self._one_in(3),
        )

    def _budget(self, least: int, most: int) -> Budget:
        calls = self._chance.randint(least, most)
        match self._chance.choice(("calls", "calls", "tokens", "usd")):
            case "tokens":
                return Budget(tokens=calls * 2_000)
            case "usd":
                return Budget(usd=calls * 0.002)
            case _:
                return Budget(calls=calls)

    def _faults(self, steps: int) -> tuple[tuple[Fault, ...], ...]:
        return tuple(
            self._fault() if self._is_faulty and self._one_in(5) else () for _ in range(steps)
        )

    def _fault(self) -> tuple[Fault, ...]:
        passing: Sequence[Fault] = ("500", "429", "cut")
        faults = tuple(self._chance.choices(passing, k=self._chance.randint(1, 2)))
        last: Sequence[Fault] = ("filter", "400")
        return (*faults, self._chance.choice(last)) if self._one_in(4) else faults
