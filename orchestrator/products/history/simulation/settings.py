"""What a simulation assumes of models, tools and providers. Everything else is real."""

import math
import random
import re
from typing import Any, Final

import attrs

from orchestrator.agents import Budget, DefinitionError, Price
from orchestrator.agents.models.wrappers.prices import PriceTable
from orchestrator.delegation import Rules

LEVEL: Final = re.compile(r"(\d+)(?:-(\d+))?")
MOST_SEEDS: Final = 100_000
THIS_MACHINE: Final = "local:"
"""Begins the names of models that run here, and are free."""


@attrs.frozen
class Breadth:
    """How many tasks an agent delegates, by its level; the last level holds for all below."""

    levels: tuple[tuple[int, int], ...]
    """The fewest and the most of each level, from the root downwards."""

    @classmethod
    def parse(cls, text: str) -> "Breadth":
        """Read `4`, `2-6`, or one of these for each level: `10,2-6`."""
        found = [LEVEL.fullmatch(part.strip()) for part in text.split(",")]
        levels = [
            (int(level[1]), int(level[2] or level[1])) for level in found if level is not None
        ]
        if len(levels) < len(found) or any(few > many for few, many in levels):
            raise DefinitionError(
                f"a fan-out cannot be {text!r}: it is a number (4), a range (2-6), or one of"
                " these for each level, from the root downwards (10,2-6)"
            )
        return cls(tuple(levels))

    def draw(self, level: int, rng: random.Random) -> int:
        """Return how many tasks an agent on a level delegates."""
        few, many = self.levels[min(level, len(self.levels) - 1)]
        return few if few == many else rng.randint(few, many)


def _fan_out(given: "Breadth | str | int") -> Breadth:
    return given if isinstance(given, Breadth) else Breadth.parse(str(given))


def _not_negative(_: object, attribute: "attrs.Attribute[Any]", value: float) -> None:
    # Written so that it is also false of what is no number, such as NaN.
    if not 0 <= value < math.inf:
        raise DefinitionError(f"{attribute.name}={value} makes no sense")


@attrs.frozen(kw_only=True)
class ProviderRate:
    """The rate limits of a provider; each provider that agents name has its own."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    in_flight: int | None = None


@attrs.frozen(kw_only=True)
class SimulationSettings:
    """What is assumed, and how often it is tried.

    Times and lengths are drawn from a lognormal distribution: half of them are below the number
    that is given here, and with the usual spread one in twenty is above 2.3 times of it.
    """

    fan_out: Breadth = attrs.field(default=Breadth(((3, 3),)), converter=_fan_out)
    """How many tasks an agent with delegates delegates, and how long lists in typed answers are."""
    model_seconds: float = attrs.field(default=8.0, validator=_not_negative)
    """How long a model takes for an answer."""
    output_tokens: float = attrs.field(default=300.0, validator=_not_negative)
    """How long an answer is."""
    spread: float = attrs.field(default=0.5, validator=_not_negative)
    """How much times and lengths differ: the sigma of the lognormal; 0 is not at all."""
    tool_seconds: float = attrs.field(default=1.0, validator=_not_negative)
    """How long a tool takes."""
    tool_calls: int = attrs.field(default=1, validator=_not_negative)
    """How many of its tools an agent calls before it answers, at the same time."""
    failure_rate: float = attrs.field(default=0.0, validator=_not_negative)
    """Which share of all attempts fails: a 429 with Retry-After, a 500 or a timeout, in equal
    parts."""
    price: Price | None = None
    """What all models cost; None: what the price table has for each name."""
    prices: PriceTable | None = None
    """What models cost, instead of the table that is shipped."""
    provider: ProviderRate = ProviderRate()
    rules: Rules = attrs.field(factory=Rules)
    """The limits of delegation, such as `Rules(live_tasks=20)`."""
    budget: Budget | None = None
    """A budget around the whole run, besides those that agents have."""
    limit_factor: int = 1
    """By what the limits of fan-outs are multiplied, such as that of `map_each(limit=)`."""
    seeds: int = 100
    """How many runs are simulated."""
    first_seed: int = 1

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise DefinitionError(
                f"seeds={self.seeds} makes no sense: 1 to {MOST_SEEDS:,} runs can be simulated"
            )
        if self.failure_rate > 1:
            raise DefinitionError(
                f"failure_rate={self.failure_rate} makes no sense: it is a share, 0 to 1"
            )

    def price_of(self, name: str) -> Price | None:
        """Return what a model costs by its name; None if that is not known."""
        if self.price is not None:
            return self.price
        if name.startswith(THIS_MACHINE):
            return Price()
        table = PriceTable.shipped() if self.prices is None else self.prices
        return table.price_of(name)

    def draw(self, median: float, rng: random.Random) -> float:
        """Return a time or a length around a median."""
        return median * math.exp(self.spread * rng.gauss(0, 1))
