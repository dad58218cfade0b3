"""Simulated models: each answer and its duration are drawn from a seed.

The draws of a task depend on the seed, its agent, its goal and its parent, not on the order of
tasks. Trio shuffles steps that are due at the same time; so each step of a task has a short random
delay, and the clock gives the same order every time.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import trio
from msgspec.structs import replace

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    Failure,
    Model,
    ModelError,
    ModelRequest,
    Pipeline,
    Price,
    Tool,
    ToolCall,
    Usage,
)
from orchestrator.agents.feature_checks import MEMORY
from orchestrator.agents.models.token_estimate import OUTPUT_ALLOWANCE, estimated_tokens
from orchestrator.agents.models.wrappers.attempts import Attempts, SecondCall
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper
from orchestrator.delegation import ASK_PARENT, TaskRecord
from orchestrator.delegation.board_tool import BOARD
from orchestrator.delegation.job_tool import JOB_TOOL
from orchestrator.products.history.simulation.past_answers import PastAnswer
from orchestrator.products.history.simulation.schema_sample import sample_value
from orchestrator.products.history.simulation.settings import SimulationSettings
from orchestrator.products.history.simulation.wait_chain import Wait, WaitInterval

JITTER_SECONDS: Final = 0.01
"""The largest delay of a step, in seconds."""
SMALL_JITTER_SECONDS: Final = 1e-4
DELEGATE_TASK: Final = "delegate_task"
DELEGATION_TOOLS: Final = frozenset({DELEGATE_TASK, "task"})
CHARACTERS_PER_TOKEN: Final = 4
FILLER: Final = "What a model would have said stands here. " * 100
FAILURES: Final = (Failure.RATE_LIMIT, Failure.OVERLOADED, Failure.TIMEOUT)
LONGEST_RETRY_AFTER: Final = 10.0
TIMEOUT_FACTOR: Final = 3.0
"""The time until a timeout, as a multiple of the time for an answer."""


def seeded_random(*words: str) -> random.Random:
    """Return a random number generator seeded with these words."""
    return random.Random("/".join(words))  # noqa: S311 (a simulation is repeated)


class SimulatedTask:
    """The random draws of one task, and its waits."""

    def __init__(self, key: str, record: TaskRecord) -> None:
        self.key = key
        self.record = record
        self.rng = seeded_random(key)
        self.waits: list[WaitInterval] = []
        self.failures: Counter[str] = Counter()
        self.requested_at = 0.0
        """The time at which the current model call was requested."""
        self.queued_since = 0.0
        self.failed_at: float | None = None

    async def sleep_jitter(self, rng: random.Random | None = None) -> None:
        """Delay a step to its own moment."""
        await trio.sleep(JITTER_SECONDS * (rng or self.rng).random())

    async def sleep_small_jitter(self, *about: str) -> None:
        """Delay a request of a program to its own moment.

        The delay is short, since a program may send thousands of requests one after the other.
        """
        await trio.sleep(SMALL_JITTER_SECONDS * seeded_random(self.key, *about).random())

    def add_wait(self, wait: Wait, since: float) -> None:
        if (now := trio.current_time()) > since:
            self.waits.append(WaitInterval(since, now, wait))


class TaskModelWrapper(ModelWrapper):
    """A model wrapper for one simulated task."""

    def __init__(self, task: SimulatedTask, model: Model) -> None:
        super().__init__(model)
        self._task = task

    def count_tokens(self, request: ModelRequest) -> int | None:
        return _input_tokens(request)


class BeforeBudget(TaskModelWrapper):
    """Records the time at which a call begins to wait for its budget."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        if self._task.record.accounts:
            # The first call is the first to reserve.
            await self._task.sleep_jitter()
        self._task.requested_at = trio.current_time()
        return await self._model.answer(request)


class AfterBudget(TaskModelWrapper):
    """Records the time at which a call has its reservation."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self._task.add_wait(Wait.BUDGET, self._task.requested_at)
        self._task.failed_at = None
        # One booked call may release several waiting calls at once.
        await self._task.sleep_jitter()
        if request.attempts is not None:
            attempts = _TimedAttempts(self._task, request.attempts)
            request = replace(request, attempts=attempts)
        return await self._model.answer(request)


class _TimedAttempts:
    """Records the time at which a further call waits for its budget (`Attempts`)."""

    def __init__(self, task: SimulatedTask, attempts: Attempts) -> None:
        self._task = task
        self._attempts = attempts

    def failed(self, error: ModelError, then: str = "") -> None:
        self._attempts.failed(error, then)

    def helped(self, usage: Usage) -> None:
        self._attempts.helped(usage)

    async def begin_second(self) -> SecondCall | None:
        return await self._attempts.begin_second()

    async def begin(self, request: ModelRequest, model: Model | None = None) -> ModelRequest:
        if self._task.failed_at is not None:
            self._task.add_wait(Wait.PAUSE, self._task.failed_at)
            self._task.failed_at = None
        if self._task.record.accounts:
            await self._task.sleep_jitter()
        began = trio.current_time()
        request = await self._attempts.begin(request, model)
        self._task.add_wait(Wait.BUDGET, began)
        await self._task.sleep_jitter()
        return request


class BeforeLimiter(TaskModelWrapper):
    """Records the time at which an attempt queues for a provider."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        if self._task.failed_at is not None:
            self._task.add_wait(Wait.PAUSE, self._task.failed_at)
        self._task.queued_since = trio.current_time()
        return await self._model.answer(request)


class RandomModel:
    """Draws its answers: tool calls first, then delegations, then text."""

    def __init__(
        self,
        name: str,
        price: Price | None,
        task: SimulatedTask,
        agent: Agent[Any],
        settings: SimulationSettings,
    ) -> None:
        self.name = name
        self.price = price
        self._task = task
        self._agent = agent
        self._settings = settings

    def count_tokens(self, request: ModelRequest) -> int:
        return _input_tokens(request)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        task, settings = self._task, self._settings
        task.add_wait(Wait.PROVIDER, task.queued_since)
        began = trio.current_time()
        past = self._drawn(request)
        seconds = settings.draw(settings.model_seconds, task.rng) if past is None else past.seconds
        if task.rng.random() < settings.failure_rate:
            await self._fail(began, seconds)
        try:
            await trio.sleep(seconds)
        finally:
            task.add_wait(Wait.MODEL, began)
        if past is None:
            return self._message(request)
        return AssistantMessage(past.text, usage=past.usage, model=self.name)

    def _drawn(self, request: ModelRequest) -> PastAnswer | None:
        """Return an earlier answer of the agent, if there is one that fits the request."""
        past = self._settings.past.get(self._agent.name)
        if not past:
            return None
        drawn = self._task.rng.choice(past)
        return drawn if request.output is None or _is_json(drawn.text) else None

    async def _fail(self, began: float, seconds: float) -> None:
        task = self._task
        kind = task.rng.choice(FAILURES)
        retry_after = None
        if kind is Failure.RATE_LIMIT:
            retry_after = task.rng.uniform(0, LONGEST_RETRY_AFTER)
        task.failures[kind.value] += 1
        # A refusal comes at once, and a timeout late.
        late = TIMEOUT_FACTOR if kind is Failure.TIMEOUT else task.rng.random()
        try:
            await trio.sleep(seconds * late)
        finally:
            task.failed_at = trio.current_time()
            task.add_wait(Wait.FAILURES, began)
        raise ModelError(f"{self.name} was simulated to fail", kind=kind, retry_after=retry_after)

    def _message(self, request: ModelRequest) -> AssistantMessage:
        rng, settings = self._task.rng, self._settings
        tokens = max(1, round(settings.draw(settings.output_tokens, rng)))
        calls = self._calls(request)
        if calls:
            text = ""
            tokens = max(tokens, sum(map(_length, calls)) // CHARACTERS_PER_TOKEN)
        elif request.output is None:
            text = _filler_text(tokens * CHARACTERS_PER_TOKEN)
        else:
            text = self._typed(request.output)
            tokens = max(tokens, len(text) // CHARACTERS_PER_TOKEN)
        if request.max_output is not None and tokens > request.max_output:
            raise ModelError(
                f"the answer of {self.name} is longer than it may be",
                kind=Failure.CUT_OFF,
                partial=text,
                usage=self._usage(request, request.max_output),
            )
        return AssistantMessage(text, calls, self._usage(request, tokens), self.name)

    def _typed(self, schema: Mapping[str, Any]) -> str:
        length = self._settings.fan_out.draw(self._task.record.depth, self._task.rng)
        return msgspec.json.encode(sample_value(schema, length=length)).decode()

    def _usage(self, request: ModelRequest, written: int) -> Usage:
        read = _input_tokens(request)
        cost = 0
        if self.price is not None:
            cost = self.price.cost_of(input_tokens=read, output_tokens=written)
        return Usage(
            calls=1,
            input_tokens=read,
            output_tokens=written,
            micro_usd=cost,
            unpriced=int(self.price is None),
        )

    def _calls(self, request: ModelRequest) -> tuple[ToolCall, ...]:
        """Return the calls of the next answer: the agent's own tools first, then delegations."""
        # Look at the whole transcript: the request may contain a compacted one.
        made = {
            call.name
            for message in self._task.record.transcript
            if isinstance(message, AssistantMessage)
            for call in message.calls
        }
        position = len(self._task.record.transcript)
        # A question to the parent would be a model call, which is not drawn here; and a simulation
        # begins no jobs, and writes no memory.
        not_own = {*DELEGATION_TOOLS, ASK_PARENT, BOARD, JOB_TOOL, MEMORY}
        own = [it for it in request.tools if it.name not in not_own]
        if own and self._settings.tool_calls and made.isdisjoint(it.name for it in own):
            return tuple(
                ToolCall(
                    tool.name,
                    sample_value(tool.parameters, length=1),
                    id=CallId(f"call_{position}_{index}"),
                )
                for index, tool in enumerate(self._chosen_tools(own))
            )
        if DELEGATE_TASK in made or all(it.name != DELEGATE_TASK for it in request.tools):
            return ()
        return tuple(
            ToolCall(DELEGATE_TASK, {"tasks": tasks}, id=CallId(f"call_{position}_{index}"))
            for index, tasks in enumerate(self._batches())
        )

    def _chosen_tools(self, tools: list[Tool]) -> list[Tool]:
        """Return the tools to call, each once if there are enough."""
        count = self._settings.tool_calls
        if count <= len(tools):
            return self._task.rng.sample(tools, count)
        return self._task.rng.choices(tools, k=count)

    def _batches(self) -> Iterator[list[dict[str, str]]]:
        """Yield the tasks to delegate, in batches as large as one call allows."""
        task, team = self._task.record, self._agent.delegates
        if not team and task.is_copy:
            return  # a copy does the work itself
        count = self._settings.fan_out.draw(task.depth, self._task.rng)
        first = self._task.rng.randrange(len(team)) if team else 0
        tasks: list[dict[str, str]] = []
        for index in range(count):
            about = f"part {index + 1} of {count}"
            if not team:
                tasks.append({"goal": about})
                continue
            agent = team[(first + index) % len(team)]
            goal = goal_for(agent, self._settings)
            # Tasks with the same goal differ by their context.
            work = {"goal": goal, "context": about} if goal else {"goal": about}
            tasks.append({**work, "agent": agent.name})
        most = max(1, self._settings.rules.children_per_call)
        for begin in range(0, count, most):
            yield tasks[begin : begin + most]


def goal_for(agent: Agent[Any], settings: SimulationSettings) -> str:
    """Return a sample goal for an agent with a typed input; an empty text for any other agent."""
    if not isinstance(agent, Pipeline) or agent.takes_text:
        return ""
    try:
        schema = msgspec.json.schema(agent.input, ref_template="#/$defs/{name}")
    except TypeError:
        return ""
    _, most = settings.fan_out.levels[0]
    return msgspec.json.encode(sample_value(schema, length=most)).decode()


def _input_tokens(request: ModelRequest) -> int:
    """Return the number of tokens of a request."""
    return estimated_tokens(request) - OUTPUT_ALLOWANCE


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def _length(call: ToolCall) -> int:
    return len(call.name) + len(str(call.arguments))


def _filler_text(length: int) -> str:
    return (FILLER * (length // len(FILLER) + 1))[:length]
