"""Prices of models: a dated table that ships as data, and a wrapper that applies it.

A price is never guessed: a model has one only under its exact name, and usage of any other model
stays marked as unpriced.
"""

import datetime as dt
from collections.abc import Mapping
from importlib import resources

import attrs
import msgspec

from agents.errors import ModelError
from agents.messages import AssistantMessage, Usage
from agents.models.cost import cost_at
from agents.models.model import Model, ModelRequest, Price
from agents.models.wrappers.wrapper import ModelWrapper


@attrs.frozen(kw_only=True)
class PriceTable:
    """Prices by model name, as of a date."""

    as_of: dt.date
    source: str
    """Where the prices were published."""
    models: Mapping[str, Price]

    @classmethod
    def shipped(cls) -> "PriceTable":
        """Return the table that comes with this package."""
        file = resources.files("agents.models.wrappers").joinpath("prices.json")
        return msgspec.json.decode(file.read_bytes(), type=cls)

    def with_prices(self, prices: Mapping[str, Price]) -> "PriceTable":
        """Return a table in which these prices override the others."""
        return attrs.evolve(self, models={**self.models, **prices})

    def price_of(self, name: str) -> Price | None:
        # The same models at the same price, in another protocol.
        return self.models.get(name.replace("openai-responses:", "openai:", 1))


def priced(model: Model, table: PriceTable) -> Model:
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
        try:
            answer = await self._model.answer(request)
        except ModelError as exc:
            if exc.usage is not None:
                exc.usage = self._paid(exc.usage, self.name)
            raise
        # By the model that answered: a wrapper may stand for several.
        paid = self._paid(answer.usage, answer.model or self.name)
        return answer if paid is answer.usage else attrs.evolve(answer, usage=paid)

    def _paid(self, used: Usage, name: str) -> Usage:
        if (price := self._table.price_of(name)) is None:
            return used
        return price.applied_to(used)
