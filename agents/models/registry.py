"""The registry of providers: finds a model by its name, `provider:model`."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, Protocol

import attrs

from agents.errors import DefinitionError
from agents.models.http.answer_limits import AnswerLimits
from agents.models.model import Model, known_settings_problem
from agents.models.settings import ModelSettings
from agents.models.settings_rules import (
    CHAT_RULES,
    LOCAL_RULES,
    MESSAGES_RULES,
    RESPONSES_RULES,
    SettingsRules,
)


class CloseableModel(Model, Protocol):
    """A model that holds connections."""

    async def aclose(self) -> None: ...


class ModelFactory(Protocol):
    """Makes a model of a provider."""

    def __call__(
        self, model: str, *, key: str, base_url: str | None, limits: AnswerLimits
    ) -> CloseableModel: ...


@attrs.frozen(kw_only=True)
class Provider:
    """A service that runs models, and what it takes to use it."""

    key_variable: str
    """The environment variable with the key."""
    base_url_variable: str
    """The environment variable with the base URL of another server of the same protocol."""
    extra: str
    """The extra of this package that installs its client."""
    load: Callable[[], ModelFactory]
    """Imports the provider on first use, since its client is an extra."""
    default_url: str
    """The base URL of the service itself."""
    settings: SettingsRules
    """What it can do of `ModelSettings`."""

    def has_custom_url(self, environ: Mapping[str, str]) -> bool:
        """Return whether another server is configured in place of the service."""
        url = environ.get(self.base_url_variable, "").strip().rstrip("/")
        return url not in {"", self.default_url}


def _openai() -> ModelFactory:
    from agents.models.providers.openai_chat import OpenAIModel

    return OpenAIModel


def _responses() -> ModelFactory:
    from agents.models.providers.openai_responses import ResponsesModel

    return ResponsesModel


def _anthropic() -> ModelFactory:
    from agents.models.providers.anthropic import AnthropicModel

    return AnthropicModel


PROVIDERS: Final[Mapping[str, Provider]] = {
    "openai": Provider(
        key_variable="OPENAI_API_KEY",
        base_url_variable="OPENAI_BASE_URL",
        extra="openai",
        load=_openai,
        default_url="https://api.openai.com/v1",
        settings=CHAT_RULES,
    ),
    "openai-responses": Provider(
        key_variable="OPENAI_API_KEY",
        base_url_variable="OPENAI_BASE_URL",
        extra="openai",
        load=_responses,
        default_url="https://api.openai.com/v1",
        settings=RESPONSES_RULES,
    ),
    "anthropic": Provider(
        key_variable="ANTHROPIC_API_KEY",
        base_url_variable="ANTHROPIC_BASE_URL",
        extra="anthropic",
        load=_anthropic,
        default_url="https://api.anthropic.com",
        settings=MESSAGES_RULES,
    ),
}


def settings_problem(model: str | Model, settings: ModelSettings) -> str | None:
    """Return what of these settings a model cannot do, as far as that is known of it.

    Args:
        model: a model, its name, or the names of several that stand in for each other.
        settings: what it is to do.
    """
    if not isinstance(model, str):
        return known_settings_problem(model, settings)
    for name in model.split("|"):
        prefix, _, _ = name.strip().partition(":")
        provider = PROVIDERS.get(prefix)
        rules = LOCAL_RULES if prefix == "local" else provider and provider.settings
        if rules and (problem := rules.problem_with(settings)):
            return f"{name.strip()}: {problem}"
    return None


def model_named(
    name: str,
    environ: Mapping[str, str],
    answer_limits: AnswerLimits | None = None,
) -> CloseableModel:
    """Return the model of this name.

    Args:
        name: the provider, a colon, and the provider's own name of the model.
        environ: the variables with keys and base URLs, usually `os.environ`.
        answer_limits: how much the provider may send for one answer.
    """
    prefix, _, model = name.partition(":")
    if prefix == "local" and model:
        # It needs no key and no client, and imports its engine on the first request.
        from agents.models.providers.local import local_model

        return local_model(model)
    provider = PROVIDERS.get(prefix)
    if provider is None or not model:
        known = ", ".join(f"'{prefix}:<model>'" for prefix in (*PROVIDERS, "local"))
        raise DefinitionError(f"there is no model {name!r}; a model's name is {known}")
    try:
        # Imported by itself: a module of ours that was imported before would hide that it is gone.
        import_module("httpx2")
        from agents.models.http.url import is_on_loopback

        make = provider.load()
    except ModuleNotFoundError as exc:
        raise DefinitionError(
            f"model {name!r} needs the package {exc.name!r}:"
            f" pip install 'delegation-orchestrator[{provider.extra}]'"
        ) from exc
    base_url = environ.get(provider.base_url_variable, "").strip() or None
    key = environ.get(provider.key_variable, "").strip()
    # A server on this machine, such as Ollama, needs none.
    if not key and (base_url is None or not is_on_loopback(base_url)):
        raise DefinitionError(
            f"model {name!r} needs a key: set {provider.key_variable}, or give the agent a"
            " ScriptedModel to try things without one"
        )
    limits = AnswerLimits() if answer_limits is None else answer_limits
    return make(model, key=key, base_url=base_url, limits=limits)
