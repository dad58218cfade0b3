"""Models by name: resolved once, limited, retried and priced as their provider needs it."""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from orchestrator.agents import Agent, DefinitionError, Model
from orchestrator.agents.models.settings import NO_SETTINGS
from orchestrator.delegation import TaskRecord
from orchestrator.kernel.settings import Models
from orchestrator.kernel.state_files import state_folder

if TYPE_CHECKING:
    from orchestrator.agents.models.provider_table import Provider
    from orchestrator.agents.models.registry import CloseableModel
    from orchestrator.agents.models.wrappers.pace import Pace
    from orchestrator.agents.models.wrappers.prices import PriceTable
    from orchestrator.agents.models.wrappers.shared_hold import SharedHold

MODELS_CLOSE_SECONDS: Final = 5
"""How long connections to models may take to close."""
FILE: Final = "models.toml"
FILE_VARIABLE: Final = "ORCHESTRATOR_MODELS"


def known_providers(environ: Mapping[str, str]) -> "Mapping[str, Provider]":
    """Return the known services and the services of the user's file, by name.

    A name is the part before the colon in the name of a model.
    """
    from orchestrator.agents.models.provider_file import read_providers
    from orchestrator.agents.models.provider_table import PROVIDERS

    file = environ.get(FILE_VARIABLE) or state_folder(environ) / FILE
    return {**PROVIDERS, **read_providers(Path(file))}


class ModelSource(Protocol):
    """The port for models: `ModelResolver` is the real one; simulation and replay have others."""

    def model_of(self, agent: Agent[Any]) -> Model:
        """Return the model of an agent, or raise `DefinitionError`."""
        ...

    def model_for(
        self, task: TaskRecord, agent: Agent[Any], budgeted: Callable[[Model], Model]
    ) -> Model:
        """Return the model that answers for a task."""
        ...

    async def aclose(self) -> None:
        """Close the connections of all models."""
        ...


class ModelResolver:
    """Resolves names of models, and remembers each."""

    def __init__(
        self,
        environ: Mapping[str, str],
        models: Models | None = None,
        *,
        connect: Callable[[str], Model] | None = None,
        hold_of: "Callable[[str], SharedHold] | None" = None,
    ) -> None:
        """Resolve models in an environment.

        Args:
            environ: has the keys and addresses of providers.
            models: the limits, prices and providers of the program.
            connect: makes the bare model of a name, where no provider is to be called.
            hold_of: returns the hold of a model that several processes share.
        """
        self._hold_of = hold_of
        self._environ = environ
        self._settings = Models() if models is None else models
        self._connect = connect or self._connect_provider
        self._models: dict[str, Model] = {}
        # One for each agent and its model, so that summaries are made once.
        self._compacting: dict[tuple[str, int, int, int, int], Model] = {}
        self._paces: dict[str, Pace] = {}
        """One for each model, shared by all agents that use it."""
        self._open: list[CloseableModel] = []

    def model_for(
        self, task: TaskRecord, agent: Agent[Any], budgeted: Callable[[Model], Model]
    ) -> Model:
        return budgeted(self.model_of(agent))

    def model_of(self, agent: Agent[Any]) -> Model:
        model = agent.model
        if isinstance(model, str):
            model = self._resolve(model)
        if agent.settings is not NO_SETTINGS:
            self._require_settings(agent, model)
        if (compaction := agent.compaction) is None:
            return model
        key = (
            agent.name,
            id(model),
            id(compaction.summarizer),
            compaction.window,
            compaction.keep_last,
        )
        if key not in self._compacting:
            from orchestrator.agents.models.wrappers.compaction import with_compaction

            self._compacting[key] = with_compaction(
                model,
                window=compaction.window,
                summarizer=None
                if compaction.summarizer is None
                else self._resolve(compaction.summarizer),
                keep_last=compaction.keep_last,
            )
        return self._compacting[key]

    def _require_settings(self, agent: Agent[Any], model: Model) -> None:
        """Refuse settings that the object of a model rejects."""
        from orchestrator.agents.models.registry import settings_problem

        if problem := settings_problem(model, agent.settings):
            raise DefinitionError(f"agent {agent.name!r}: its settings cannot be kept: {problem}")

    def _resolve(self, model: str | Model) -> Model:
        if not isinstance(model, str):
            return model
        if model not in self._models:
            # Imported when a model is named: a program with its own models does not need it.
            from orchestrator.agents.models.wrappers.fallback import with_fallback

            names = (name.strip() for name in model.split("|"))
            self._models[model] = with_fallback(*map(self._provider_model, names))
        return self._models[model]

    def _provider_model(self, name: str) -> Model:
        """Return a provider's model: rate-limited, retried, priced."""
        from orchestrator.agents.models.wrappers.leader import with_leader
        from orchestrator.agents.models.wrappers.pace import Pace, with_pace
        from orchestrator.agents.models.wrappers.prices import with_prices
        from orchestrator.agents.models.wrappers.rate_limit import with_rate_limit
        from orchestrator.agents.models.wrappers.retry import with_retries

        provider, _, _ = name.partition(":")
        model = self._connect(name)
        # By model: providers count by model, and a fallback may have the same provider. Innermost:
        # a call that the limiter holds back was not sent, and says nothing about the pace.
        if (pace := self._paces.get(name)) is None:
            shared = None if self._hold_of is None else self._hold_of(name)
            pace = self._paces[name] = Pace(policy=self._settings.policy, shared=shared)
        model = with_pace(model, pace)
        service = self._providers.get(provider)
        # Inside the limiter: a call that waits for its leader keeps its place in the queue.
        needs_marks = service is not None and not service.settings.caches_by_itself
        model = with_leader(model, needs_marks=needs_marks)
        # Two protocols of one provider are one account.
        account = provider.removesuffix("-responses")
        if limiter := self._settings.limiters.get(provider) or self._settings.limiters.get(account):
            model = with_rate_limit(model, limiter)
        if (table := self._prices_at(name, service)) is not None:
            model = with_prices(model, table)
        if (share := self._settings.hedge) is not None:
            from orchestrator.agents.models.wrappers.hedge import with_hedge

            model = with_hedge(model, share)
        return with_retries(model)

    def _prices_at(self, name: str, service: "Provider | None") -> "PriceTable | None":
        """Return the prices for a model: from the program, else from its service."""
        from orchestrator.agents.models.wrappers.prices import PriceTable

        own = self._settings.prices
        price = None if service is None else service.price
        if price is not None:
            table = own or PriceTable(source="the price of the service")
            known = table.price_of(name)
            return table.with_prices({name: price}) if known is None else table
        # Another server has its own prices, whatever its models are called.
        has_custom_url = service is not None and service.has_custom_url(self._environ)
        if own is None and has_custom_url:
            return None
        return own or PriceTable.shipped()

    @cached_property
    def _providers(self) -> "Mapping[str, Provider]":
        return {**known_providers(self._environ), **self._settings.providers}

    def _connect_provider(self, name: str) -> Model:
        from orchestrator.agents.models.registry import model_named

        model = model_named(name, self._environ, self._settings.answer_limits, self._providers)
        self._open.append(model)
        return model

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        for model in self._open:
            await model.aclose()
