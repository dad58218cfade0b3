"""Prices of models: a table of the user's own, the data of `genai-prices`, and a wrapper.

A price is never guessed: a model that neither of them has stays marked as unpriced.
"""

import datetime as dt
from collections.abc import Callable, Mapping

import attrs
from msgspec.structs import replace

from orchestrator.agents.errors import ModelError
from orchestrator.agents.messages import AssistantMessage, Usage
from orchestrator.agents.models.cost import cost_at
from orchestrator.agents.models.model import Model, ModelRequest, Price
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper


@attrs.frozen(kw_only=True)
class PriceTable:
    """Prices by model name."""

    as_of: dt.date | None = None
    """The day of the prices, if it is known."""
    source: str
    """Where the prices come from."""
    models: Mapping[str, Price] = attrs.field(factory=dict[str, Price])
    look_up: Callable[[str], Price | None] | None = attrs.field(default=None, repr=False, eq=False)
    """Gives the price of a model that `models` does not have."""

    @classmethod
    def shipped(cls) -> "PriceTable":
        """Return the prices of `genai-prices`, which the extras of providers install."""
        # Imported late: it takes as long to import as an HTTP client.
        from orchestrator.agents.models.wrappers.genai_prices_data import look_up, source

        return cls(source=source(), look_up=look_up)

    def with_prices(self, prices: Mapping[str, Price]) -> "PriceTable":
        """Return a table with these prices instead of others for the same models."""
        return attrs.evolve(self, models={**self.models, **prices})

    def price_of(self, name: str) -> Price | None:
        # The same models at the same price, in another protocol.
        same = name.replace("-responses:", ":", 1)
        price = self.models.get(name) or self.models.get(same)
        if price is None and self.look_up is not None:
            return self.look_up(same)
        return price


def with_prices(model: Model, table: PriceTable) -> Model:
    """Return a model whose answers have a cost, where the table has a price."""
    return _PricedModel(model, table)


class _PricedModel(ModelWrapper):
    def __init__(self, model: Model, table: PriceTable) -> None:
        super().__init__(model)
        self._table = table

    @property
    def price(self) -> Price | None:
        # As for an answer: without a row in the table, the model's own price holds.
        price = self._table.price_of(self.name)
        return super().price if price is None else price

    def bill(self, usage: Usage, answered_by: str = "") -> Usage:
        price = self._table.price_of(answered_by or self.name)
        if price is None:
            return super().bill(usage, answered_by)
        return cost_at(price, usage)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        hour = request.settings.prompt_caching == "1h"
        try:
            answer = await self._model.answer(request)
        except ModelError as exc:
            if exc.usage is not None:
                exc.usage = self._paid(exc.usage, self.name, hour=hour)
            raise
        # By the model that answered: a wrapper may stand for several.
        paid = self._paid(answer.usage, answer.model or self.name, hour=hour)
        return answer if paid is answer.usage else replace(answer, usage=paid)

    def _paid(self, used: Usage, name: str, *, hour: bool) -> Usage:
        # The price of the provider itself precedes any table but the user's own.
        if used.micro_usd and not used.unpriced and name not in self._table.models:
            return used
        if (price := self._table.price_of(name)) is None:
            return used
        return (price.with_cache_of_an_hour() if hour else price).applied_to(used)
