"""Typing of dependencies, for type checkers. It is never run."""

from typing import Any, assert_type

import attrs

from orchestrator import Orchestrator, Run, run_sync
from orchestrator.agents import (
    Agent,
    Hooks,
    ModelRequest,
    Pipeline,
    ScriptedModel,
    TaskContext,
    ToolCall,
    agent,
    tool,
)

MODEL = ScriptedModel.always("")


@attrs.frozen
class Shop:
    owner: str


@attrs.frozen
class BigShop(Shop):
    floors: int


@tool
async def sell(task: TaskContext[Shop], item: str) -> str:
    assert_type(task.deps, Shop)
    return task.deps.owner + item


def greet(task: TaskContext[Shop]) -> str:
    return f"You work for {task.deps.owner}."


clerk = Agent("clerk", model=MODEL, deps=Shop, tools=[sell], instructions=greet)
counter = Agent("counter", model=MODEL, deps=Shop, output=int)
plain = Agent("plain", model=MODEL)
assert_type(clerk, Agent[str, Any, Shop])
assert_type(counter, Agent[int, Any, Shop])
# The function says what it needs.
assert_type(Agent("a", model=MODEL, instructions=greet), Agent[str, Any, Shop])


@agent
async def shopping(task: TaskContext[Shop], item: str) -> int:
    return len(task.deps.owner + item)


@agent(name="other")
async def alone(task: TaskContext[Shop]) -> str:
    return task.deps.owner


assert_type(shopping, Pipeline[str, int])
assert_type(alone, Pipeline[object, str])


async def runs(orchestrator: Orchestrator) -> None:
    assert_type(await orchestrator.run(clerk, "x", deps=Shop("a")), Run[str])
    assert_type(await orchestrator.run(counter, "x", deps=BigShop("a", 1)), Run[int])
    assert_type(await orchestrator.run(plain, "x"), Run[str])
    assert_type(await orchestrator.resume(clerk, "r", deps=Shop("a")), Run[str])
    assert_type(run_sync(counter, "x", deps=Shop("a")), Run[int])
    orchestrator.open_session(clerk, deps=Shop("a"))
    orchestrator.open_session(plain)
    await orchestrator.run(clerk, "x")  # type: ignore[arg-type]  # pyright: ignore
    await orchestrator.run(clerk, "x", deps="a")  # type: ignore[misc]  # pyright: ignore
    await orchestrator.resume(clerk, "r")  # type: ignore[arg-type]  # pyright: ignore
    orchestrator.open_session(clerk)  # type: ignore[arg-type]  # pyright: ignore
    run_sync(clerk, "x")  # type: ignore[arg-type]  # pyright: ignore
    await orchestrator.run(shopping, 5, deps=Shop("a"))  # type: ignore[misc]  # pyright: ignore


def short(answer: str) -> None: ...


async def fits(task: TaskContext[Shop], answer: int) -> None:
    assert_type(task.deps, Shop)


Agent("a", model=MODEL, checks=[short])
Agent("a", model=MODEL, checks=[fits], output=int, deps=Shop)
Agent("a", model=MODEL, checks=[short], output=int)  # type: ignore[list-item]  # pyright: ignore
Agent("a", model=MODEL, checks=[fits], output=int, deps=int)  # type: ignore[list-item]  # pyright: ignore


async def watch(task: TaskContext[Shop], request: ModelRequest) -> ModelRequest | None:
    return request if task.deps.owner else None


def tidy(task: TaskContext[Shop], call: ToolCall, text: str) -> str:
    return text


hooks = Hooks(before_model=watch, after_tool=tidy)
assert_type(hooks, Hooks[Shop])
Agent("a", model=MODEL, hooks=[hooks], deps=Shop)
Agent("a", model=MODEL, hooks=[hooks], deps=int)  # type: ignore[misc]  # pyright: ignore
Hooks(after_model=watch)  # type: ignore[arg-type]  # pyright: ignore


def wrong(task: TaskContext[Shop]) -> int:
    return 1


Agent("a", model=MODEL, instructions=wrong)  # type: ignore[arg-type]  # pyright: ignore
Agent("a", model=MODEL, instructions=greet, deps=int)  # type: ignore[arg-type]  # pyright: ignore
