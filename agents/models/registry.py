"""From a model's name to the model: `provider:model`."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, Protocol

import attrs

from agents.errors import DefinitionError
from agents.models.model import Model


class NamedModel(Model, Protocol):
    """A model that holds connections."""

    async def aclose(self) -> None: ...


class Maker(Protocol):
    """Makes a model of a provider."""

    def __call__(self, model: str, *, key: str, base_url: str | None) -> NamedModel: ...


@attrs.frozen(kw_only=True)
class Provider:
    """Who runs models, and what we need to ask them."""

    key: str
    """The environment variable with the key."""
    base_url: str
    """The environment variable with another address that speaks the same protocol."""
    extra: str
    """What to install it with."""
    load: Callable[[], Maker]
    """Imports the provider, when somebody names it: its client is an extra."""
    home: str
    """Its own address."""

    def is_elsewhere(self, environ: Mapping[str, str]) -> bool:
        """Tell whether somebody else answers: another address is named."""
        url = environ.get(self.base_url, "").strip().rstrip("/")
        return url not in {"", self.home}


def _openai() -> Maker:
    from agents.models.providers.openai_chat import OpenAIModel

    return OpenAIModel


def _responses() -> Maker:
    from agents.models.providers.openai_responses import ResponsesModel

    return ResponsesModel


def _anthropic() -> Maker:
    from agents.models.providers.anthropic import AnthropicModel

    return AnthropicModel


PROVIDERS: Final[Mapping[str, Provider]] = {
    "openai": Provider(
        key="OPENAI_API_KEY",
        base_url="OPENAI_BASE_URL",
        extra="openai",
        load=_openai,
        home="https://api.openai.com/v1",
    ),
    "openai-responses": Provider(
        key="OPENAI_API_KEY",
        base_url="OPENAI_BASE_URL",
        extra="openai",
        load=_responses,
        home="https://api.openai.com/v1",
    ),
    "anthropic": Provider(
        key="ANTHROPIC_API_KEY",
        base_url="ANTHROPIC_BASE_URL",
        extra="anthropic",
        load=_anthropic,
        home="https://api.anthropic.com",
    ),
}


def model_named(name: str, environ: Mapping[str, str]) -> NamedModel:
    """Return the model of this name.

    Args:
        name: the provider, a colon, and the provider's own name of the model.
        environ: where keys and addresses are looked up, usually `os.environ`.
    """
    prefix, _, model = name.partition(":")
    if prefix == "local" and model:
        # It needs no key and no client; its engine is imported when it is first asked.
        from agents.models.providers.local import local_model

        return local_model(model)
    provider = PROVIDERS.get(prefix)
    if provider is None or not model:
        known = ", ".join(f"'{prefix}:<model>'" for prefix in (*PROVIDERS, "local"))
        raise DefinitionError(f"there is no model {name!r}; a model's name is {known}")
    try:
        # By itself, since whoever of ours was imported once is not looked at again.
        import_module("httpx2")
        from agents.models.http.endpoint import is_on_loopback

        make = provider.load()
    except ModuleNotFoundError as exc:
        raise DefinitionError(
            f"model {name!r} needs the package {exc.name!r}:"
            f" pip install 'delegation-orchestrator[{provider.extra}]'"
        ) from exc
    base_url = environ.get(provider.base_url, "").strip() or None
    key = environ.get(provider.key, "").strip()
    # A server on this machine, such as Ollama, needs none.
    if not key and (base_url is None or not is_on_loopback(base_url)):
        raise DefinitionError(
            f"model {name!r} needs a key: set {provider.key}, or give the agent a"
            " ScriptedModel to try things without one"
        )
    return make(model, key=key, base_url=base_url)
