"""What an agent is: a frozen value that says who acts, with what, within which limits."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, cast

import attrs

from agents.errors import DefinitionError
from agents.models.model import Model
from agents.tools.tool import Tool

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)
else:
    from typing import TypeVar

    OutputT_co = TypeVar("OutputT_co", covariant=True)

# A name is a step of a path (`/editor/researcher[3]`) and an argument that models write.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


@attrs.frozen(kw_only=True)
class Limits:
    """What one task of an agent may use."""

    model_calls: int = 100
    seconds: float | None = None
    """How long one task may take, waiting for its joined children included."""


def _tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    return tuple(tools)


def _team(agents: "Iterable[Agent[Any]]") -> "tuple[Agent[Any], ...]":
    return tuple(agents)


def _checked_name(_agent: object, _field: object, name: str) -> None:
    if not NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} cannot be the name of an agent: a name starts with a letter and"
            " has at most 64 letters, digits, '-' and '_'"
        )


def _checked_names(agent: "Agent[Any]", field: Any, parts: tuple[Any, ...]) -> None:
    seen: set[str] = set()
    for part in parts:
        if part.name in seen:
            raise DefinitionError(
                f"agent {agent.name!r} has two {field.name} called {part.name!r}"
            )
        seen.add(part.name)


@attrs.frozen
class Agent(Generic[OutputT_co]):
    """Who acts: a name, instructions, a model, and what it may use."""

    name: str = attrs.field(validator=_checked_name)
    instructions: str = attrs.field(default="", kw_only=True)
    model: str | Model = attrs.field(kw_only=True)
    """A name such as `"openai:gpt-5-mini"`, or any `Model`."""
    tools: tuple[Tool, ...] = attrs.field(
        default=(), kw_only=True, converter=_tools, validator=_checked_names
    )
    delegates: "tuple[Agent[Any], ...]" = attrs.field(
        default=(), kw_only=True, converter=_team, validator=_checked_names
    )
    """Whom it may hand work to with `delegate_task`."""
    output: type[OutputT_co] = attrs.field(
        default=cast("type[OutputT_co]", str), kw_only=True
    )
    """The type of the final answer; any type but `str` is read from JSON."""
    limits: Limits = attrs.field(default=Limits(), kw_only=True)
