"""The value `Budget` and the kinds of amounts that it limits."""

import math
from enum import StrEnum
from typing import Any, Literal

import attrs

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.limits import not_negative


class BudgetKind(StrEnum):
    """The kinds of amounts that a `Budget` limits, by the names of its fields.

    If several are used up, the first of them is reported.
    """

    CALLS = "calls"
    TOKENS = "tokens"
    USD = "usd"
    SECONDS = "seconds"
    DEPTH = "depth"
    TASKS = "tasks"


def _whole(instance: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    not_negative(instance, attribute, value)
    if value is not None and not isinstance(value, int):
        raise DefinitionError(
            f"{type(instance).__name__}({attribute.name}={value}) is not a whole number"
        )


def _endless(value: float | None) -> float | None:
    """Return None for infinity, which JSON cannot carry."""
    return None if value == math.inf else value


def _endless_whole(value: int | None) -> int | None:
    return None if value == math.inf else value


def _checked(_: type, fields: "list[attrs.Attribute[Any]]") -> "list[attrs.Attribute[Any]]":
    """Check each amount of a budget, and read infinity as no limit."""
    # The options of the command line have the types that the converters take.
    checks: dict[object, dict[str, object]] = {
        float | None: {"validator": not_negative, "converter": _endless},
        int | None: {"validator": _whole, "converter": _endless_whole},
    }
    return [field.evolve(**checks.get(field.type, {})) for field in fields]


@attrs.frozen(kw_only=True, field_transformer=_checked)
class BudgetAmounts:
    """The limits of a budget, one for each kind. None is no limit, 0 is nothing.

    `budget(...)`, the body of HTTP requests and the options of the command line have these fields.
    """

    usd: float | None = attrs.field(
        default=None, metadata={"help": "The most that all model calls may cost, in dollars."}
    )
    tokens: int | None = attrs.field(
        default=None, metadata={"help": "The most tokens that all model calls may read and write."}
    )
    calls: int | None = attrs.field(
        default=None, metadata={"help": "The most model calls that may be made."}
    )
    seconds: float | None = attrs.field(
        default=None,
        metadata={"help": "The most seconds that all of it may take, from the first request on."},
    )
    tasks: int | None = attrs.field(
        default=None, metadata={"help": "The most tasks that may be delegated."}
    )
    depth: int | None = attrs.field(
        default=None, metadata={"help": "The most levels of tasks that there may be below."}
    )


@attrs.frozen(kw_only=True, field_transformer=_checked)
class Budget(BudgetAmounts):
    """The limits of a task and all its descendants together, with a name."""

    name: str = ""
    """Its name in messages."""

    def __str__(self) -> str:
        amounts = [
            f"{amount}={value}"
            for amount, value in attrs.asdict(self).items()
            if amount != "name" and value is not None
        ]
        name = f" {self.name!r}" if self.name else ""
        return f"budget{name} ({', '.join(amounts) or 'no limit'})"


@attrs.frozen(kw_only=True)
class BlockBudget(Budget):
    """The limits of `with budget(...)`."""

    shared: str = ""
    """The name of the account of all processes that use the same journal address."""
    every: Literal["day", "month"] | None = None
    """How often the account starts again; None never does."""
    zone: str = "UTC"
    """The time zone whose calendar says when a day or a month begins."""
