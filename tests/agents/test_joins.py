"""A join of agents that cannot work is refused where it is written."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import pytest
import trio

from orchestrator import Agent, DefinitionError, ScriptedModel, agent, map_each, tool

MODEL = ScriptedModel(["never"])


@dataclass
class Finding:
    url: str
    score: float = 0.0


@dataclass
class Article:
    title: str
    findings: list[Finding]
    parts: "list[Article]" = field(default_factory=list)


@dataclass
class Link:
    url: str


class Titled(TypedDict):
    title: str


def gives(output: Any) -> Agent[Any]:
    return Agent("first", model=MODEL, output=output)


def takes(input_type: Any) -> Agent[Any, Any]:
    async def then(value: Any) -> str:
        await trio.lowlevel.checkpoint()
        return str(value)

    then.__annotations__["value"] = input_type
    return agent(then)


@pytest.mark.parametrize(
    ("output", "input_type", "problem"),
    [
        (str, list[str], "type string is none of type array"),
        (str, Finding, "type string is none of type object"),
        (list[str], list[int], "of its items, a value of JSON's type string"),
        (Finding, Article, "it has no 'title'"),
        (list[Finding], list[Article], "of its items, it has no 'title'"),
        (Article, Finding, "it has no 'url'"),
        (dict[str, int], list[int], "type object is none of type array"),
        (int, bool, "type integer is none of type boolean"),
        (Literal["a"], int, "type string is none of type integer"),
        (int | list[int], Finding, "type integer is none of type object"),
    ],
)
def test_a_join_that_fails_for_every_value_is_refused(
    output: Any, input_type: Any, problem: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        gives(output) >> takes(input_type)

    assert str(refused.value).startswith("'then' cannot come after 'first': it takes ")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("output", "input_type"),
    [
        (str, str),
        (Finding, Finding),
        (Finding, Link),
        (Finding, Titled | Finding),
        (Finding, str),
        (list[Finding], list[Finding]),
        (tuple[int, str], list[int | str]),
        (int, float),
        (int | str, str),
        (str | None, Literal["a"] | None),
        (Article, Titled),
        (dict[str, str], Titled),
        (Any, Finding),
        (Finding, Any),
        (str, Literal["a", "b"]),
    ],
)
def test_a_join_that_may_work_is_made(output: Any, input_type: Any) -> None:
    joined = gives(output) >> takes(input_type)

    assert [it.name for it in joined.steps] == ["first", "then"]


def test_a_fan_out_wants_a_list() -> None:
    with pytest.raises(DefinitionError, match="is none of type array"):
        gives(Finding) >> map_each(takes(Finding))
    joined = gives(list[Finding]) >> map_each(takes(Finding))
    assert len(joined.steps) == 2


def delegate_task(goal: str) -> str:
    """Delegate."""
    return goal


def task(goal: str) -> str:
    """Do it."""
    return goal


@pytest.mark.parametrize(
    "define",
    [
        lambda: tool(delegate_task),
        lambda: tool(name="delegate_task")(task),
        lambda: Agent("a", model=MODEL, tools=[tool(task)], copies=True),
        lambda: Agent("a", model=MODEL, tools=[tool(task)], delegates=[gives(str)]),
    ],
)
def test_a_tool_takes_no_name_of_delegation(define: Callable[[], object]) -> None:
    with pytest.raises(DefinitionError, match=r"@tool\(name=\.\.\.\)"):
        define()
    assert Agent("a", model=MODEL, tools=[tool(task)]).tools[0].name == "task"
