"""The workloads of the gate: delegations and turns with a scripted model."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import trio
import trio.lowlevel

from orchestrator import Orchestrator, agent, delegate, map_each, open_orchestrator, tool
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Model,
    ModelRequest,
    ToolCall,
    ToolMessage,
    Usage,
)
from orchestrator.delegation import Rules, SessionId
from orchestrator.delegation.events import MetadataChanged
from orchestrator.models import Limiter, with_rate_limit
from tests.performance.counting import Calls, counting, fewest

ANY_NUMBER: Final = Rules(children_per_call=1_000_000, depth=250, live_tasks=None, detached=None)
USED: Final = Usage(calls=1, input_tokens=10, output_tokens=10)


class Caller:
    """A model that calls a tool once, if it has a call, and then answers."""

    name = "caller"

    def __init__(self, call: ToolCall | None = None) -> None:
        self._call = call

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        if self._call is not None and not isinstance(request.transcript[-1], ToolMessage):
            return AssistantMessage("", (self._call,), USED, self.name)
        return AssistantMessage("ok", (), USED, self.name)


class CallsOnce(Caller):
    """A model that calls a tool in its first turn only."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        message = await super().answer(request)
        self._call = None
        return message


class Waiter(Caller):
    """A model that answers when an event happens."""

    def __init__(self, event: trio.Event) -> None:
        super().__init__()
        self._event = event

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await self._event.wait()
        return await super().answer(request)


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    await trio.lowlevel.checkpoint()
    return word


def fan_out(
    children: int, child: Agent | None = None, wrapped: Callable[[Model], Model] | None = None
) -> Agent:
    """Return an agent that delegates tasks in one call, and waits for them."""
    wrapped = wrapped or (lambda model: model)
    child = child or Agent("child", instructions="Say ok.", model=wrapped(Caller()))
    model = wrapped(Caller(ToolCall("delegate_task", {"tasks": _tasks(children)})))
    return Agent("parent", instructions="Delegate.", model=model, delegates=[child])


def limited() -> Agent:
    """Return an agent that delegates one task, with a limiter that holds no call back."""
    limiter = Limiter(in_flight=100)
    return fan_out(1, wrapped=lambda model: with_rate_limit(model, limiter))


def detaching(children: int, child: Agent) -> Agent:
    """Return an agent that detaches tasks in its first turn."""
    call = ToolCall("delegate_task", {"tasks": _tasks(children), "background": True})
    return Agent("parent", instructions="Delegate.", model=CallsOnce(call), delegates=[child])


def _tasks(number: int) -> list[dict[str, str]]:
    return [{"goal": "say ok"} for _ in range(number)]


def chain(depth: int) -> Agent:
    """Return the first of a chain of agents that delegate to each other."""
    agent = Agent(f"a{depth}", instructions="Say ok.", model=Caller())
    for level in reversed(range(depth)):
        model = Caller(ToolCall("delegate_task", {"tasks": [{"goal": "say ok"}]}))
        agent = Agent(f"a{level}", instructions="Delegate.", model=model, delegates=[agent])
    return agent


def mapping(children: int) -> Agent[Any]:
    """Return a program that delegates a list of tasks with `map_each`."""
    each = map_each(Agent("child", instructions="Say ok.", model=Caller()))

    @agent
    async def program(goal: str) -> list[str]:
        """Delegate each."""
        return await delegate(each, [goal] * children)

    return program


def alone() -> Agent:
    return Agent("solo", instructions="Say ok.", model=Caller())


def with_tool() -> Agent:
    model = Caller(ToolCall("look_up", {"word": "atlas"}))
    return Agent("reader", instructions="Look it up.", model=model, tools=[look_up])


def opened(journal: Path | str = ":memory:") -> Any:
    return open_orchestrator(journal, rules=ANY_NUMBER)


async def count_run(orchestrator: Orchestrator, agent: Agent[Any], *, times: int = 2) -> Calls:
    """Count the calls of a run; a run before it fills the caches."""
    measured: list[Calls] = []
    await orchestrator.run(agent, "go")
    for _ in range(times):
        with counting(measured):
            await orchestrator.run(agent, "go")
    return fewest(measured)


async def count_child(parent_of: Callable[[int], Agent[Any]]) -> Calls:
    async with opened() as orchestrator:
        small = await count_run(orchestrator, parent_of(100))
        large = await count_run(orchestrator, parent_of(300))
    return large.each_of(200, beyond=small)


async def count_level() -> Calls:
    async with opened() as orchestrator:
        small = await count_run(orchestrator, chain(10))
        large = await count_run(orchestrator, chain(30))
    return large.each_of(20, beyond=small)


async def count_one(agent: Agent) -> Calls:
    async with opened() as orchestrator:
        return await count_run(orchestrator, agent, times=7)


async def count_turn(journal: Path | str) -> Calls:
    """Count the calls of one turn of a conversation; in a file, without the thread of commits."""
    measured: list[Calls] = []
    async with opened(journal) as orchestrator, orchestrator.open_session(alone()) as session:
        await session.ask("go")
        for _ in range(5):
            with counting(measured):
                await session.ask("go")
    return fewest(measured)


async def count_fact() -> Calls:
    """Count the calls of one posted fact: it is encoded, searched for secrets, folded and kept."""
    measured: list[Calls] = []
    async with opened() as orchestrator, orchestrator.open_session(alone()) as session:
        await session.ask("go")
        fact = MetadataChanged(SessionId(session.id), {"project": "atlas"})
        for _ in range(3):
            with counting(measured):
                orchestrator.facts.post(fact)
    return fewest(measured)


async def count_turn_in_file() -> Calls:
    with TemporaryDirectory() as folder:
        return await count_turn(Path(folder, "journal.db"))


WORKLOADS: Final[dict[str, Callable[[], Awaitable[Calls]]]] = {
    "one fact": count_fact,
    "a child of a fan-out": lambda: count_child(fan_out),
    "a child of map_each": lambda: count_child(mapping),
    "one joined delegation": lambda: count_one(fan_out(1)),
    "one joined delegation behind a limiter": lambda: count_one(limited()),
    "a level of a chain": count_level,
    "a run alone": lambda: count_one(alone()),
    "a run with a tool": lambda: count_one(with_tool()),
    "a turn of a conversation": lambda: count_turn(":memory:"),
    "a turn in a file": count_turn_in_file,
}
