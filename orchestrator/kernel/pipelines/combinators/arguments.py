"""Checks of the arguments of combinators, and types that are made of the agents' types."""

from collections.abc import Sequence
from typing import Any, Union

from orchestrator.agents import Agent, DefinitionError, input_of, is_agent


def require_agents(what: str, agents: Sequence[object], *, least: int) -> None:
    """Raise `DefinitionError` if an argument is not an agent, or there are too few."""
    for agent in agents:
        if not isinstance(agent, Agent):
            raise DefinitionError(
                f"{what}: {agent!r} is not an agent; make one of a function with @agent"
            )
    if len(agents) < least:
        raise DefinitionError(f"{what} needs {least} agent{'s' * (least != 1)} at least")


def require_number(what: str, number: object, *, least: float) -> None:
    """Raise `DefinitionError` if an argument is not a number, or is too small."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise DefinitionError(f"{what} is {number!r}, which is not a number")
    # Written so that it is also false of NaN.
    if not number >= least:
        raise DefinitionError(f"{what} is {number}; it must be {least} or more")


def agent_or_function(what: str, given: object) -> Agent[Any, Any] | None:
    """Return an argument that is an agent; None if it is a function."""
    if is_agent(given):
        return given
    if not callable(given):
        raise DefinitionError(f"{what}: {given!r} is neither a function nor an agent")
    return None


def shared_input(agents: Sequence[Agent[Any, Any]]) -> Any:
    """Return the input type of some agents: the first input type that is not `Any`."""
    return next((it for it in map(input_of, agents) if it is not Any), Any)


def list_of(item: Any) -> Any:
    """Return `list[item]`."""
    return list.__class_getitem__(item)


def tuple_of(*items: Any) -> Any:
    """Return `tuple[items]`."""
    return tuple.__class_getitem__(items)


def either_of(types: Sequence[Any]) -> Any:
    """Return the union of types."""
    return Union[tuple(types)]  # noqa: UP007 (there is no other way to write it)
