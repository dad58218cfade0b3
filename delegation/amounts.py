"""The amounts that accounts sum up, as one value."""

from typing import Final

import msgspec


class Amounts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Amounts that budgets limit and accounts sum up.

    No field has a default: with a new one, the type checker names each place that must know it.
    """

    calls: int
    tokens: int
    cost: int
    """Micro-dollars."""
    tasks: int

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            cost=self.cost + other.cost,
            tasks=self.tasks + other.tasks,
        )

    def __sub__(self, other: "Amounts") -> "Amounts":
        return Amounts(
            calls=self.calls - other.calls,
            tokens=self.tokens - other.tokens,
            cost=self.cost - other.cost,
            tasks=self.tasks - other.tasks,
        )


NOTHING: Final = Amounts(calls=0, tokens=0, cost=0, tasks=0)
ONE_TASK: Final = Amounts(calls=0, tokens=0, cost=0, tasks=1)
