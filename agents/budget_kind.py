"""The kinds of amounts that a `Budget` limits: one for each of its fields."""

from enum import StrEnum


class BudgetKind(StrEnum):
    """The amounts of a `Budget`, by the names of its fields.

    If several are used up, the first of them is reported.
    """

    CALLS = "calls"
    TOKENS = "tokens"
    USD = "usd"
    SECONDS = "seconds"
    DEPTH = "depth"
    TASKS = "tasks"
