"""The base of models that wrap a model: its name, price, count of tokens and settings hold."""

from abc import ABC, abstractmethod

from orchestrator.agents.messages import AssistantMessage, Usage
from orchestrator.agents.models.cost import with_cost
from orchestrator.agents.models.model import (
    Model,
    ModelRequest,
    Price,
    known_count,
    known_price,
    known_settings_problem,
    knows_custom_tools,
)
from orchestrator.agents.models.settings import ModelSettings


class ModelWrapper(ABC):
    """Asks another model, in a way of its own."""

    def __init__(self, model: Model) -> None:
        self.name = model.name
        self._model = model

    @property
    def price(self) -> Price | None:
        return known_price(self._model)

    def bill(self, usage: Usage, answered_by: str = "") -> Usage:
        return with_cost(usage, self._model, answered_by)

    def count_tokens(self, request: ModelRequest) -> int | None:
        return known_count(self._model, request)

    def settings_problem(self, settings: ModelSettings) -> str | None:
        return known_settings_problem(self._model, settings)

    @property
    def has_custom_tools(self) -> bool:
        return knows_custom_tools(self._model)

    @abstractmethod
    async def answer(self, request: ModelRequest) -> AssistantMessage: ...
