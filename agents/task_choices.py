"""The model and the effort that a parent chooses for one task, from the lists of its agent."""

from collections.abc import Sequence
from typing import Any, cast

import attrs

from orchestrator.agents.agent import Agent
from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.models.model import Model
from orchestrator.agents.models.registry import settings_problem
from orchestrator.agents.models.settings import ModelSettings, ReasoningEffort


def model_names(agent: Agent[Any]) -> list[str]:
    """Return the names of the models that a parent may choose for an agent."""
    return [_name(model) for model in agent.models]


def with_choices(agent: Agent[Any], model: str, effort: str) -> Agent[Any]:
    """Return an agent with the model and the effort that were chosen; empty texts choose nothing.

    Raises:
        DefinitionError: its lists do not have them, or the model does not support the effort.
    """
    chosen = agent.model
    if model:
        known = dict(zip(model_names(agent), agent.models, strict=True))
        chosen = known[_allowed(agent, "model", model, [*known])]
    settings = agent.settings
    if effort:
        named = cast("ReasoningEffort", _allowed(agent, "effort", effort, agent.efforts))
        settings = ModelSettings(reasoning_effort=named).over(settings)
        if problem := settings_problem(chosen, settings):
            raise DefinitionError(f"agent {agent.name!r} cannot take that effort: {problem}")
    return attrs.evolve(agent, model=chosen, settings=settings)


def _allowed(agent: Agent[Any], kind: str, chosen: str, known: Sequence[str]) -> str:
    if chosen in known:
        return chosen
    if not known:
        raise DefinitionError(
            f"agent {agent.name!r} lets no parent choose its {kind}: leave it out"
        )
    raise DefinitionError(
        f"{kind} is {chosen!r}; for agent {agent.name!r} it must be one of: {', '.join(known)}"
    )


def _name(model: str | Model) -> str:
    return model if isinstance(model, str) else model.name
