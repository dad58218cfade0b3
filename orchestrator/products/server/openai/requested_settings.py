"""The model settings of a client's request, and which of them its agent applies.

No parameter is ignored silently. A parameter that an agent cannot apply is named in a header of the
answer, or refused by a strict server.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from orchestrator.agents import Agent, DefinitionError, ModelSettings, Pipeline
from orchestrator.agents.models.registry import settings_problem
from orchestrator.products.server.openai.conversation import Dialect
from orchestrator.products.server.transport.errors import bad_request

IGNORED: Final = "x-ignored-parameters"
"""The header that names the parameters that the agent does not apply."""
PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MOST_NAMES: Final = 20
HARMLESS: Final = frozenset(
    {
        *("user", "safety_identifier", "store", "service_tier"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        # These are only about speed, padding or access.
        *("prediction", "stream_options", "access_programs"),
    }
)
"""The parameters that change no answer: a strict server takes them, too."""


class Parameter(msgspec.Struct, frozen=True, gc=False):
    """One parameter of a request."""

    name: str
    """Its name in the request."""
    setting: str
    """Its name in `ModelSettings`."""
    value: Any


class KeptSettings(msgspec.Struct, frozen=True, gc=False):
    """The parameters of a request that an agent applies."""

    settings: Mapping[str, Any]
    """The settings, as in `AnswerTerms`."""
    ignored: tuple[str, ...]
    """The names of the parameters that it does not apply."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers that tell the client about ignored parameters."""
        if not self.ignored:
            return {}
        # A client may send any text as a name, and a header cannot carry every text.
        shown = [name for name in self.ignored if PLAIN.fullmatch(name)][:MOST_NAMES]
        rest = [] if len(shown) == len(self.ignored) else ["..."]
        return {IGNORED: ", ".join(shown + rest)}


def also_ignored(headers: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Add further names to the headers that tell about ignored parameters."""
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
    """Return the parameters of a request that an agent applies, or refuse the request."""
    problems = dict.fromkeys(unknown, "there is no such setting")
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
    refused = next((it for it in problems if it not in HARMLESS), None) if is_strict else None
    if refused is not None:
        raise bad_request(
            f"{agent.name} cannot apply {refused!r}: {problems[refused]}; leave it out",
            param=refused,
            code="unsupported_parameter",
        )
    values = {it.setting: it.value for it in kept.values()}
    if values and (problem := _problem(agent, _over_its_own(agent, values))):
        # Each alone can be applied, but not all together.
        raise dialect.invalid_value(
            f"{agent.name} cannot apply all these settings together: {problem}",
            next(iter(kept.values())).name,
        )
    return KeptSettings(values, tuple(sorted(problems)))


def _over_its_own(agent: Agent[Any], values: Mapping[str, Any]) -> ModelSettings:
    return ModelSettings(**values).over(agent.settings)


def _problem(agent: Agent[Any], settings: ModelSettings) -> str | None:
    if isinstance(agent, Pipeline):
        return "it is a pipeline, whose agents have their own settings"
    return settings_problem(agent.model, settings)
