"""`python -m tests.orchestrator.script_budgets --rounds 1000`: budgets of generated scripts.

Scripts with gather, race, loops, functions, try and budgets of single calls run under one budget,
on models that fail and break off; some runs are cancelled, and some processes die and are started
again. The provider counts what it is asked and what it could bill. At no moment may that exceed a
budget, in the end no account may have booked less, and no call may be under way after a cancel.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

import attrs
import trio
import trio.testing
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from orchestrator import MemoryJournal, budget, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    ModelRequest,
    Price,
    ToolCall,
    Transcript,
)
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.agents.script import Script, script_agent
from orchestrator.delegation import Ledger, Rules
from orchestrator.delegation.events import TurnEnded, TurnStarted
from orchestrator.kernel.journal.journal import Journal
from orchestrator.testing import CrashingJournal, laws_of
from tests.kit import facts
from tests.orchestrator.budget_trees import ProviderModel, Scope, ignoring_crash

RULES: Final = Rules()
DEPTH: Final = 3
SLOW: Final = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
AGENTS: Final = ("worker", "helper")
AMOUNTS: Final[Mapping[str, Sequence[Any]]] = {
    "calls": [1, 3, 9],
    "tokens": [20_000, 100_000],
    "usd": [0.1, 0.5, 2],
}


@attrs.frozen
class Round:
    """A script, its budgets, and its fate."""

    code: str
    budgets: Mapping[str, Budget]
    """The budgets of calls, by the name of their place in the script."""
    outer: Budget
    seed: int
    cancel_after: float | None
    crash_after: int | None


class _Writer:
    """Writes a script, drawing each statement."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.budgets: dict[str, Budget] = {}
        self._places = 0

    def block(self, depth: int, loops: tuple[str, ...] = ()) -> list[str]:
        statements = [self.statement(depth, loops) for _ in range(self._draw(st.integers(1, 3)))]
        return [line for lines in statements for line in lines]

    def statement(self, depth: int, loops: tuple[str, ...]) -> list[str]:
        kinds = ["call", "gather", "race", "left"]
        kinds += ["for", "try", "if", "function"] if depth else []
        match self._draw(st.sampled_from(kinds)):
            case "gather":
                lines = [f"x = await gather({self.calls(loops)})"]
            case "race":
                lines = [f"x = await race({self.calls(loops)})"]
            case "left":
                lines = ["x = await budget_left()"]
            case "for":
                name = f"i{len(loops)}"
                times = self._draw(st.integers(0, 3))
                inner = self.block(depth - 1, (*loops, name))
                lines = [f"for {name} in range({times}):", *indented(inner)]
            case "try":
                inner, other = self.block(depth - 1, loops), self.block(depth - 1, loops)
                lines = ["try:", *indented(inner), "except RuntimeError:", *indented(other)]
            case "if":
                inner, other = self.block(depth - 1, loops), self.block(depth - 1, loops)
                lines = ["if len(str(x)) % 2:", *indented(inner), "else:", *indented(other)]
            case "function":
                self._places += 1
                name = f"f{self._places}"
                inner = self.block(depth - 1, loops)
                both = f"{name}({', '.join(loops)})"
                head = f"async def {name}({', '.join(loops)}):"
                lines = [head, "    x: Any = 0", *indented(inner), f"x = await gather({both})"]
            case _:
                lines = [f"x = await {self.call(loops)}"]
        return lines

    def calls(self, loops: tuple[str, ...]) -> str:
        return ", ".join(self.call(loops) for _ in range(self._draw(st.integers(1, 4))))

    def call(self, loops: tuple[str, ...]) -> str:
        self._places += 1
        place = f"c{self._places}"
        goal = f'f"{place}' + "".join(f"-{{{it}}}" for it in loops) + '"'
        given_budget = ""
        if self._draw(st.booleans()):
            kind = self._draw(st.sampled_from([*AMOUNTS]))
            amount: Any = self._draw(st.sampled_from(AMOUNTS[kind]))
            self.budgets[place] = Budget(**{kind: amount})
            given_budget = f', budget={{"{kind}": {amount}}}'
        return f'agent("{self._draw(st.sampled_from(AGENTS))}", {goal}{given_budget})'


def indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    writer = _Writer(draw)
    lines = ["from typing import Any", "x: Any = 0", *writer.block(DEPTH)]
    outer = {kind: draw(st.sampled_from([None, *amounts])) for kind, amounts in OUTER.items()}
    return Round(
        "\n".join(lines),
        writer.budgets,
        Budget(name="outer", **outer),
        draw(st.integers(0, 2**32)),
        draw(st.none() | st.floats(0, 30)),
        draw(st.none() | st.integers(3, 60)),
    )


OUTER: Final[Mapping[str, Sequence[Any]]] = {
    "calls": [2, 8, 30],
    "tokens": [50_000, 300_000],
    "usd": [0.1, 1, 5],
}


class Provider:
    """Counts the requests of all agents, by the calls of the script that caused them."""

    def __init__(self, round_: Round) -> None:
        self.chance = random.Random(round_.seed)
        self.outer = Scope(round_.outer)
        self.by_goal: dict[str, Scope] = {}
        """The scope of each call with a budget, by its goal."""
        self.under_way = 0
        self._budgets = round_.budgets

    def scopes_of(self, goal: str) -> Sequence[Scope]:
        own = self._budgets.get(goal.partition("-")[0])
        if own is None:
            return (self.outer,)
        return (self.outer, self.by_goal.setdefault(goal, Scope(own)))


@attrs.frozen
class _OneAnswer:
    """A node of a tree whose answers call nothing (`ProviderModel`)."""

    scopes: Sequence[Scope]
    chance: random.Random

    def next_step(self, request: ModelRequest) -> tuple[tuple[ToolCall, ...], int]:
        return (), self.chance.choice([1, 20, 500, 6_000])


class CountedModel:
    """A model at the provider."""

    def __init__(self, provider: Provider, name: str) -> None:
        self.name = name
        self._provider = provider
        self.price = Price(input=3, output=provider.chance.choice([1, 15]))

    def count_tokens(self, request: ModelRequest) -> int:
        return self._at_provider(request.transcript).count_tokens(request)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        provider = self._provider
        provider.under_way += 1
        try:
            return await self._at_provider(request.transcript).answer(request)
        finally:
            provider.under_way -= 1

    def _at_provider(self, transcript: Transcript) -> ProviderModel:
        chance = self._provider.chance
        node: Any = _OneAnswer(self._provider.scopes_of(transcript[0].text), chance)
        model = ProviderModel(chance, node, self.name)
        model.price = self.price
        return model


async def play(round_: Round) -> list[str]:
    """Run a script to its end, and return what is wrong."""
    provider = Provider(round_)
    chance = provider.chance
    agents = [
        Agent(it, model=with_retries(CountedModel(provider, it), attempts=2, jitter=chance))
        for it in AGENTS
    ]
    script = script_agent(agents)
    journal = MemoryJournal()

    async def live(opened: Journal) -> None:
        """Be one process, until the script has ended or is cancelled."""
        patience = round_.cancel_after
        async with open_orchestrator(opened, rules=RULES) as orchestrator:
            with nullcontext() if patience is None else trio.move_on_after(patience):
                begun = facts(journal.entries, TurnStarted)
                if not begun:
                    await orchestrator.run(script, Script(code=round_.code))
                elif not facts(journal.entries, TurnEnded):
                    await orchestrator.resume(script, begun[0].session)
            if provider.under_way:
                provider.outer.problems.append("a call is under way after the end of the script")

    with budget(**attrs.asdict(round_.outer)):
        if round_.crash_after is not None:
            with ignoring_crash():
                await live(CrashingJournal(journal, after=round_.crash_after))
        await live(journal)
    return [*_problems(provider, journal, round_), *laws_of(journal.entries, RULES)]


def _problems(provider: Provider, journal: MemoryJournal, round_: Round) -> Iterator[str]:
    ledger = Ledger(RULES)
    for entry in journal.entries:
        ledger.fold(entry)
    scopes = {"outer": provider.outer, **provider.by_goal}
    for scope in scopes.values():
        yield from scope.problems
        # An answer that was told, and not yet durable, is as good as none.
        scope.is_told = scope.is_told and round_.crash_after is None
    booked = {it.budget.name: it.used for it in ledger.accounts.values()}
    if "outer" in booked:
        yield from provider.outer.compare(booked["outer"])
    for record in ledger.tasks.values():
        request = record.request
        if request is not None and request.goal in provider.by_goal:
            yield from provider.by_goal[request.goal].compare(record.accounts[-1].used)
        if record.is_running:
            yield f"{record.path} runs after the end of the script"


def play_in_virtual_time(round_: Round) -> list[str]:
    return trio.run(play, round_, clock=trio.testing.MockClock(autojump_threshold=0))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.orchestrator.script_budgets")
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    played = 0

    @seed(asked.seed)
    @settings(
        max_examples=asked.rounds,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=SLOW,
    )
    @given(rounds())
    def check(round_: Round) -> None:
        nonlocal played
        played += 1
        assert play_in_virtual_time(round_) == []

    check()
    print(f"{played} scripts kept their budgets")
    return 0


if __name__ == "__main__":
    sys.exit(main())
