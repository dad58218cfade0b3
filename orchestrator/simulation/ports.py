"""Who plays which part in a simulation: dice for models, nobody for tools, ourselves for the rest.

Nothing but models and tools is replaced: agents, turns, delegation, room, budgets, limiters,
retries and prices are those of a real run.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs
import trio

from agents import (
    Agent,
    AssistantMessage,
    Model,
    ModelRequest,
    Pipeline,
    Price,
    Tool,
    ToolCall,
    ToolResult,
)
from agents.models.wrappers.compaction import compacting
from agents.models.wrappers.fallback import fallback
from agents.models.wrappers.prices import PriceTable
from agents.models.wrappers.rate_limit import Limiter, limited
from agents.models.wrappers.retry import retrying
from delegation import Origin, TaskId, TaskRecord
from orchestrator.engine.delegator import OrchestratorDelegator
from orchestrator.execution.agent_registry import AgentRegistry
from orchestrator.execution.local import LocalExecutor
from orchestrator.journal.bookkeeper import Bookkeeper
from orchestrator.pipelines.child import Child
from orchestrator.pipelines.runner import PipelineRun
from orchestrator.simulation.random_model import (
    AfterBudget,
    BeforeBudget,
    BeforeLimiter,
    RandomModel,
    SimulatedTask,
    seeded_random,
)
from orchestrator.simulation.settings import SimulationSettings
from orchestrator.simulation.wait_chain import Wait

OutputT = TypeVar("OutputT")


class SimulatedAgentRegistry(AgentRegistry):
    """Lets dice speak for models and tools."""

    runs_tools = False

    def __init__(self, settings: SimulationSettings, seed: int) -> None:
        super().__init__({})
        self._settings = settings
        self._seed = seed
        self._table = settings.prices or PriceTable.shipped()
        self._provider_limiters: dict[str, Limiter] = {}
        self._keys: Counter[str] = Counter()
        self.simulated_tasks: dict[TaskId, SimulatedTask] = {}
        self.unpriced: set[str] = set()
        """The models of which nobody knows what they cost."""

    def _bare(self, name: str) -> Model:
        return _UnusedModel(name)

    def simulated_task(self, task: TaskRecord) -> SimulatedTask:
        """Return what a task draws. It is the same for the same work, whoever comes first."""
        if task.id not in self.simulated_tasks:
            if task.parent is None or task.request is None:
                key = f"{self._seed}"
            else:
                asked = task.request
                above = self.simulated_task(task.parent).key
                work = f"{above}/{asked.agent}/{asked.goal}\n{asked.context}"
                key = hashlib.sha256(work.encode(errors="surrogatepass")).hexdigest()
            # Of those who do the very same, it does not matter which is which.
            self._keys[key] += 1
            self.simulated_tasks[task.id] = SimulatedTask(
                f"{key}/{self._keys[key]}", task
            )
        return self.simulated_tasks[task.id]

    def model_for(
        self, task: TaskRecord, agent: Agent[Any], paid: Callable[[Model], Model]
    ) -> Model:
        part = self.simulated_task(task)
        return BeforeBudget(
            part, paid(AfterBudget(part, self._simulated_model(agent, part)))
        )

    def tools_for(self, task: TaskRecord, tools: Sequence[Tool]) -> Sequence[Tool]:
        own = {id(tool) for tool in self.agent_of(task).tools}
        part = self.simulated_task(task)
        return [
            attrs.evolve(
                tool,
                run=partial(
                    self._run_simulated_tool if id(tool) in own else _run_real_tool,
                    part,
                    tool,
                ),
            )
            for tool in tools
        ]

    async def _run_simulated_tool(
        self, simulated: SimulatedTask, tool: Tool, call: ToolCall
    ) -> str:
        """Answer for a tool that is not run."""
        dice = _call_rng(simulated, call)
        await simulated.sleep_jitter(dice)
        began = trio.current_time()
        try:
            await trio.sleep(self._settings.draw(self._settings.tool_seconds, dice))
        finally:
            simulated.add_wait(Wait.TOOL, began)
        return f"{tool.name} was simulated"

    def _simulated_model(self, agent: Agent[Any], simulated: SimulatedTask) -> Model:
        """Return who plays the model of an agent: limited, asked again and priced as usual."""
        model = self._named_model(agent.model, agent, simulated)
        if (compaction := agent.compaction) is None:
            return model
        summarizer = compaction.summarizer
        return compacting(
            model,
            window=compaction.window,
            summarizer=None
            if summarizer is None
            else self._named_model(summarizer, agent, simulated),
            keep_last=compaction.keep_last,
        )

    def _named_model(
        self, model: str | Model, agent: Agent[Any], simulated: SimulatedTask
    ) -> Model:
        if not isinstance(model, str):
            return self._random_model(
                model.name, getattr(model, "price", None), agent, simulated
            )
        names = [name.strip() for name in model.split("|")]
        return fallback(
            *(
                self._random_model(it, self._table.price_of(it), agent, simulated)
                for it in names
            )
        )

    def _random_model(
        self,
        name: str,
        price: Price | None,
        agent: Agent[Any],
        simulated: SimulatedTask,
    ) -> Model:
        price = self._settings.price or price
        if price is None:
            self.unpriced.add(name)
        provider = name.partition(":")[0].removesuffix("-responses")
        if provider not in self._provider_limiters:
            self._provider_limiters[provider] = Limiter(
                **attrs.asdict(self._settings.provider)
            )
        player = RandomModel(name, price, simulated, agent, self._settings)
        line = BeforeLimiter(
            simulated, limited(player, self._provider_limiters[provider])
        )
        return retrying(line, jitter=simulated.rng)


async def _run_real_tool(
    simulated: SimulatedTask, tool: Tool, call: ToolCall
) -> str | ToolResult:
    """Run a tool of ours, which is real."""
    await simulated.sleep_jitter(_call_rng(simulated, call))
    return await tool.run(call)


def _call_rng(simulated: SimulatedTask, call: ToolCall) -> random.Random:
    # Calls of one answer run at the same time, so each has its own.
    return seeded_random(simulated.key, call.id)


class _SimulatedPipelineRun(PipelineRun):
    """Lets a program ask for everything at a moment of its own."""

    def __init__(self, simulated: SimulatedTask, *args: Any) -> None:
        super().__init__(*args)
        self._simulated = simulated

    async def start_child(
        self, agent: Agent[OutputT, Any], value: Any
    ) -> Child[OutputT]:
        await self._simulated.sleep_small_jitter(agent.name, agent.as_goal(value))
        return await super().start_child(agent, value)


class SimulatedDelegator(OrchestratorDelegator):
    """Starts every child at a moment of its own."""

    def __init__(
        self,
        registry: SimulatedAgentRegistry,
        book: Bookkeeper,
        executor: LocalExecutor,
        new_task_id: Callable[[], TaskId],
    ) -> None:
        super().__init__(book, executor, new_task_id)
        self._registry = registry

    async def run_pipeline(
        self, pipeline: Pipeline[Any, Any], record: TaskRecord, origin: Origin
    ) -> str:
        part = self._registry.simulated_task(record)
        performance = _SimulatedPipelineRun(part, record, origin, self._book, self)
        return await performance.run(pipeline)

    async def run_child(self, task: TaskId) -> None:
        part = self._registry.simulated_task(self._book.ledger.tasks[task])
        # Whoever is cancelled meanwhile still has to be settled by who runs it.
        with trio.CancelScope(shield=True):
            await part.sleep_jitter()
        await super().run_child(task)


@attrs.frozen
class _UnusedModel:
    """A model that is only known by its name."""

    name: str

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        raise AssertionError("nobody asks a real model in a simulation")
