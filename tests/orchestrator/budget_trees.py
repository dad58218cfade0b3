"""`python -m tests.orchestrator.budget_trees --seed 7 --rounds 3000`: budgets, counted outside.

Random trees run under nested budgets on models that fail, are retried, fall back, summarize, break
off in the middle, and are cancelled; parents choose models and efforts, give budgets and summaries,
fork themselves, and call agents as tools; tasks wait for others, also in programs; some have
commands that ignore SIGTERM, some processes die and are started again. The provider counts what it
is asked and what it could bill. At no moment may that exceed a budget, and in the end no account
may have booked less.
"""

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio
import trio.testing
from msgspec.structs import replace

from orchestrator import (
    Child,
    Machine,
    MemoryJournal,
    Orchestrator,
    budget,
    detach,
    open_orchestrator,
)
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    Compaction,
    Failure,
    Limits,
    Model,
    ModelError,
    ModelRequest,
    Pipeline,
    Price,
    TextDelta,
    ToolCall,
    Usage,
    agent,
    allow,
)
from orchestrator.agents.models.wrappers.fallback import with_fallback
from orchestrator.agents.models.wrappers.hedge import with_hedge
from orchestrator.agents.models.wrappers.prices import PriceTable, with_prices
from orchestrator.agents.models.wrappers.rate_limit import Limiter, with_rate_limit
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.agents.task_choices import model_names
from orchestrator.agents.tools.terminal import terminal
from orchestrator.delegation import Ledger, Rules, SessionId
from orchestrator.delegation.amounts import NOTHING, Amounts
from orchestrator.kernel.errors import ClosedError
from orchestrator.kernel.journal.journal import Journal
from orchestrator.testing import CrashedError, CrashingJournal, laws_of

DEAF: Final = "trap '' TERM; while :; do sleep 1000; done"
"""A command that has to be killed: its task is torn down late."""
RULES: Final = Rules(depth=4)
DEPTH: Final = 2
"""How many levels of tasks are below a root."""
REFUSALS: Final = (Failure.RATE_LIMIT, Failure.OVERLOADED, Failure.AUTH, Failure.QUOTA)
BREAKS: Final = (Failure.CONNECTION, Failure.TIMEOUT, Failure.MALFORMED)
UNLIMITED: Final = 100_000
"""How long an answer may be of which nothing is said."""
REAL_TIME_RATE: Final = 5
"""How fast the clock runs where commands are real."""
ROUNDS_FOR_EACH_WITH_COMMANDS: Final = 50
SECONDS: Final = 10.0
"""How long a call may take, and within how many seconds things are cancelled."""


@attrs.define(eq=False)
class Scope:
    """One budget, and what the provider has counted under it."""

    budget: Budget
    calls: int = 0
    tokens: int = 0
    cost: int = 0
    is_told: bool = True
    """The provider has told of every call what it used."""
    is_billed: bool = True
    """It has told of every call what it cost."""
    problems: list[str] = attrs.field(factory=list[str])

    def check(self) -> None:
        """Note if the provider has counted more than the budget allows."""
        budget = self.budget
        usd = None if budget.usd is None else round(budget.usd * 1_000_000)
        for kind, used, most in (
            ("calls", self.calls, budget.calls),
            ("tokens", self.tokens, budget.tokens),
            ("micro-dollars", self.cost, usd),
        ):
            if most is not None and used > most:
                self.problems.append(f"{budget}: {used} {kind} at the provider")

    def compare(self, used: Amounts) -> Iterator[str]:
        """Yield where an account has booked less than the provider has counted, or too much."""
        budget, told = self.budget, self.is_told
        for kind, most, booked, counted, is_exact in (
            ("calls", budget.calls, used.calls, self.calls, told),
            ("tokens", budget.tokens, used.tokens, self.tokens, told),
            ("micro-dollars", budget.usd, used.micro_usd, self.cost, told and self.is_billed),
        ):
            # Where nothing limits them, what is not told is an estimate.
            is_less = booked < counted and (told or most is not None)
            if is_less or (is_exact and booked != counted):
                yield f"{self.budget}: booked {booked} {kind}, of {counted} at the provider"


class Exchange:
    """One request at the provider, which counts what it could bill."""

    def __init__(self, scopes: Sequence[Scope], price: Price) -> None:
        self._scopes = scopes
        self._price = price
        self._read = self.written = self._cost = 0
        for scope in scopes:
            scope.calls += 1
            scope.check()

    def count(self, *, read: int = 0, written: int = 0) -> None:
        """Count tokens, whether the caller learns of them or not."""
        self._read += read
        self.written += written
        cost = self._price.cost_of(input_tokens=self._read, output_tokens=self.written)
        for scope in self._scopes:
            scope.tokens += read + written
            scope.cost += cost - self._cost
            scope.check()
        self._cost = cost

    def keep_silent(self) -> None:
        """Let the caller not learn what the request came to."""
        for scope in self._scopes:
            scope.is_told = False

    def usage(self, *, with_cost: bool) -> Usage:
        for scope in self._scopes:
            scope.is_billed = scope.is_billed and with_cost
        return Usage(1, self._read, self.written, self._cost if with_cost else 0)


class ProviderModel:
    """The provider as one node of the tree knows it: what becomes of a call is drawn."""

    def __init__(self, chance: random.Random, node: "Node", name: str) -> None:
        self.name = name
        self.price = Price(input=chance.choice([0, 3]), output=chance.choice([1, 15]))
        self._chance = chance
        self._node = node
        self._says_cost = chance.random() < 0.5
        """Else its price is applied to what it used."""
        self._failure_rate = chance.choice([0, 0, 0.2, 0.6])

    def count_tokens(self, request: ModelRequest) -> int:
        texts = [request.instructions, *(it.text for it in request.transcript)]
        return sum(-(-len(text) // 4) for text in texts)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        chance, node = self._chance, self._node
        exchange = Exchange(node.scopes, self.price)
        most = request.max_output or UNLIMITED
        try:
            await trio.sleep(chance.choice([0, 1, SECONDS]) * chance.random())
            if chance.random() < self._failure_rate / 2:
                raise ModelError("no", kind=chance.choice(REFUSALS))
            exchange.count(read=self.count_tokens(request))
            calls, length = node.next_step(request)
            written = min(most, length)
            request.tell(TextDelta("x" * (2 * written)))
            exchange.count(written=written // 2)
            await trio.sleep(chance.choice([0, 1]) * chance.random())
            if chance.random() < self._failure_rate / 2:
                raise self._broken(exchange, most)
        except trio.Cancelled:
            self._run_on(exchange, most)
            raise
        exchange.count(written=written - written // 2)
        usage = exchange.usage(with_cost=self._says_cost)
        if length > most:
            raise ModelError("too long", kind=Failure.CUT_OFF, usage=usage)
        text = "" if calls else "x" * (4 * written)
        return AssistantMessage(text, calls, usage, self.name)

    def _broken(self, exchange: Exchange, most: int) -> Exception:
        chance = self._chance
        known = exchange.usage(with_cost=self._says_cost)
        match chance.randrange(5):
            case 0:
                return ModelError("refused", kind=Failure.REFUSED, usage=known)
            case 1:
                self._run_on(exchange, most)
                return ValueError("a bug")
            case 2:
                # It has told what it used by then, and used more.
                self._run_on(exchange, most)
                return ModelError("cut", kind=chance.choice(BREAKS), usage=known)
            case _:
                self._run_on(exchange, most)
                return ModelError("cut", kind=chance.choice(BREAKS), partial="xx")

    def _run_on(self, exchange: Exchange, most: int) -> None:
        """Write on for a caller that is gone, up to all that it may write."""
        exchange.keep_silent()
        rest = 0 if most == UNLIMITED else most - exchange.written
        exchange.count(written=round(rest * self._chance.choice([0, 0.5, 1])))


class Node:
    """An agent of the tree, which is asked once."""

    def __init__(
        self,
        chance: random.Random,
        path: str,
        scopes: Sequence[Scope],
        *,
        depth: int,
        has_commands: bool,
        hedges: bool,
    ) -> None:
        self.name = path
        self.hedges = hedges
        self.is_tool = depth < DEPTH and chance.random() < 0.15
        """Its parent calls it as a tool."""
        self._forks = chance.random() < 0.15
        own = drawn_budget(chance, path) if chance.random() < 0.3 else None
        self.given = drawn_budget(chance, path) if chance.random() < 0.2 else None
        if self.is_tool:
            self.given = None
        if self._forks:
            # A fork has the budget of its agent for itself, which would be one scope here.
            own = self.given = None
        """The budget that its parent gives it; a root has no parent."""
        if own is None and self.given is not None:
            own = Budget(name=path)
        self.scopes = scopes
        if own is not None:
            given = None if depth == DEPTH else self.given
            self.scopes = (*scopes, Scope(narrower(own, given)))
        self._lengths = [chance.choice([1, 20, 500, 6_000]) for _ in range(9)]
        self.children = [
            Node(
                chance,
                f"{path}{letter}",
                self.scopes,
                depth=depth - 1,
                has_commands=has_commands,
                hedges=hedges,
            )
            for letter in "abc"[: chance.randrange(4) if depth else 0]
        ]
        self._steps: list[tuple[ToolCall, ...]] = []
        if has_commands and chance.random() < 0.5:
            self._steps.append((ToolCall("terminal", {"command": DEAF, "background": True}),))
        for child in self.children:
            call = child.request(chance, background=chance.choice([False, None]))
            last = self._steps[-1] if self._steps else ()
            if (
                last
                and "tasks" in last[-1].arguments
                and not child.is_tool
                and chance.random() < 0.4
            ):
                # Siblings of one call: the second waits for the first.
                self._steps[-1] = (*last[:-1], following(last[-1], call))
            elif last and chance.random() < 0.6:
                self._steps[-1] = (*last, call)
            else:
                self._steps.append((call,))
        if self._forks:
            # At the end: a fork of an earlier step would take all later ones.
            goals = [{"goal": "go"}] * chance.randrange(1, 3)
            fork = ToolCall("delegate_task", {"tasks": goals, "conversation": "fork"})
            self._steps.append((fork,))
        options: dict[str, Any] = {
            "approve": [allow("*")],
            "budget": own,
            "limits": Limits(
                seconds=SECONDS * chance.random() if chance.random() < 0.2 else None, calls=9
            ),
        }
        self.agent: Agent[Any] = (
            agent(name=path, **options)(self._run_program)
            if self.children and not self._forks and chance.random() < 0.1
            else Agent(
                path,
                model=drawn_model(chance, self),
                models=[drawn_model(chance, self, "third", "fourth")],
                efforts=["low"],
                delegates=[it.agent for it in self.children if not it.is_tool],
                forks=self._forks,
                gives_budgets=any(not it.is_tool for it in self.children),
                summaries=any(not it.is_tool for it in self.children),
                tools=[terminal, *(it.agent.as_tool() for it in self.children if it.is_tool)],
                compaction=drawn_compaction(chance, self),
                **options,
            )
        )

    async def _run_program(self, goal: str) -> str:
        """Delegate to the children, each after the one before."""
        before: list[Child[Any]] = []
        for child in self.children:
            start: Any = detach
            if child.given is not None:
                start = partial(detach, budget=child.given)
            before = [await start(child.agent, goal, after=before or None)]
        return "done"

    def request(self, chance: random.Random, *, background: bool | None) -> ToolCall:
        """Return the call that delegates to it, on its own model or on the other one."""
        if self.is_tool:
            return ToolCall(self.name, {"goal": "go"})
        task: dict[str, Any] = {"goal": "go", "agent": self.name, "label": self.name}
        if self.given is not None:
            amounts = attrs.asdict(self.given, filter=lambda _, value: value is not None)
            task["budget"] = {key: amounts[key] for key in amounts if key != "name"}
        # A program has no model.
        if isinstance(self.agent, Pipeline):
            return ToolCall("delegate_task", {"tasks": [task], "background": background})
        if chance.random() < 0.2:
            task["model"] = model_names(self.agent)[0]
        if chance.random() < 0.2:
            task["effort"] = "low"
        if chance.random() < 0.2:
            task["conversation"] = "summary"
        return ToolCall("delegate_task", {"tasks": [task], "background": background})

    def next_step(self, request: ModelRequest) -> tuple[tuple[ToolCall, ...], int]:
        """Return the calls and the length of the next answer; a summary is a short text."""
        if not request.tools:
            return (), 10
        done = sum(isinstance(it, AssistantMessage) and bool(it.calls) for it in request.transcript)
        length = self._lengths[done % len(self._lengths)]
        return (self._steps[done] if done < len(self._steps) else ()), length

    def below(self) -> "Iterator[Node]":
        yield self
        for child in self.children:
            yield from child.below()


def following(call: ToolCall, then: ToolCall) -> ToolCall:
    """Return a call with the tasks of another one, which wait for its own."""
    tasks = [*call.arguments["tasks"]]
    later = [{**it, "depends_on": [tasks[-1]["label"]]} for it in then.arguments["tasks"]]
    return replace(call, arguments={**call.arguments, "tasks": tasks + later})


def drawn_budget(chance: random.Random, name: str) -> Budget:
    return Budget(
        calls=chance.choice([None, None, 2, 6, 12, 20]),
        tokens=chance.choice([None, None, None, 20_000, 100_000, 300_000]),
        usd=chance.choice([None, None, None, 0.1, 0.5, 2]),
        name=name,
    )


def narrower(own: Budget, given: Budget | None) -> Budget:
    """Return the smaller amount of each kind."""
    if given is None:
        return own
    pairs = {key: (getattr(own, key), getattr(given, key)) for key in ("calls", "tokens", "usd")}
    least: dict[str, Any] = {
        key: min((it for it in pair if it is not None), default=None) for key, pair in pairs.items()
    }
    return attrs.evolve(own, **least)


def drawn_model(
    chance: random.Random, node: Node, first: str = "first", second: str = "second"
) -> Model:
    """Return the provider behind wrappers, in any order that they can have."""

    def wrapped(name: str) -> Model:
        leaf: Any = ProviderModel(chance, node, name)
        model: Model = leaf
        if chance.random() < 0.2:
            model = with_rate_limit(model, Limiter(in_flight=2 if node.hedges else 1))
        if node.hedges and chance.random() < 0.7:
            model = with_hedge(model, 0.5, first_seconds=chance.choice([0, 0.3, 2]))
        if chance.random() < 0.5:
            model = with_retries(model, attempts=3, jitter=chance)
        if chance.random() < 0.2:
            table = PriceTable.shipped().with_prices({name: leaf.price})
            model = with_prices(model, table)
        return model

    model = wrapped(first)
    if chance.random() < 0.3:
        model = with_fallback(model, wrapped(second))
    return with_retries(model, attempts=2, jitter=chance) if chance.random() < 0.2 else model


def drawn_compaction(chance: random.Random, node: Node) -> Compaction | None:
    """Return a small window for some; a writer of summaries has a price and failures of its own."""
    if chance.random() > 0.1:
        return None
    writer = drawn_model(chance, node) if chance.random() < 0.7 else None
    return Compaction(window=4_000, summarizer=writer)


class World:
    """Trees under budgets, and a journal that survives its processes."""

    def __init__(self, seed: int, workspace: Path, *, has_commands: bool, hedges: bool) -> None:
        self._chance = chance = random.Random(seed)
        self._workspace = workspace
        self._journal = MemoryJournal()
        self._blocks = [Scope(drawn_budget(chance, name)) for name in ("outer", "inner")]
        self._roots = [
            Node(
                chance,
                f"n{number}",
                self._blocks,
                depth=DEPTH,
                has_commands=has_commands,
                hedges=hedges,
            )
            for number in range(chance.randrange(1, 5))
        ]
        self._sessions: dict[str, SessionId | None] = {
            root.name: None for root in self._roots if chance.random() < 0.6
        }
        """The sessions of those roots that are not only run."""
        self._has_crashed = False
        self.requests = 0

    async def play(self) -> list[str]:
        """Run everything to its end, and return what is wrong."""
        chance = self._chance
        outer, inner = (attrs.asdict(it.budget) for it in self._blocks)
        crash_after = chance.randrange(3, 60) if chance.random() < 0.3 else None
        # One block over several processes is one budget.
        with budget(**outer), budget(**inner):
            if crash_after is not None:
                with ignoring_crash():
                    await self._live(CrashingJournal(self._journal, after=crash_after))
            self._has_crashed = crash_after is not None
            await self._live(self._journal, is_first=not self._has_crashed)
        self.requests = self._blocks[0].calls
        return [*self._problems(), *laws_of(self._journal.entries, RULES)]

    async def _live(self, journal: Journal, *, is_first: bool = True) -> None:
        """Be one process: take up what there is, and wait until all have ended."""
        opened = open_orchestrator(journal, rules=RULES, machine=Machine(workspace=self._workspace))
        async with opened as orchestrator, trio.open_nursery() as nursery:
            for root in self._roots:
                if root.name in self._sessions:
                    nursery.start_soon(self._talk, orchestrator, root)
                elif is_first:
                    nursery.start_soon(orchestrator.run, root.agent, "go")
            nursery.start_soon(self._cancel_some, orchestrator)

    async def _talk(self, orchestrator: Orchestrator, root: Node) -> None:
        known = self._sessions[root.name]
        if known not in orchestrator.runs:
            known = None
        async with orchestrator.open_session(root.agent, session=known) as session:
            self._sessions[root.name] = session.id
            if not session.tree[session.tree.root].goal:
                await session.ask("go")
            await session.wait_idle()

    async def _cancel_some(self, orchestrator: Orchestrator) -> None:
        await trio.lowlevel.checkpoint()
        for _ in range(self._chance.randrange(4)):
            await trio.sleep(SECONDS * self._chance.random())
            tasks = [task for run in orchestrator.runs for task in orchestrator.tree(run)]
            if tasks:
                await orchestrator.cancel(self._chance.choice(tasks))

    def _problems(self) -> Iterator[str]:
        scopes = {
            scope.budget.name: scope
            for root in self._roots
            for node in root.below()
            for scope in node.scopes
        }
        for scope in scopes.values():
            yield from scope.problems
            # An answer that was told, and not yet durable, is as good as none.
            scope.is_told = scope.is_told and not self._has_crashed
        ledger = Ledger(RULES)
        for entry in self._journal.entries:
            ledger.fold(entry)
        # A process may die before it knows of a session that its journal has.
        booked = dict.fromkeys(scopes, NOTHING)
        for account in ledger.accounts.values():
            booked[account.budget.name] += account.used
        for name, scope in scopes.items():
            yield from scope.compare(booked[name])


@contextmanager
def ignoring_crash() -> Generator[None]:
    """Go on after a process that has died, as its journal did."""
    try:
        yield
    except CrashedError:
        pass
    except BaseExceptionGroup as exc:
        _, rest = exc.split((CrashedError, ClosedError, trio.Cancelled))
        if rest is not None:
            raise


def play(
    seed: int, workspace: Path, *, has_commands: bool = False, hedges: bool = False
) -> tuple[int, list[str]]:
    """Play one round; return the number of requests at the provider, and what is wrong.

    Args:
        seed: makes the round what it is, up to the order in which trio runs tasks.
        workspace: where commands run.
        has_commands: agents start commands that ignore SIGTERM, which takes real time.
        hedges: slow calls are repeated.
    """
    world = World(seed, workspace, has_commands=has_commands, hedges=hedges)
    clock = trio.testing.MockClock(
        rate=REAL_TIME_RATE if has_commands else 0,
        autojump_threshold=math.inf if has_commands else 0,
    )
    problems = trio.run(world.play, clock=clock)
    return world.requests, problems


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.orchestrator.budget_trees", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--hedge", action="store_true", help="repeat slow calls")
    asked = parser.parse_args()
    requests = 0
    broken: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(asked.seed, asked.seed + asked.rounds):
            is_real = seed % ROUNDS_FOR_EACH_WITH_COMMANDS == 0
            made, problems = play(seed, Path(folder), has_commands=is_real, hedges=asked.hedge)
            requests += made
            if problems:
                broken.append(seed)
                print(f"seed {seed}:", *problems[:9], sep="\n    ", flush=True)
    print(
        f"{asked.rounds - len(broken)} of {asked.rounds} trees kept their budgets:"
        f" {requests} requests at the provider"
    )
    if broken:
        print(f"seeds: {', '.join(map(str, broken))}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
