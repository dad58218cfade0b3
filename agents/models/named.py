"""From a model's name to the model: `provider:model`."""

from collections.abc import Mapping
from typing import Protocol

from agents.errors import DefinitionError
from agents.models.model import Model

PROVIDERS = ("openai",)


class NamedModel(Model, Protocol):
    """A model that holds connections."""

    async def aclose(self) -> None: ...


def model_named(name: str, environ: Mapping[str, str]) -> NamedModel:
    """Return the model of this name.

    Args:
        name: the provider, a colon, and the provider's own name of the model.
        environ: where keys and addresses are looked up, usually `os.environ`.
    """
    provider, _, model = name.partition(":")
    if provider not in PROVIDERS or not model:
        known = ", ".join(f"'{provider}:<model>'" for provider in PROVIDERS)
        raise DefinitionError(f"there is no model {name!r}; a model's name is {known}")
    if not (key := environ.get("OPENAI_API_KEY", "").strip()):
        raise DefinitionError(
            f"model {name!r} needs a key: set OPENAI_API_KEY, or give the agent a"
            " ScriptedModel to try things without one"
        )
    try:
        # A provider is imported when somebody names it: its client is an extra.
        from agents.models.openai import OpenAIModel
    except ModuleNotFoundError as exc:
        raise DefinitionError(
            f"model {name!r} needs the package {exc.name!r}:"
            " pip install 'delegation-orchestrator[openai]'"
        ) from exc
    return OpenAIModel(model, key=key, base_url=environ.get("OPENAI_BASE_URL"))
