"""The assumptions of a simulation about models, tools and providers. Everything else is real."""

import math
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from orchestrator.agents import Budget, DefinitionError, Price
from orchestrator.agents.models.wrappers.prices import PriceTable
from orchestrator.delegation import Rules
from orchestrator.products.history.simulation.past_answers import PastAnswer

LEVEL: Final = re.compile(r"(\d+)(?:-(\d+))?")
MOST_SEEDS: Final = 100_000
THIS_MACHINE: Final = "local:"
"""The prefix of models that run on this machine, and are free."""


@attrs.frozen
class Breadth:
    """How many tasks an agent delegates, by its level; the last entry holds for deeper levels."""

    levels: tuple[tuple[int, int], ...]
    """The fewest and the most tasks of each level, from the root downwards."""

    @classmethod
    def parse(cls, text: str) -> "Breadth":
        """Read `4`, `2-6`, or a list of these with an entry for each level: `10,2-6`."""
        found = [LEVEL.fullmatch(part.strip()) for part in text.split(",")]
        levels = [
            (int(level[1]), int(level[2] or level[1])) for level in found if level is not None
        ]
        if len(levels) < len(found) or any(few > many for few, many in levels):
            raise DefinitionError(
                f"a fan-out cannot be {text!r}: use a number (4), a range (2-6), or a list with one"
                " of these for each level, from the root downwards (10,2-6)"
            )
        return cls(tuple(levels))

    def draw(self, level: int, rng: random.Random) -> int:
        """Return the number of tasks that an agent on a level delegates."""
        few, many = self.levels[min(level, len(self.levels) - 1)]
        return few if few == many else rng.randint(few, many)


def _fan_out(given: "Breadth | str | int") -> Breadth:
    return given if isinstance(given, Breadth) else Breadth.parse(str(given))


def _not_negative(_: object, attribute: "attrs.Attribute[Any]", value: float) -> None:
    # Written so that NaN is refused too.
    if not 0 <= value < math.inf:
        raise DefinitionError(f"{attribute.name}={value} is not a finite number of at least 0")


@attrs.frozen(kw_only=True)
class ProviderRate:
    """The rate limits of a provider; each provider of the agents has its own."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    in_flight: int | None = None
    policy: str = "shortest"
    """The order of waiting calls: `"shortest"`, `"fair"` or `"fifo"`."""


@attrs.frozen(kw_only=True)
class SimulationSettings:
    """The assumptions of a simulation, and its number of runs.

    Times and lengths are drawn from a lognormal distribution around the median given here. With the
    default spread, one in twenty is above 2.3 times the median.
    """

    fan_out: Breadth = attrs.field(default=Breadth(((3, 3),)), converter=_fan_out)
    """The number of tasks that an agent delegates, and the length of lists in typed answers."""
    model_seconds: float = attrs.field(default=8.0, validator=_not_negative)
    """The seconds that a model takes for an answer."""
    output_tokens: float = attrs.field(default=300.0, validator=_not_negative)
    """The length of an answer in tokens."""
    spread: float = attrs.field(default=0.5, validator=_not_negative)
    """The spread of times and lengths: the sigma of the lognormal distribution; 0 for no spread."""
    tool_seconds: float = attrs.field(default=1.0, validator=_not_negative)
    """The seconds that a tool takes."""
    tool_calls: int = attrs.field(default=1, validator=_not_negative)
    """The number of tools that an agent calls, at the same time, before it answers."""
    failure_rate: float = attrs.field(default=0.0, validator=_not_negative)
    """The share of attempts that fail, equally by 429 and Retry-After, 500, or a timeout."""
    price: Price | None = None
    """The price of all models; None: the price of each model in the table."""
    prices: PriceTable | None = None
    """The price table; None: the built-in table."""
    provider: ProviderRate = ProviderRate()
    rules: Rules = attrs.field(factory=Rules)
    """The limits of delegation, such as `Rules(live_tasks=20)`."""
    budget: Budget | None = None
    """A budget for the whole run, besides the budgets of agents."""
    limit_factor: int = 1
    """The factor for the limits of fan-outs, such as `map_each(limit=)`."""
    past: Mapping[str, Sequence[PastAnswer]] = {}
    """Earlier answers of agents. Their answers are drawn from these; others are made up."""
    seeds: int = 100
    """The number of runs."""
    first_seed: int = 1

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise DefinitionError(f"seeds={self.seeds} is out of range: use 1 to {MOST_SEEDS:,}")
        if self.failure_rate > 1:
            raise DefinitionError(
                f"failure_rate={self.failure_rate} is out of range: use a share from 0 to 1"
            )

    def price_of(self, name: str) -> Price | None:
        """Return the price of a model; None if it is unknown."""
        if self.price is not None:
            return self.price
        if name.startswith(THIS_MACHINE):
            return Price()
        table = PriceTable.shipped() if self.prices is None else self.prices
        return table.price_of(name)

    def draw(self, median: float, rng: random.Random) -> float:
        """Draw a time or a length around a median."""
        return median * math.exp(self.spread * rng.gauss(0, 1))
