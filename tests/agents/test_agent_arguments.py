"""An agent that is called as a tool: its schema, its goal, and what is wrong with a call."""

# ruff: noqa: RUF029 (no test runs these functions)

import datetime as dt
from typing import Any

import msgspec
import pytest

from orchestrator.agents import Agent, Pipeline, ScriptedModel, TaskContext, agent
from orchestrator.agents.agent_arguments import AgentArguments


class Order(msgspec.Struct):
    """An order at a shop."""

    item: str
    count: int = 1


class Folder(msgspec.Struct):
    """One that may have others in it."""

    name: str
    folders: "list[Folder]" = []


@agent
async def shop(order: Order) -> str:
    """Sell."""
    return order.item


@agent
async def walk(root: Folder) -> str:
    """Walk."""
    return root.name


@agent
async def total(numbers: list[int]) -> int:
    """Add."""
    return sum(numbers)


@agent
async def named(task: TaskContext[Any], name: str) -> str:
    """Greet."""
    return name


@agent
async def both(left: int, right: int = 2) -> int:
    """Take one that is required."""
    return left + right


@agent
async def measure(task: TaskContext[Any], text: str, limit: int = 5) -> str:
    """Take a text, and more by name."""
    return text[:limit]


@agent
async def meet(day: dt.date) -> str:
    """Take what a schema cannot tell."""
    return str(day)


@agent
async def nothing() -> str:
    """Take nothing."""
    return ""


def schema(of: Agent[Any]) -> Any:
    return AgentArguments.of(of).schema


def test_an_agent_takes_a_goal_and_a_function_its_parameter() -> None:
    helper = Agent("helper", model=ScriptedModel([]))

    assert schema(helper)["required"] == ["goal"]
    assert schema(helper >> helper)["required"] == ["goal"]
    assert schema(named)["properties"] == {"name": {"type": "string"}}
    assert schema(both)["required"] == ["left"]
    assert [*schema(measure)["properties"]] == ["text", "limit"]
    assert schema(nothing) == {"type": "object", "properties": {}}
    assert schema(total)["properties"]["numbers"]["type"] == "array"


def test_the_fields_of_an_object_are_the_arguments() -> None:
    assert schema(shop)["type"] == "object"
    assert [*schema(shop)["properties"]] == ["item", "count"]
    assert "$defs" not in schema(shop)
    # A type that is part of itself stays among the definitions.
    assert [*schema(walk)["$defs"]] == ["Folder"]


@pytest.mark.parametrize(
    ("called", "arguments", "goal"),
    [
        (shop, {"item": "tea"}, '{"item":"tea"}'),
        (total, {"numbers": [1, 2]}, "[1,2]"),
        (meet, {"day": "2026-11-17"}, '"2026-11-17"'),
        (named, {"name": "Ann"}, "Ann"),
        (both, {"left": 1}, '{"left":1}'),
        (measure, {"text": "abc", "limit": 2}, '{"text":"abc","limit":2}'),
        (nothing, {}, ""),
    ],
)
def test_a_goal_is_made_of_arguments_that_fit(
    called: Pipeline[Any, Any], arguments: dict[str, Any], goal: str
) -> None:
    takes = AgentArguments.of(called)

    assert takes.problems(arguments) == ()
    assert takes.goal(arguments) == goal


def test_agent_arguments_report_every_problem_and_every_missing_name() -> None:
    takes = AgentArguments.of(shop)

    assert takes.missing({"count": 2}) == ["item"]
    assert len(takes.problems({"count": "many"})) == 2


def test_agent_arguments_report_a_problem_that_only_the_type_finds() -> None:
    (problem,) = AgentArguments.of(meet).problems({"day": "some day"})

    assert "Invalid RFC3339" in problem
