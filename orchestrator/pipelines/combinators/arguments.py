"""What an agent is made of other agents from: parts that are looked at when it is defined."""

from collections.abc import Sequence
from typing import Any, Union

from agents import Agent, DefinitionError, input_of, is_agent


def require_agents(what: str, agents: Sequence[object], *, least: int) -> None:
    """Refuse what is no agent, and too few of them."""
    for agent in agents:
        if not isinstance(agent, Agent):
            raise DefinitionError(
                f"{what}: {agent!r} is no agent; make one of a function with @agent"
            )
    if len(agents) < least:
        raise DefinitionError(
            f"{what} needs {least} agent{'s' * (least != 1)} at least"
        )


def require_number(what: str, number: object, *, least: float) -> None:
    """Refuse a number that makes no sense."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise DefinitionError(f"{what} is {number!r}, which is no number")
    # Written so that it is also false of NaN.
    if not number >= least:
        raise DefinitionError(f"{what} is {number}; it must be {least} or more")


def agent_or_function(what: str, given: object) -> Agent[Any, Any] | None:
    """Return the agent that somebody judges by; None if it is a function."""
    if is_agent(given):
        return given
    if not callable(given):
        raise DefinitionError(f"{what}: {given!r} is neither a function nor an agent")
    return None


def shared_input(agents: Sequence[Agent[Any, Any]]) -> Any:
    """Return the type of what some agents take: of the first that does not take anything."""
    return next((it for it in map(input_of, agents) if it is not Any), Any)


def list_of(item: Any) -> Any:
    """Return a type that is known only now."""
    return list.__class_getitem__(item)


def tuple_of(*items: Any) -> Any:
    """Return a type that is known only now."""
    return tuple.__class_getitem__(items)


def either_of(types: Sequence[Any]) -> Any:
    """Return a type that is known only now."""
    return Union[tuple(types)]  # noqa: UP007 (there is no other way to write it)
