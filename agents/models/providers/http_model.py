"""The base of models that are asked over HTTP, each in a protocol of its own.

A new protocol is a subclass: its URL, the body of a request, and a builder that reads answers.
Register it in `agents.models.registry`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, cast

from agents.messages import AssistantMessage
from agents.models.http.answer_builder import AnswerBuilder
from agents.models.http.answer_limits import AnswerLimits
from agents.models.http.endpoint import DEFAULT_LIMITS, SILENCE_SECONDS, Endpoint
from agents.models.http.strict_schema import ProviderSchema, provider_schema
from agents.models.model import ModelRequest
from agents.models.settings import ModelSettings
from agents.models.settings_rules import SettingsRules


class HttpModel(ABC):
    """Asks one model over HTTP."""

    provider: ClassVar[str]
    """The part of the model's name before the colon."""
    default_url: ClassVar[str]
    path: ClassVar[str]
    """What is appended to the base URL."""
    settings_rules: ClassVar[SettingsRules]
    """What the protocol can carry of `ModelSettings`."""

    def __init__(
        self,
        model: str,
        *,
        key: str,
        base_url: str | None = None,
        silence: float = SILENCE_SECONDS,
        limits: AnswerLimits = DEFAULT_LIMITS,
    ) -> None:
        self.name = f"{self.provider}:{model}"
        self._model = model
        self._base_url = (base_url or self.default_url).rstrip("/")
        self._endpoint = Endpoint(
            self.name,
            f"{self._base_url}{self.path}",
            headers=self._headers(key),
            key=key,
            silence=silence,
            limits=limits,
        )

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        schema = self._output_schema(request)
        body = self._body(request, schema)
        if request.settings.extra:
            body = _merged(body, request.settings.extra)
        return await self._endpoint.ask(body, self._builder(request, schema))

    def settings_problem(self, settings: ModelSettings) -> str | None:
        if problem := self.settings_rules.problem_with(settings):
            return f"{self.name}: {problem}"
        return None

    def _headers(self, key: str) -> dict[str, str]:
        # A server on one's own machine may need no key.
        return {"authorization": f"Bearer {key}"} if key else {}

    def _output_schema(self, request: ModelRequest) -> ProviderSchema | None:
        return None if request.output is None else provider_schema(request.output)

    @abstractmethod
    def _body(
        self, request: ModelRequest, schema: ProviderSchema | None
    ) -> dict[str, Any]:
        """Return the request in the words of the protocol."""

    @abstractmethod
    def _builder(
        self, request: ModelRequest, schema: ProviderSchema | None
    ) -> AnswerBuilder:
        """Return a new reader of one answer."""


def _merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with further fields: an object is added to, anything else replaced."""
    merged = dict(body)
    for name, value in extra.items():
        ours = merged.get(name)
        merged[name] = (
            _merged(cast("dict[str, Any]", ours), cast("dict[str, Any]", value))
            if isinstance(ours, dict) and isinstance(value, dict)
            else value
        )
    return merged
