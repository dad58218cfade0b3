"""The ports of a simulated run: models and tools that draw from a seed, steps in a drawn order.

Agents, turns, delegation, slots, budgets, limiters, retries and prices are real.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallKey,
    Model,
    ModelRequest,
    Price,
    Tool,
    ToolCall,
)
from orchestrator.agents.models.wrappers.compaction import with_compaction
from orchestrator.agents.models.wrappers.fallback import with_fallback
from orchestrator.agents.models.wrappers.rate_limit import Limiter, with_rate_limit
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.agents.turn_host import PastChecks
from orchestrator.delegation import TaskId, TaskRecord
from orchestrator.ports.execution import AgentRegistry, ModelResolver
from orchestrator.products.history.simulation.random_model import (
    AfterBudget,
    BeforeBudget,
    BeforeLimiter,
    RandomModel,
    SimulatedTask,
    seeded_random,
)
from orchestrator.products.history.simulation.settings import SimulationSettings
from orchestrator.products.history.simulation.wait_chain import Wait


class SimulatedTasks:
    """The random draws of each task of a simulated run."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._counts: Counter[str] = Counter()
        self.by_id: dict[TaskId, SimulatedTask] = {}

    def of(self, task: TaskRecord) -> SimulatedTask:
        """Return the draws of a task: the same for the same work, in any order of tasks."""
        if task.id not in self.by_id:
            if task.parent is None or task.request is None:
                key = f"{self._seed}"
            else:
                request = task.request
                above = self.of(task.parent).key
                work = f"{above}/{request.agent}/{request.goal}\n{request.context}"
                key = hashlib.sha256(work.encode(errors="surrogatepass")).hexdigest()
            # Tasks with exactly the same work are interchangeable.
            self._counts[key] += 1
            self.by_id[task.id] = SimulatedTask(f"{key}/{self._counts[key]}", task)
        return self.by_id[task.id]


class SimulatedModels:
    """The models of a simulation (`ModelSource`): each answer is drawn from the seed."""

    def __init__(self, settings: SimulationSettings, tasks: SimulatedTasks) -> None:
        self._settings = settings
        self._tasks = tasks
        self._names = ModelResolver({}, connect=_UnusedModel)
        self._provider_limiters: dict[str, Limiter] = {}
        self.unpriced: set[str] = set()
        """The models without a known price."""

    def model_of(self, agent: Agent[Any]) -> Model:
        return self._names.model_of(agent)

    def model_for(
        self, task: TaskRecord, agent: Agent[Any], budgeted: Callable[[Model], Model]
    ) -> Model:
        simulated = self._tasks.of(task)
        model = self._simulated_model(agent, simulated)
        return BeforeBudget(simulated, budgeted(AfterBudget(simulated, model)))

    async def aclose(self) -> None:
        await self._names.aclose()

    def _simulated_model(self, agent: Agent[Any], simulated: SimulatedTask) -> Model:
        """Return the simulated model of an agent: limited, retried and priced as usual."""
        model = self._named_model(agent.model, agent, simulated)
        if (compaction := agent.compaction) is None:
            return model
        summarizer = compaction.summarizer
        return with_compaction(
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
            return self._random_model(model.name, getattr(model, "price", None), agent, simulated)
        names = [name.strip() for name in model.split("|")]
        return with_fallback(
            *(self._random_model(it, self._settings.price_of(it), agent, simulated) for it in names)
        )

    def _random_model(
        self, name: str, price: Price | None, agent: Agent[Any], simulated: SimulatedTask
    ) -> Model:
        price = self._settings.price or price
        if price is None and not self._settings.past.get(agent.name):
            self.unpriced.add(name)
        provider = name.partition(":")[0].removesuffix("-responses")
        if provider not in self._provider_limiters:
            self._provider_limiters[provider] = Limiter(**attrs.asdict(self._settings.provider))
        model = RandomModel(name, price, simulated, agent, self._settings)
        queued = BeforeLimiter(simulated, with_rate_limit(model, self._provider_limiters[provider]))
        return with_retries(queued, jitter=simulated.rng)


class SimulatedTools:
    """The tools of a simulation (`ToolPlace`): own tools do not run, delegation is real."""

    has_effects = False
    resumes_calls = False

    def __init__(
        self, settings: SimulationSettings, tasks: SimulatedTasks, registry: AgentRegistry
    ) -> None:
        self._settings = settings
        self._tasks = tasks
        self._registry = registry

    def takes(self, tool: Tool, task: TaskRecord) -> bool:
        return True

    def past_checks(self, task: TaskRecord) -> PastChecks:
        return lambda _: None

    def open_turn(self, task: TaskRecord, agent: Agent[Any]) -> None:
        return None

    async def run(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord
    ) -> str | ToolResult:
        simulated = self._tasks.of(task)
        # The calls of one answer run at the same time, so each has its own draws.
        rng = seeded_random(simulated.key, call.id)
        await simulated.sleep_jitter(rng)
        own = self._registry.agent_of(task).tools
        if not tool.server and not any(tool is it for it in own):
            return await tool.run(call)
        began = trio.current_time()
        try:
            await trio.sleep(self._settings.draw(self._settings.tool_seconds, rng))
        finally:
            simulated.add_wait(Wait.TOOL, began)
        return f"{tool.name} was simulated"


class SimulatedIds:
    """The ids of a simulation: counted, and as long as real ids, since models read them."""

    def __init__(self) -> None:
        self._count = 0

    def new_task_id(self, parent: TaskId, call: str) -> TaskId:
        del parent, call
        self._count += 1
        return TaskId(f"t_{self._count:016x}")


class SimulatedTiming:
    """The timing of a simulation (`StepTiming`): each step begins at its own moment."""

    def __init__(
        self,
        tasks: SimulatedTasks,
        limit_factor: int,
        watch_process: Callable[[Callable[[], None]], None],
    ) -> None:
        self._tasks = tasks
        self._limit_factor = limit_factor
        self.watch_process = watch_process

    def fan_out_limit(self, limit: int) -> int:
        return limit * self._limit_factor

    async def before_request(
        self, parent: TaskRecord, agent: str, goal: str, held_since: float | None
    ) -> None:
        simulated = self._tasks.of(parent)
        await simulated.sleep_small_jitter(agent, goal)
        if held_since is not None:
            simulated.add_wait(Wait.FAN_OUT, held_since)

    async def before_run(self, task: TaskRecord) -> None:
        # If the task is cancelled meanwhile, its runner must still settle it.
        with trio.CancelScope(shield=True):
            await self._tasks.of(task).sleep_jitter()

    async def after_wait(self) -> None:
        await trio.lowlevel.checkpoint()


@attrs.frozen
class _UnusedModel:
    """A model that is only a name."""

    name: str

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        raise AssertionError("a simulation calls no provider")
