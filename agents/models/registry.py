"""The registry of providers: finds a model by its name, `provider:model`."""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from shutil import which
from typing import TYPE_CHECKING, Final, Protocol

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.models.http.answer_limits import AnswerLimits
from orchestrator.agents.models.model import Model, known_settings_problem, knows_custom_tools
from orchestrator.agents.models.provider_table import PROVIDERS, Login, Provider, WireProtocol
from orchestrator.agents.models.settings import ModelSettings
from orchestrator.agents.models.settings_rules import LOCAL_RULES
from orchestrator.agents.nearest_name import nearest_name

if TYPE_CHECKING:
    from orchestrator.agents.models.http.credentials import Credentials

__all__ = [
    "PROVIDERS",
    "CloseableModel",
    "Provider",
    "has_custom_tools",
    "model_named",
    "settings_problem",
    "unknown_model",
]

GCLOUD: Final = "gcloud"
CUSTOM_TOOL_PROVIDERS: Final = frozenset({"openai", "openai-responses"})
"""Those whose models take a text instead of arguments, and keep to its grammar."""


class CloseableModel(Model, Protocol):
    """A model that holds connections."""

    async def aclose(self) -> None: ...


class ModelFactory(Protocol):
    """Makes a model of a provider."""

    def __call__(
        self,
        model: str,
        *,
        key: str,
        base_url: str | None,
        limits: AnswerLimits,
        provider: str,
        service: Provider,
        credentials: "Credentials | None",
    ) -> CloseableModel: ...


def _chat() -> ModelFactory:
    from orchestrator.agents.models.providers.openai_chat import OpenAIModel

    return OpenAIModel


def _responses() -> ModelFactory:
    from orchestrator.agents.models.providers.openai_responses import ResponsesModel

    return ResponsesModel


def _messages() -> ModelFactory:
    from orchestrator.agents.models.providers.anthropic import AnthropicModel

    return AnthropicModel


_LOADERS: Final[Mapping[WireProtocol, Callable[[], ModelFactory]]] = {
    WireProtocol.CHAT: _chat,
    WireProtocol.RESPONSES: _responses,
    WireProtocol.MESSAGES: _messages,
}
"""Each imports its module on first use, since the client is an extra."""


def settings_problem(model: str | Model, settings: ModelSettings) -> str | None:
    """Return what of these settings a model cannot do, as far as that is known of it."""
    if not isinstance(model, str):
        return known_settings_problem(model, settings)
    for name in model.split("|"):
        prefix, _, _ = name.strip().partition(":")
        provider = PROVIDERS.get(prefix)
        rules = LOCAL_RULES if prefix == "local" else provider and provider.settings
        if rules and (problem := rules.problem_with(settings)):
            return f"{name.strip()}: {problem}"
    return None


def has_custom_tools(model: str | Model) -> bool:
    """Return whether a model is known to keep to the grammars of custom tools."""
    if not isinstance(model, str):
        return knows_custom_tools(model)
    return all(name.strip().partition(":")[0] in CUSTOM_TOOL_PROVIDERS for name in model.split("|"))


FAMILIES: Final = {
    "gpt-": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude-": "anthropic",
    "gemini-": "gemini",
    "grok-": "xai",
    "mistral-": "mistral",
    "deepseek-": "deepseek",
}
"""How the names of models begin, and whose they are."""


def model_named(
    name: str,
    environ: Mapping[str, str],
    answer_limits: AnswerLimits | None = None,
    providers: Mapping[str, Provider] = PROVIDERS,
) -> CloseableModel:
    """Return the model of this name.

    Args:
        name: the provider, a colon, and the provider's own name of the model.
        environ: the variables with keys and base URLs, usually `os.environ`.
        answer_limits: how much the provider may send for one answer.
        providers: the services, by the names that they have before the colon.
    """
    prefix, _, model = name.partition(":")
    if prefix == "local" and model:
        # It needs no key and no client, and imports its engine on the first request.
        from orchestrator.agents.models.providers.local import local_model

        return local_model(model)
    provider = providers.get(prefix)
    if provider is None or not model:
        raise DefinitionError(unknown_model(name, (*providers, "local")))
    try:
        # Imported by itself: a module of ours that was imported before would hide that it is gone.
        import_module("httpx2")
        make = _LOADERS[provider.protocol]()
    except ModuleNotFoundError as exc:
        raise DefinitionError(
            f"model {name!r} needs the package {exc.name!r}:"
            f" pip install 'delegation-orchestrator[{provider.extra}]'"
        ) from exc
    base_url = provider.base_url(name, environ)
    key, credentials = _login(name, provider, base_url, environ)
    return make(
        model,
        key=key,
        base_url=base_url,
        limits=AnswerLimits() if answer_limits is None else answer_limits,
        provider=prefix,
        service=provider,
        credentials=credentials,
    )


def unknown_model(name: str, prefixes: Collection[str]) -> str:
    """Return the problem of a model name, and the name that was probably meant."""
    head, sign, model = name.replace("/", ":", 1).partition(":")
    family = next((it for it in FAMILIES if name.startswith(it)), None)
    prefix = nearest_name(head, prefixes) if sign else None
    if prefix is not None and model:
        hint = f"did you mean {f'{prefix}:{model}'!r}? A"
    elif family is not None and not sign:
        hint = f"did you mean {f'{FAMILIES[family]}:{name}'!r}? A"
    else:
        hint = "a"
    known = ", ".join(f"'{prefix}:<model>'" for prefix in prefixes)
    return f"there is no model {name!r}; {hint} model's name is {known}"


def _login(
    name: str, provider: Provider, base_url: str, environ: Mapping[str, str]
) -> "tuple[str, Credentials | None]":
    """Return the key of a provider, or what makes one for each request."""
    from orchestrator.agents.models.http.credentials import GcloudToken, TokenFunction
    from orchestrator.agents.models.http.url import is_on_loopback

    if provider.token is not None:
        return "", TokenFunction(provider.token)
    key = environ.get(provider.key_variable, "").strip()
    # A server on this machine, such as Ollama, needs no key.
    is_needed = bool(provider.key_variable) and not is_on_loopback(base_url)
    if provider.login is Login.AWS:
        return _aws_login(name, environ, is_needed=is_needed)
    if not key and provider.login is Login.GOOGLE:
        if is_needed and which(GCLOUD) is None:
            raise _missing_key(
                name,
                f"set {provider.key_variable} to a token, or install gcloud and log in with it",
            )
        return "", GcloudToken() if is_needed else None
    if not key and is_needed:
        raise _missing_key(name, f"set {provider.key_variable}")
    return key, None


def _aws_login(
    name: str, environ: Mapping[str, str], *, is_needed: bool
) -> "tuple[str, Credentials | None]":
    from orchestrator.agents.models.http.aws_signature import AwsKeys

    if key := environ.get("AWS_BEARER_TOKEN_BEDROCK", "").strip():
        return key, None
    access = environ.get("AWS_ACCESS_KEY_ID", "").strip()
    secret = environ.get("AWS_SECRET_ACCESS_KEY", "").strip()
    if not (access and secret):
        if is_needed:
            raise _missing_key(
                name, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK"
            )
        return "", None
    return "", AwsKeys(
        access_key=access,
        secret_key=secret,
        session_token=environ.get("AWS_SESSION_TOKEN", "").strip(),
        region=environ.get("AWS_REGION", "").strip()
        or environ.get("AWS_DEFAULT_REGION", "").strip()
        or "us-east-1",
    )


def _missing_key(name: str, what_to_do: str) -> DefinitionError:
    return DefinitionError(
        f"model {name!r} needs a key: {what_to_do}; `orchestrator simulate` tries agents"
        " without one"
    )
