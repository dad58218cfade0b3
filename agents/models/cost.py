"""The cost of a call whose model does not report it."""

from collections.abc import Callable

from msgspec.structs import replace

from orchestrator.agents.messages import Usage
from orchestrator.agents.models.model import Model, Price


def with_cost(usage: Usage, model: Model, answered_by: str = "") -> Usage:
    """Return the usage of a call with its cost, by the price of the model.

    A reported cost stands. Without a price, the cost is marked as unknown. A model with a method
    `bill` of the same signature bills by itself, as wrappers do. `answered_by` names the model that
    answered, if `model` stands for several.
    """
    # Not by `isinstance`: with a protocol it is slow, and this is every call.
    bill: Callable[[Usage, str], Usage] | None = getattr(model, "bill", None)
    if bill is not None:
        return bill(usage, answered_by)
    price: Price | None = getattr(model, "price", None)
    return cost_at(price, usage)


def cost_at(price: Price | None, usage: Usage) -> Usage:
    """Return the usage of a call with its cost at a price, or with the cost marked as unknown."""
    if usage.micro_usd or (price is None and usage.unpriced):
        return usage
    if price is None:
        return replace(usage, unpriced=usage.calls or 1)
    return price.applied_to(usage)
