"""Settings that versions of a team vary: `model=a,b`, `researcher.limits.turns=3`, `make.limit=5`.

`NAME.FIELD` is a field of the agent NAME, or a parameter of the function NAME of the team's file,
which returns the team. Without a name, it is a field of the agent that gets the goal.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import attrs
import msgspec

from orchestrator.agents import Agent, DefinitionError, Pipeline, is_agent
from orchestrator.delegation import SessionRecord
from orchestrator.ports.execution import reachable_agents
from orchestrator.ports.sessions import ChangeAgent, ForkState


@attrs.frozen
class Setting:
    """One setting of a version."""

    name: str
    """The name of the setting, such as `researcher.model`."""
    value: Any

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


def parse_vary(text: str) -> tuple[Setting, ...]:
    """Return the settings of `NAME=VALUE,VALUE`; a value is JSON, or a text."""
    name, sign, values = text.partition("=")
    found = tuple(Setting(name.strip(), _value(it)) for it in values.split(",") if it.strip())
    if not (name.strip() and sign and found):
        raise DefinitionError(
            f"--vary {text!r} is not NAME=VALUE,VALUE: write model=openai:gpt-5,openai:gpt-5-mini"
        )
    return found


def make_versions(
    agent: Agent[Any],
    varied: Sequence[Sequence[Setting]],
    factories: Mapping[str, Callable[..., Any]],
) -> dict[str, Agent[Any]]:
    """Return a version of a team for each combination of settings, by the text of its settings."""
    versions: dict[str, Agent[Any]] = {}
    for settings in product(*varied):
        made = agent
        arguments: dict[str, dict[str, Any]] = {}
        fields: list[Setting] = []
        for it in settings:
            factory, _, parameter = it.name.rpartition(".")
            if factory in factories:
                arguments.setdefault(factory, {})[parameter] = it.value
            else:
                fields.append(it)
        for factory, values in arguments.items():
            made = _call(factory, factories[factory], values)
        for it in fields:
            made = with_setting(made, it)
        versions[" ".join(map(str, settings))] = made
    return versions


def with_setting(agent: Agent[Any], setting: Setting) -> Agent[Any]:
    """Return a team whose agent has another value in a field."""
    name, _, field = setting.name.partition(".")
    if not field:
        name, field = agent.name, setting.name
    if all(it.name != name for it in reachable_agents(agent)):
        names = ", ".join(sorted({it.name for it in reachable_agents(agent)}))
        raise DefinitionError(f"{setting}: the team has no agent {name!r}; it has {names}")
    changed = _replaced(agent, name, field, setting)
    if changed is agent:
        raise DefinitionError(
            f"{setting}: {name!r} is part of a program, which has its own copy of it; write a"
            " function that returns the team, and vary its parameter: make_team.model=a,b"
        )
    return changed


def parse_setting(text: str) -> Setting:
    """Return the setting of `AGENT.FIELD=VALUE`; a value is JSON, or a text."""
    name, sign, value = text.partition("=")
    agent, _, field = name.strip().partition(".")
    if not (agent and field and sign):
        raise DefinitionError(
            f"--set {text!r} is not AGENT.FIELD=VALUE: write researcher.model=openai:gpt-5"
        )
    return Setting(name.strip(), _value(value))


@attrs.frozen
class SettingsChange:
    """A change of agents by settings, each of a field of one agent; a fork records its texts."""

    settings: tuple[str, ...]
    """The settings as texts: `researcher.model=openai:gpt-5`."""
    _parsed: tuple[Setting, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_parsed", tuple(map(parse_setting, self.settings)))

    def __call__(self, agent: Agent[Any]) -> Agent[Any]:
        for setting in self._parsed:
            name, _, field = setting.name.partition(".")
            if name == agent.name:
                agent = _evolved(agent, field.split("."), setting)
        return agent


def change_of_fork(session: SessionRecord) -> ChangeAgent | None:
    """Return the change that a fork recorded; None if it recorded none."""
    settings = session.state(ForkState).settings
    return SettingsChange(settings) if settings else None


def _replaced(agent: Agent[Any], name: str, field: str, setting: Setting) -> Agent[Any]:
    delegates = tuple(_replaced(it, name, field, setting) for it in agent.delegates)
    if any(new is not old for new, old in zip(delegates, agent.delegates, strict=True)):
        agent = attrs.evolve(agent, delegates=delegates)
    if agent.name != name:
        return agent
    if isinstance(agent, Pipeline):
        raise DefinitionError(
            f"{setting}: {name!r} is a program; write a function that returns the team, and vary"
            " its parameter: make_team.limit=5,20"
        )
    changed: Agent[Any] = _evolved(agent, field.split("."), setting)
    return changed


def _evolved(value: Any, path: Sequence[str], setting: Setting) -> Any:
    first, *rest = path
    if not hasattr(value, first):
        raise DefinitionError(f"{setting}: a {type(value).__name__} has no field {first!r}")
    new = _evolved(getattr(value, first), rest, setting) if rest else setting.value
    try:
        if isinstance(value, msgspec.Struct):
            return msgspec.structs.replace(value, **{first: new})
        return attrs.evolve(value, **{first: new})
    except (TypeError, ValueError, DefinitionError) as exc:
        raise DefinitionError(f"{setting}: {exc}") from exc


def _call(name: str, factory: Callable[..., Any], values: Mapping[str, Any]) -> Agent[Any]:
    try:
        made = factory(**values)
    except TypeError as exc:
        raise DefinitionError(f"{name}(...): {exc}") from exc
    if not is_agent(made):
        raise DefinitionError(f"{name}(...) returned a {type(made).__name__}, not an agent")
    return made


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text.strip())
    except msgspec.DecodeError:
        return text.strip()
