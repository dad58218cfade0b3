"""The workloads: delegations with scripted models, joined and detached, in memory and on disk."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from orchestrator import Orchestrator, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall
from orchestrator.delegation import Rules
from orchestrator.journals import Journal

ANY_NUMBER = Rules(children_per_call=1_000_000, depth=250, live_tasks=None, detached=None)


def hand_on(children: int, *, background: bool = False) -> ToolCall:
    tasks = [{"goal": "g"} for _ in range(children)]
    return ToolCall("delegate_task", {"tasks": tasks, "background": background})


def parent(children: int, seconds: float = 0) -> Agent:
    """Return an agent that delegates tasks once, and then answers."""
    child = Agent("child", model=ScriptedModel.always("x", seconds))
    model = ScriptedModel([hand_on(children), "x"], seconds)
    return Agent("parent", model=model, delegates=[child])


def chained(depth: int) -> Agent:
    """Return the first agent of a chain; each agent delegates to the next."""
    agent = Agent(f"a{depth}", model=ScriptedModel.always("x"))
    for level in reversed(range(depth)):
        model = ScriptedModel([hand_on(1), "x"])
        agent = Agent(f"a{level}", model=model, delegates=[agent])
    return agent


@asynccontextmanager
async def opened(journal: Path | Journal | None = None) -> AsyncGenerator[Orchestrator]:
    where = ":memory:" if journal is None else journal
    async with open_orchestrator(where, rules=ANY_NUMBER) as orchestrator:
        yield orchestrator


async def delegate(orchestrator: Orchestrator, children: int, seconds: float = 0) -> None:
    run = await orchestrator.run(parent(children, seconds), "go")
    assert run.output == "x"
    assert len(run.tree) == children + 1


async def delegate_often(orchestrator: Orchestrator, times: int) -> None:
    for _ in range(times):
        await delegate(orchestrator, 1)


async def chain(orchestrator: Orchestrator, depth: int) -> None:
    run = await orchestrator.run(chained(depth), "go")
    assert run.output == "x"


async def detach(orchestrator: Orchestrator, children: int) -> None:
    """Detach children from one turn, and wait until the notice of the last one is read."""
    child = Agent("child", model=ScriptedModel.always("x"))
    first = hand_on(children, background=True)
    model = ScriptedModel([first, *["x"] * (children + 2)])
    agent = Agent("parent", model=model, delegates=[child])
    async with orchestrator.open_session(agent) as session:
        await session.ask("go")
        await session.wait_idle()
        assert len(session.tree) == children + 1


def parent_of_sleepers(children: int) -> Agent:
    sleeper = Agent("child", model=ScriptedModel.always("x", 1_000_000))
    model = ScriptedModel([hand_on(children), "x"])
    return Agent("parent", model=model, delegates=[sleeper])


async def detach_often(orchestrator: Orchestrator, times: int) -> None:
    for _ in range(times):
        await detach(orchestrator, 1)
