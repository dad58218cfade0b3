"""The settings of a model that a client asks for, and which of them its agent keeps.

No parameter is ignored in silence. What an agent cannot keep is named in a header of the answer, or
refused where the server is strict.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from orchestrator.agents import Agent, DefinitionError, ModelSettings, Pipeline
from orchestrator.agents.models.registry import settings_problem
from orchestrator.products.server.openai.conversation import Dialect
from orchestrator.products.server.transport.errors import bad_request

IGNORED: Final = "x-ignored-parameters"
"""The header that names what a request asks for and its agent cannot keep."""
PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MOST_NAMES: Final = 20
WITHOUT_EFFECT: Final = frozenset(
    {
        *("user", "safety_identifier", "store", "service_tier"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        # What is only about speed, padding, or who may ask.
        *("prediction", "stream_options", "access_programs"),
    }
)
"""The parameters that change no answer: nothing is said of them."""


@attrs.frozen
class Parameter:
    """One parameter of a request."""

    name: str
    """As the client calls it."""
    setting: str
    """As `ModelSettings` calls it."""
    value: Any


@attrs.frozen
class KeptSettings:
    """What an agent keeps of the parameters of a request."""

    settings: Mapping[str, Any]
    """The settings, as `AnswerTerms` have them."""
    ignored: tuple[str, ...]
    """The names of the parameters that it does not keep."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers by which the client is told."""
        if not self.ignored:
            return {}
        # A client may send any text as a name.
        shown = [name for name in self.ignored if PLAIN.fullmatch(name)][:MOST_NAMES]
        rest = [] if len(shown) == len(self.ignored) else ["..."]
        return {IGNORED: ", ".join(shown + rest)}


def also_ignored(headers: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return headers that name further parameters, of which it shows late that they are not kept.

    Args:
        headers: those that name what was ignored from the beginning.
        names: the further parameters.
    """
    known = headers.get(IGNORED)
    return {**headers, IGNORED: ", ".join([*([known] if known else []), *names])}


def keep_settings(
    agent: Agent[Any],
    parameters: Iterable[Parameter],
    unknown: Iterable[str],
    dialect: Dialect,
    *,
    is_strict: bool,
) -> KeptSettings:
    """Return what an agent keeps of the parameters of a request, or refuse them.

    Args:
        agent: the agent that is asked.
        parameters: those that are settings of a model; a value of None is left out.
        unknown: the names of all others.
        dialect: the words of the errors.
        is_strict: refuse what the agent cannot keep.
    """
    problems = {
        name: "there is no such setting here" for name in unknown if name not in WITHOUT_EFFECT
    }
    kept: dict[str, Parameter] = {}
    for it in parameters:
        if it.value is None:
            continue
        try:
            settings = ModelSettings(**{it.setting: it.value})
        except DefinitionError as exc:
            raise dialect.invalid_value(str(exc), it.name) from exc
        if problem := _problem(agent, settings):
            problems[it.name] = problem
        else:
            kept[it.setting] = it
    if problems and is_strict:
        name, problem = next(iter(problems.items()))
        raise bad_request(
            f"{agent.name} cannot keep {name!r}: {problem}; leave it out",
            param=name,
            code="unsupported_parameter",
        )
    values = {it.setting: it.value for it in kept.values()}
    if values and (problem := _problem(agent, _over_its_own(agent, values))):
        # One alone can be kept; not all of them together.
        raise dialect.invalid_value(
            f"{agent.name} cannot keep all of this at once: {problem}",
            next(iter(kept.values())).name,
        )
    return KeptSettings(values, tuple(sorted(problems)))


def _over_its_own(agent: Agent[Any], values: Mapping[str, Any]) -> ModelSettings:
    return ModelSettings(**values).over(agent.settings)


def _problem(agent: Agent[Any], settings: ModelSettings) -> str | None:
    if isinstance(agent, Pipeline):
        return "it is a pipeline, a program whose agents have settings of their own"
    return settings_problem(agent.model, settings)
