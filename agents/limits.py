"""What an agent may use, and how long it may be silent."""

import math
from typing import Any

import attrs

from agents.errors import DefinitionError


def _not_negative(
    instance: object, attribute: "attrs.Attribute[Any]", value: Any
) -> None:
    # Written so that it is also false of what is no number, such as NaN.
    if value is not None and not value >= 0:
        raise DefinitionError(
            f"{type(instance).__name__}({attribute.name}={value}) makes no sense"
        )


def _whole(instance: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    _not_negative(instance, attribute, value)
    if value is not None and not isinstance(value, int):
        raise DefinitionError(
            f"{type(instance).__name__}({attribute.name}={value}) is no whole number"
        )


def _positive(instance: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    if value is not None and not value > 0:
        raise DefinitionError(
            f"{type(instance).__name__}({attribute.name}={value}) is no time; None is for ever"
        )


def _endless(value: Any) -> Any:
    """Return None for what has no end, since no JSON can carry that."""
    return None if value == math.inf else value


@attrs.frozen(kw_only=True)
class Limits:
    """What one task of an agent may use itself, without those it hands work to."""

    model_calls: int = attrs.field(default=100, validator=_not_negative)
    seconds: float | None = attrs.field(default=None, validator=_not_negative)
    """How long one task may take, waiting for its joined children included."""
    tokens: int | None = attrs.field(default=None, validator=_not_negative)
    """How many tokens its own model calls may read and write."""
    usd: float | None = attrs.field(default=None, validator=_not_negative)
    """How much its own model calls may cost."""
    repeats: int = attrs.field(default=5, validator=_not_negative)
    """How often the very same call may get the very same answer."""


@attrs.frozen(kw_only=True)
class Budget:
    """What a task and all below it may use together. None is no limit, and 0 is nothing."""

    usd: float | None = attrs.field(
        default=None, validator=_not_negative, converter=_endless
    )
    tokens: int | None = attrs.field(default=None, validator=_whole, converter=_endless)
    """What all model calls may read and write."""
    calls: int | None = attrs.field(default=None, validator=_whole, converter=_endless)
    """How often models may be asked."""
    seconds: float | None = attrs.field(
        default=None, validator=_not_negative, converter=_endless
    )
    """How long all of it may take, from the first that is asked for."""
    tasks: int | None = attrs.field(default=None, validator=_whole, converter=_endless)
    """How many tasks may be handed on."""
    depth: int | None = attrs.field(default=None, validator=_whole, converter=_endless)
    """How many levels of tasks there may be below."""
    name: str = ""
    """What it is called in a sentence."""

    def __str__(self) -> str:
        amounts = [
            f"{amount}={value}"
            for amount, value in attrs.asdict(self).items()
            if amount != "name" and value is not None
        ]
        name = f" {self.name!r}" if self.name else ""
        return f"budget{name} ({', '.join(amounts) or 'no limit'})"


@attrs.frozen(kw_only=True)
class Patience:
    """How long an agent may show no sign of life. None is for ever.

    A word that its model streams is a sign of life, and so is an answer of a tool. Whoever
    waits for its own children, or in line for a limiter or a budget, is not silent.
    """

    quiet: float | None = attrs.field(default=60, validator=_positive)
    """After so many seconds it is shown as quiet, which harms nobody."""
    stalled: float | None = attrs.field(default=900, validator=_positive)
    """After so many seconds it is stopped."""
    stalled_in_tool: float | None = attrs.field(default=3_600, validator=_positive)
    """The same while it waits for a tool."""

    def until_stalled(self, *, in_tool: bool) -> float:
        seconds = self.stalled_in_tool if in_tool else self.stalled
        return math.inf if seconds is None else seconds

    @property
    def until_quiet(self) -> float:
        return math.inf if self.quiet is None else self.quiet
