"""The agents of a plan: their tools have effects outside, their models ask the provider."""

import datetime as dt
import random
from collections.abc import Sequence
from typing import Any, Final

import trio

from orchestrator import TaskFailedError, delegate
from orchestrator.agents import Agent, CallKey, Model, Tool, agent, confirm, tool
from orchestrator.agents.models.model import Price
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.agents.models.wrappers.prices import PriceTable, with_prices
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.agents.tools.terminal import process, terminal
from tests.chaos.fault_points import FaultPoints, FaultyModel
from tests.chaos.life import MICRO_DOLLARS, Life
from tests.chaos.logs import AppendLog
from tests.chaos.plan import Node, Plan, plan_of

PAUSE: Final = 0.004
PRICES: Final = PriceTable(
    as_of=dt.date(2026, 1, 1),
    source="the provider of the tests",
    models={"openai:chaos": Price(input=MICRO_DOLLARS, output=MICRO_DOLLARS)},
)


def roots(life: Life, points: FaultPoints) -> dict[str, Agent[Any]]:
    """Return the agents of all sessions of a round, by node."""
    plan = plan_of(life.plan)
    bare = OpenAIModel("chaos", key="none", base_url=life.provider)
    # As `ModelResolver` builds it, with shorter waits.
    outer = with_prices(with_retries(bare, base_seconds=0.02), PRICES)
    model = FaultyModel(outer, points, life.arrivals)
    builder = _Builder(plan, life, model, effect_tools(life.effects, points))
    return {node.id: builder.agent(node) for node in plan.roots}


def effect_tools(effects: AppendLog, points: FaultPoints) -> Sequence[Tool]:
    """Return tools that do something outside: they add a line to a log, and it stays there."""

    def write(kind: str, **fields: str) -> None:
        points.reach("before the effect")
        effects.write(kind, **fields)
        points.reach("after the effect")

    @tool
    async def launch(tag: str) -> str:
        """Do what must not be done twice."""
        await trio.sleep(random.uniform(0, PAUSE))
        write("launch", tag=tag)
        await trio.sleep(random.uniform(0, PAUSE))
        return "launched"

    @tool(idempotent=True)
    async def measure(tag: str) -> str:
        """Do what may be done twice."""
        write("measure", tag=tag)
        await trio.sleep(random.uniform(0, PAUSE))
        return f"measured {tag}"

    @tool
    def pay(tag: str, key: CallKey) -> str:
        """Do, in a thread, what the key makes safe."""
        write("pay", tag=tag, key=key)
        return "paid"

    @tool
    async def guarded(tag: str) -> str:
        """Do what a person must allow."""
        write("guarded", tag=tag)
        await trio.sleep(random.uniform(0, PAUSE))
        return "done"

    return launch, measure, pay, guarded, terminal, process


class _Builder:
    def __init__(self, plan: Plan, life: Life, model: Model, tools: Sequence[Tool]) -> None:
        self._plan = plan
        self._life = life
        self._model = model
        self._tools = tuple(tools)

    def agent(self, node: Node) -> Agent[Any]:
        children = [self.agent(child) for child in self._plan.children(node.id)]
        if node.is_program:
            return self._program(node, children)
        return Agent(
            node.id,
            # The provider recognizes the round and the node by this.
            instructions=f"round {self._life.label} node {node.id}",
            model=self._model,
            tools=self._tools,
            delegates=children,
            budget=node.budget,
            on_restart=node.on_restart,
            approve=(confirm("guarded"),),
        )

    def _program(self, node: Node, children: Sequence[Agent[Any]]) -> Agent[Any]:
        @agent(name=node.id, delegates=children)
        async def program(goal: str) -> str:
            """Delegate to all children, one by one."""
            for child in children:
                try:
                    await delegate(child, f"do {child.name}")
                except TaskFailedError:
                    # Some are planned to fail.
                    continue
            return f"done {node.id}/ {goal}"

        return program
