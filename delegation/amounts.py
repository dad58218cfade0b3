"""The amounts that accounts sum up, as one value."""

from typing import Final

import msgspec


class Amounts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Amounts that budgets limit and accounts sum up."""

    calls: int = 0
    tokens: int = 0
    micro_usd: int = 0
    """The cost in millionths of a dollar."""
    tasks: int = 0

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            micro_usd=self.micro_usd + other.micro_usd,
            tasks=self.tasks + other.tasks,
        )

    def __sub__(self, other: "Amounts") -> "Amounts":
        return Amounts(
            calls=self.calls - other.calls,
            tokens=self.tokens - other.tokens,
            micro_usd=self.micro_usd - other.micro_usd,
            tasks=self.tasks - other.tasks,
        )


NOTHING: Final = Amounts()
ONE_TASK: Final = Amounts(tasks=1)
