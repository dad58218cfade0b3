"""Agents one after the other: `sequence`, the function for `>>`."""

from typing import Any, TypeVar, overload

from orchestrator.agents import Agent, Pipeline
from orchestrator.kernel.pipelines.combinators.arguments import require_agents

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


@overload
def sequence(
    first: Agent[A, InputT], second: Agent[OutputT, A], /
) -> Pipeline[InputT, OutputT]: ...
@overload
def sequence(
    first: Agent[A, InputT], second: Agent[B, A], third: Agent[OutputT, B], /
) -> Pipeline[InputT, OutputT]: ...
@overload
def sequence(
    first: Agent[A, InputT], second: Agent[B, A], third: Agent[C, B], fourth: Agent[OutputT, C], /
) -> Pipeline[InputT, OutputT]: ...
@overload
def sequence(
    first: Agent[A, InputT],
    second: Agent[B, A],
    third: Agent[C, B],
    fourth: Agent[D, C],
    fifth: Agent[OutputT, D],
    /,
) -> Pipeline[InputT, OutputT]: ...
def sequence(*agents: Agent[Any, Any]) -> Pipeline[Any, Any]:
    """Return a pipeline that gives the output of each agent to the next one.

    It is `a >> b >> c` for any number of agents.
    """
    require_agents("sequence", agents, least=2)
    first, second, *others = agents
    pipeline: Pipeline[Any, Any] = first >> second
    for agent in others:
        pipeline >>= agent
    return pipeline
