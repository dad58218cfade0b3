"""The base of models that are asked over HTTP, each in a protocol of its own.

A new protocol is a subclass: its URL, the body of a request, and a builder that reads answers.
Register it in `orchestrator.agents.models.registry`. A service that speaks one of them is a row of
`orchestrator.agents.models.provider_table`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, cast
from urllib.parse import quote

import attrs
from msgspec.structs import replace

from orchestrator.agents.messages import AssistantMessage, ToolCall
from orchestrator.agents.models.http.answer_builder import AnswerBuilder
from orchestrator.agents.models.http.answer_limits import AnswerLimits
from orchestrator.agents.models.http.credentials import Credentials
from orchestrator.agents.models.http.endpoint import DEFAULT_LIMITS, SILENCE_SECONDS, Endpoint
from orchestrator.agents.models.http.strict_schema import ProviderSchema, provider_schema
from orchestrator.agents.models.model import CallDelta, ModelEvent, ModelRequest
from orchestrator.agents.models.provider_table import PROVIDERS, Login, Provider
from orchestrator.agents.models.settings import ModelSettings
from orchestrator.agents.tools.model_names import changed_names, model_name


class HttpModel(ABC):
    """Asks one model over HTTP."""

    provider: ClassVar[str]
    """The name of the service itself, which is the part of the model's name before the colon."""
    path: ClassVar[str]
    """The path after the base URL."""

    def __init__(
        self,
        model: str,
        *,
        key: str = "",
        base_url: str | None = None,
        silence: float = SILENCE_SECONDS,
        limits: AnswerLimits = DEFAULT_LIMITS,
        provider: str | None = None,
        service: Provider | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Ask a model by its name at the provider, with a key, or with headers from `credentials`.

        A connection may be silent for `silence` seconds. `service` says where the server departs
        from the protocol.
        """
        self.name = f"{provider or self.provider}:{model}"
        self._model = model
        self._service = service or self._default_service(base_url)
        self._base_url = (base_url or self._service.default_url).rstrip("/")
        path = self._service.path or self.path
        self._endpoint = Endpoint(
            self.name,
            f"{self._base_url}{path.format(model=quote(model, safe=''))}",
            headers={**self._headers(key), **self._service.headers},
            key=key,
            credentials=credentials,
            silence=silence,
            limits=limits,
        )

    def _default_service(self, base_url: str | None) -> Provider:
        del base_url
        return PROVIDERS[self.provider]

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        if names := changed_names(request.tools):
            answer = await self._answer(_with_model_names(request, names))
            return replace(answer, calls=_named(answer.calls, names))
        return await self._answer(request)

    async def _answer(self, request: ModelRequest) -> AssistantMessage:
        schema = self._output_schema(request)
        body = self._body(request, schema)
        if request.settings.extra:
            body = _merged(body, request.settings.extra)
        return await self._endpoint.ask(body, self._builder(request, schema))

    def settings_problem(self, settings: ModelSettings) -> str | None:
        if problem := self._service.settings.problem_with(settings):
            return f"{self.name}: {problem}"
        return None

    def _headers(self, key: str) -> dict[str, str]:
        # A server on one's own machine may need no key.
        if not key:
            return {}
        if self._service.login in {Login.API_KEY, Login.X_API_KEY}:
            return {self._service.login.value: key}
        return {"authorization": f"Bearer {key}"}

    def _output_schema(self, request: ModelRequest) -> ProviderSchema | None:
        if request.output is None or not self._service.quirks.has_json_schema:
            return None
        return provider_schema(request.output)

    @abstractmethod
    def _body(self, request: ModelRequest, schema: ProviderSchema | None) -> dict[str, Any]:
        """Return the request in the words of the protocol."""

    @abstractmethod
    def _builder(self, request: ModelRequest, schema: ProviderSchema | None) -> AnswerBuilder:
        """Return a new reader of one answer."""


def _with_model_names(request: ModelRequest, names: Mapping[str, str]) -> ModelRequest:
    """Return a request whose tools have names for models; its events have the tools' own names."""

    def tell(event: ModelEvent) -> None:
        if isinstance(event, CallDelta):
            event = replace(event, name=names.get(event.name, event.name))
        request.tell(event)

    choice = request.settings.tool_choice
    return replace(
        request,
        tools=[attrs.evolve(tool, name=model_name(tool.name)) for tool in request.tools],
        settings=attrs.evolve(request.settings, tool_choice=choice and model_name(choice)),
        tell=tell,
    )


def _named(calls: Iterable[ToolCall], names: Mapping[str, str]) -> tuple[ToolCall, ...]:
    return tuple(replace(call, name=names.get(call.name, call.name)) for call in calls)


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
