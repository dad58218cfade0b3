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
)
from agents.models.wrappers.compaction import compacting
from agents.models.wrappers.fallback import fallback
from agents.models.wrappers.prices import PriceTable
from agents.models.wrappers.rate_limit import Limiter, limited
from agents.models.wrappers.retry import retrying
from delegation import Origin, TaskId, TaskRecord
from orchestrator.engine.delegator import OrchestratorDelegator
from orchestrator.execution.agent_registry import Roster
from orchestrator.execution.local import Acting
from orchestrator.journal.bookkeeper import Bookkeeper
from orchestrator.pipelines.child import Child
from orchestrator.pipelines.runner import Performance
from orchestrator.simulation.random_model import (
    Arriving,
    Entering,
    InLine,
    Part,
    Player,
    dice_for,
)
from orchestrator.simulation.settings import SimulationSettings
from orchestrator.simulation.wait_chain import Wait

OutputT = TypeVar("OutputT")


class SimulatedRoster(Roster):
    """Lets dice speak for models and tools."""

    runs_tools = False

    def __init__(self, settings: SimulationSettings, seed: int) -> None:
        super().__init__({})
        self._settings = settings
        self._seed = seed
        self._table = settings.prices or PriceTable.shipped()
        self._lines: dict[str, Limiter] = {}
        self._keys: Counter[str] = Counter()
        self.parts: dict[TaskId, Part] = {}
        self.unpriced: set[str] = set()
        """The models of which nobody knows what they cost."""

    def _bare(self, name: str) -> Model:
        return _Nobody(name)

    def part_of(self, task: TaskRecord) -> Part:
        """Return what a task draws. It is the same for the same work, whoever comes first."""
        if task.id not in self.parts:
            if task.parent is None or task.request is None:
                key = f"{self._seed}"
            else:
                asked = task.request
                above = self.part_of(task.parent).key
                work = f"{above}/{asked.agent}/{asked.goal}\n{asked.context}"
                key = hashlib.sha256(work.encode(errors="surrogatepass")).hexdigest()
            # Of those who do the very same, it does not matter which is which.
            self._keys[key] += 1
            self.parts[task.id] = Part(f"{key}/{self._keys[key]}", task)
        return self.parts[task.id]

    def model_for(
        self, task: TaskRecord, agent: Agent[Any], paid: Callable[[Model], Model]
    ) -> Model:
        part = self.part_of(task)
        return Entering(part, paid(Arriving(part, self._cast(agent, part))))

    def tools_for(self, task: TaskRecord, tools: Sequence[Tool]) -> Sequence[Tool]:
        own = {id(tool) for tool in self.agent_of(task).tools}
        part = self.part_of(task)
        return [
            attrs.evolve(
                tool,
                run=partial(self._pretended if id(tool) in own else _run, part, tool),
            )
            for tool in tools
        ]

    async def _pretended(self, part: Part, tool: Tool, call: ToolCall) -> str:
        """Answer for a tool that is not run."""
        dice = _dice(part, call)
        await part.take_a_moment(dice)
        began = trio.current_time()
        try:
            await trio.sleep(self._settings.draw(self._settings.tool_seconds, dice))
        finally:
            part.waited(Wait.TOOL, began)
        return f"{tool.name} was simulated"

    def _cast(self, agent: Agent[Any], part: Part) -> Model:
        """Return who plays the model of an agent: limited, asked again and priced as usual."""
        model = self._named(agent.model, agent, part)
        if (compaction := agent.compaction) is None:
            return model
        summarizer = compaction.summarizer
        return compacting(
            model,
            window=compaction.window,
            summarizer=None
            if summarizer is None
            else self._named(summarizer, agent, part),
            keep_last=compaction.keep_last,
        )

    def _named(self, model: str | Model, agent: Agent[Any], part: Part) -> Model:
        if not isinstance(model, str):
            return self._player(model.name, getattr(model, "price", None), agent, part)
        names = [name.strip() for name in model.split("|")]
        return fallback(
            *(self._player(it, self._table.price_of(it), agent, part) for it in names)
        )

    def _player(
        self, name: str, price: Price | None, agent: Agent[Any], part: Part
    ) -> Model:
        price = self._settings.price or price
        if price is None:
            self.unpriced.add(name)
        provider = name.partition(":")[0].removesuffix("-responses")
        if provider not in self._lines:
            self._lines[provider] = Limiter(**attrs.asdict(self._settings.provider))
        player = Player(name, price, part, agent, self._settings)
        line = InLine(part, limited(player, self._lines[provider]))
        return retrying(line, jitter=part.dice)


async def _run(part: Part, tool: Tool, call: ToolCall) -> str:
    """Run a tool of ours, which is real."""
    await part.take_a_moment(_dice(part, call))
    return await tool.run(call)


def _dice(part: Part, call: ToolCall) -> random.Random:
    # Calls of one answer run at the same time, so each has its own.
    return dice_for(part.key, call.id)


class _Performance(Performance):
    """Lets a program ask for everything at a moment of its own."""

    def __init__(self, part: Part, *args: Any) -> None:
        super().__init__(*args)
        self._part = part

    async def begin(self, agent: Agent[OutputT, Any], value: Any) -> Child[OutputT]:
        await self._part.take_a_blink(agent.name, agent.as_goal(value))
        return await super().begin(agent, value)


class SimulatedDelegator(OrchestratorDelegator):
    """Starts every child at a moment of its own."""

    def __init__(
        self,
        roster: SimulatedRoster,
        book: Bookkeeper,
        acting: Acting,
        new_task_id: Callable[[], TaskId],
    ) -> None:
        super().__init__(book, acting, new_task_id)
        self._roster = roster

    async def perform(
        self, pipeline: Pipeline[Any, Any], record: TaskRecord, origin: Origin
    ) -> str:
        part = self._roster.part_of(record)
        performance = _Performance(part, record, origin, self._book, self)
        return await performance.play(pipeline)

    async def run_child(self, task: TaskId) -> None:
        part = self._roster.part_of(self._book.ledger.tasks[task])
        # Whoever is cancelled meanwhile still has to be settled by who runs it.
        with trio.CancelScope(shield=True):
            await part.take_a_moment()
        await super().run_child(task)


@attrs.frozen
class _Nobody:
    """A model that is only known by its name."""

    name: str

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        raise AssertionError("nobody asks a real model in a simulation")
