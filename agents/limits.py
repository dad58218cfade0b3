"""The values `Limits` and `Patience`: how much a task may use itself, and how long it may idle."""

import math
from typing import Any

import attrs

from orchestrator.agents.errors import DefinitionError


def not_negative(instance: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    try:
        # Written so that it also refuses NaN.
        makes_sense = value is None or value >= 0
    except TypeError:
        raise _no_number(instance, attribute, value) from None
    if not makes_sense:
        raise DefinitionError(f"{type(instance).__name__}({attribute.name}={value}) makes no sense")


def _positive(instance: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    try:
        is_time = value is None or value > 0
    except TypeError:
        raise _no_number(instance, attribute, value) from None
    if not is_time:
        raise DefinitionError(
            f"{type(instance).__name__}({attribute.name}={value}) must be more than 0 seconds;"
            " None is for ever"
        )


def _no_number(
    instance: object, attribute: "attrs.Attribute[Any]", value: object
) -> DefinitionError:
    return DefinitionError(f"{type(instance).__name__}({attribute.name}={value!r}) is not a number")


@attrs.frozen(kw_only=True)
class Limits:
    """The amounts that one task of an agent may use itself, without its children.

    An amount has the same name in `Limits`, `Budget` and `Usage`.
    """

    calls: int = attrs.field(default=100, validator=not_negative)
    """How many model calls it may make."""
    seconds: float | None = attrs.field(default=None, validator=not_negative)
    """How long one task may take, waiting for its joined children included."""
    tokens: int | None = attrs.field(default=None, validator=not_negative)
    """How many tokens its own model calls may read and write."""
    usd: float | None = attrs.field(default=None, validator=not_negative)
    """How much its own model calls may cost."""
    repeats: int = attrs.field(default=5, validator=not_negative)
    """How often the very same call may get the very same answer."""
    repairs: int = attrs.field(default=1, validator=not_negative)
    """How often a turn may give its final answer again, because the last one did not fit."""


@attrs.frozen(kw_only=True)
class Patience:
    """How long an agent may make no progress, in seconds. None is for ever.

    A streamed piece of an answer is progress, and so is the answer of a tool. Waits for children,
    for a rate limiter or for a budget do not count.
    """

    quiet: float | None = attrs.field(default=60, validator=_positive)
    """The seconds after which a silent task is shown as quiet; it goes on."""
    stalled: float | None = attrs.field(default=900, validator=_positive)
    """The seconds after which a silent task is stopped."""
    stalled_in_tool: float | None = attrs.field(default=3_600, validator=_positive)
    """The same while it waits for a tool."""

    shortest: float = attrs.field(init=False, repr=False, eq=False)
    """The shortest of them: a task that has just begun is not checked before that."""

    def __attrs_post_init__(self) -> None:
        given = (self.quiet, self.stalled, self.stalled_in_tool)
        shortest = min((it for it in given if it is not None), default=math.inf)
        object.__setattr__(self, "shortest", shortest)

    def until_stalled(self, *, in_tool: bool) -> float:
        seconds = self.stalled_in_tool if in_tool else self.stalled
        return math.inf if seconds is None else seconds

    @property
    def until_quiet(self) -> float:
        return math.inf if self.quiet is None else self.quiet
