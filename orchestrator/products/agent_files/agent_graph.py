"""Agents made of entries: names are looked up, delegates are built before their parents."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from inspect import signature
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from orchestrator.agents import (
    Agent,
    Budget,
    DefinitionError,
    Limits,
    Model,
    ModelSettings,
    Patience,
    Tool,
    allow,
    confirm,
    deny,
)
from orchestrator.agents.approval import ApprovalRule
from orchestrator.agents.nearest_name import did_you_mean
from orchestrator.agents.skills import unknown_keys_note
from orchestrator.agents.tools.place_name import require_place_name
from orchestrator.products.agent_files import tool_names
from orchestrator.products.agent_files.entry import AgentEntry
from orchestrator.products.agent_files.job_entry import JobEntry, read_schedule
from orchestrator.products.agent_files.located import Located, split_names
from orchestrator.products.agent_files.server_names import KEYS as SERVER_KEYS
from orchestrator.products.agent_files.server_names import is_of_server, servers_of
from orchestrator.products.agent_files.skill_entry import is_for_claude_code, memory_of, skills_of
from orchestrator.products.agent_files.team_file import TeamEntries
from orchestrator.products.agent_files.unknown_keys import left_out_keys

SettingsT = TypeVar("SettingsT", Budget, Limits, Patience)

LOOKED_UP: Final = frozenset(
    {"model", "tools", "disallowedTools", "delegates", "approve", *SERVER_KEYS}
)
"""The keys that name other things."""
INHERIT: Final = "inherit"
CLAUDE_MODELS: Final = {
    "opus": "anthropic:claude-opus-5-5",
    "sonnet": "anthropic:claude-sonnet-5-5",
    "haiku": "anthropic:claude-haiku-4-5",
}
"""The short names of models in Claude Code."""
RULES: Final[Mapping[str, Callable[..., ApprovalRule]]] = {
    "allow": allow,
    "confirm": confirm,
    "deny": deny,
}
ON_RESTART: Final = ("resume", "restart", "lose")
SHOWN_PLACES: Final = 3


@attrs.frozen(kw_only=True)
class BuiltTeam:
    """The agents of a file or a folder."""

    agents: Mapping[str, Agent[str]]
    lead: str | None
    """The name of the one that the file names as its lead."""
    warnings: tuple[str, ...]
    """The keys in the files that have no meaning here."""
    jobs: tuple[JobEntry, ...] = ()
    """The jobs that start the agents by the clock."""
    policy: str | None = None
    """The order of model calls that wait for a provider."""


def build_team(
    team: TeamEntries,
    *,
    tools: Iterable[Tool] = (),
    model: str | Model | None = None,
    services: Collection[str] | None = None,
) -> BuiltTeam:
    """Return the agents of a team."""
    entries: dict[str, AgentEntry] = {}
    for entry in team.entries:
        name = entry.name.as_text("a name")
        if name in entries:
            other = entries[name].at
            entry.name.refuse(
                f"there are two agents called {name!r}: the other one is {other.file}:{other.line}"
            )
        entries[name] = entry
    warnings = tuple(_warnings(team.entries))
    if services is not None:
        models = [team.model, *(it.fields.get("model") for it in team.entries)]
        _require_services(models, services)
    builder = _Builder(entries, tool_names.ToolNames(tools), _model_text(team.model) or model)
    agents = builder.build()
    warnings += tuple(_skill_warnings(agents.values()))
    lead = None if team.lead is None else team.lead.as_text("the lead")
    if team.lead is not None and lead not in agents:
        team.lead.refuse(f"there is no agent {lead!r} to lead; {did_you_mean(str(lead), agents)}")
    if team.pipelines is not None:
        # Imported late: most teams have no scripts.
        from orchestrator.products.agent_files.pipeline_entry import read_pipelines

        lead = lead or _only_root(agents)
        agents |= read_pipelines(team.pipelines, agents, lead)
    jobs = read_schedule(team.schedule, agents, lead)
    return BuiltTeam(
        agents=agents, lead=lead, warnings=warnings, jobs=jobs, policy=_policy_name(team.policy)
    )


def _only_root(agents: Mapping[str, Agent[Any]]) -> str | None:
    """Return the agent that is no delegate of another one, if there is one alone."""
    below = {it.name for agent in agents.values() for it in agent.delegates}
    roots = [name for name in agents if name not in below]
    return roots[0] if len(roots) == 1 else None


def _policy_name(policy: Located | None) -> str | None:
    if policy is None:
        return None
    # Imported late: most teams name no policy.
    from orchestrator.agents.models.call_order import POLICIES

    name = policy.as_text("the policy")
    if name not in POLICIES:
        policy.refuse(f"there is no policy {name!r}; {did_you_mean(name, POLICIES)}")
    return name


class _Builder:
    def __init__(
        self,
        entries: Mapping[str, AgentEntry],
        tools: tool_names.ToolNames,
        model: str | Model | None,
    ) -> None:
        self._entries = entries
        self._tools = tools
        self._model = model
        self._delegates = {
            name: self._delegate_names(name, entry) for name, entry in entries.items()
        }
        self._parents: dict[str, list[str]] = defaultdict(list)
        for name, delegates in self._delegates.items():
            for delegate in delegates:
                self._parents[delegate].append(name)

    def build(self) -> dict[str, Agent[str]]:
        built: dict[str, Agent[str]] = {}
        for name in self._in_order():
            built[name] = self._agent(name, self._entries[name], built)
        return {name: built[name] for name in self._entries}

    def _in_order(self) -> list[str]:
        try:
            return [*TopologicalSorter(self._delegates).static_order()]
        except CycleError as exc:
            cycle: list[str] = exc.args[1][::-1]
            entry = self._entries[cycle[0]]
            (entry.fields.get("delegates") or entry.at).refuse(
                f"these agents delegate to each other in a circle: {' -> '.join(cycle)}; remove"
                " one of them from the delegates of the other. An agent that divides its own work"
                " has 'copies: true'"
            )

    def _agent(self, name: str, entry: AgentEntry, built: Mapping[str, Agent[str]]) -> Agent[str]:
        fields = entry.fields
        model = self._model_of(name, ())
        _require_settings(name, model, fields.get("settings"))
        try:
            return Agent(
                name,
                instructions=entry.instructions.as_text("instructions"),
                model=model,
                tools=self._tools_of(fields),
                servers=servers_of(fields),
                delegates=[built[it] for it in self._delegates[name]],
                approve=self._rules_of(fields),
                **{
                    key: PARSERS[key](value)
                    for key, value in fields.items()
                    if key in PARSERS
                    and (value.value is not None or key in NEVER_EMPTY)
                    and not is_for_claude_code(key, value)
                },
            )
        except DefinitionError as exc:
            if hasattr(exc, "line"):
                raise
            raise entry.name.error(str(exc)) from exc

    def _tools_of(self, fields: Mapping[str, Located]) -> list[Tool]:
        found: dict[str, Tool] = {}
        for name in _names(fields, "tools"):
            if _delegation(name) is None:
                found |= {tool.name: tool for tool in self._tools.find(name)}
        for name in _names(fields, "disallowedTools"):
            if _delegation(name) is None:
                for tool in self._tools.find(name):
                    found.pop(tool.name, None)
        return [*found.values()]

    def _delegate_names(self, name: str, entry: AgentEntry) -> list[str]:
        others = [it for it in self._entries if it != name]
        found: dict[str, None] = {}
        for each in wanted_delegates(entry):
            delegate = each.as_text("a delegate")
            if delegate == tool_names.ALL:
                found |= dict.fromkeys(others)
            elif delegate == name:
                each.refuse(f"{name!r} delegates to copies of itself by 'copies: true'")
            elif delegate not in self._entries:
                each.refuse(
                    f"there is no agent {delegate!r} to delegate to;"
                    f" {did_you_mean(delegate, others) if others else 'there is no other'}"
                )
            else:
                found[delegate] = None
        return [*found]

    def _rules_of(self, fields: Mapping[str, Located]) -> list[ApprovalRule]:
        if "approve" not in fields:
            return []
        return [
            rule for item in fields["approve"].as_items("approve") for rule in self._rules(item)
        ]

    def _rules(self, item: Located) -> Iterable[ApprovalRule]:
        example = "{confirm: terminal, command: git push*}"
        keys = dict(item.as_mapping("a rule", example))
        verdicts = [key for key in keys if key in RULES]
        if len(verdicts) != 1:
            item.refuse(f"a rule has one of allow, confirm and deny: write {example!r}")
        (verdict,) = verdicts
        make, tool = RULES[verdict], keys.pop(verdict)
        known = [it for it in signature(make).parameters if it != "tool"]
        for key, value in keys.items():
            if key not in known:
                value.refuse(f"a rule of {verdict!r} has no {key!r}; {did_you_mean(key, known)}")
        if is_of_server(tool.as_text("a tool"), self._server_names):
            names = [tool.as_text("a tool")]
        else:
            names = self._tools.in_rule(tool)
            self._require_in_use(verdict, tool, names)
        # What its values may be, a rule says itself.
        more: dict[str, Any] = {key: value.value for key, value in keys.items()}
        try:
            return [make(name, **more) for name in names]
        except (DefinitionError, TypeError) as exc:
            raise item.error(f"this is no rule: {exc}; write {example!r}") from exc

    def _require_in_use(self, verdict: str, tool: Located, names: list[str]) -> None:
        """Refuse a rule that decides nothing, since it replaces the safe default.

        Agents below inherit it, so the tool may be that of another one. What no agent has is
        denied anyway.
        """
        text = tool.as_text("a tool")
        is_kept = verdict == "deny" or tool_names.PATTERN_SIGNS.intersection(text)
        if not is_kept and self._tools_in_use.isdisjoint(names):
            tool.refuse(
                f"no agent here has the tool {text!r}, so the rule decides nothing: name the tool"
                " under 'tools', or remove the rule"
            )

    @cached_property
    def _server_names(self) -> frozenset[str]:
        """The servers that agents of this team have."""
        entries = self._entries.values()
        return frozenset(it.name for entry in entries for it in servers_of(entry.fields))

    @cached_property
    def _tools_in_use(self) -> frozenset[str]:
        """The tools that agents of this team have."""
        own = {
            tool.name for entry in self._entries.values() for tool in self._tools_of(entry.fields)
        }
        return frozenset({*own, *tool_names.BROUGHT_TOOLS})

    def _model_of(self, name: str, above: tuple[str, ...]) -> str | Model:
        """Return the model of an agent: its own, the team's, or its parents'."""
        entry = self._entries[name]
        own = _model_text(entry.fields.get("model"))
        if own is not None:
            return own
        if self._model is not None:
            return self._model
        models = {self._model_of(parent, (*above, name)) for parent in self._parents[name]}
        if len(models) == 1:
            return models.pop()
        why = (
            f"its parents ({', '.join(self._parents[name])}) have different ones"
            if models
            else "no agent that delegates to it has one to inherit"
        )
        raise (entry.fields.get("model") or entry.at).error(
            f"agent {name!r} names no model, and {why}: write 'model: openai:gpt-5-mini', or name"
            " one for all that name none: 'model:' in team.yaml, --model of run and chat, or"
            " load_agents(..., model=...)"
        )


def wanted_delegates(entry: AgentEntry) -> list[Located]:
    """Return the agents that an agent delegates to, by the names that its file gives them."""
    wanted = _names(entry.fields, "delegates")
    # In Claude Code, delegation is a tool, in parentheses the agents that it may name.
    for tool in _names(entry.fields, "tools"):
        wanted += _delegation(tool) or []
    return wanted


def _delegation(tool: Located) -> list[Located] | None:
    """Return the delegates of a Claude Code tool; None if it is another tool."""
    text = tool.as_text("a tool")
    name, parenthesis, rest = text.partition("(")
    if name not in tool_names.DELEGATION_NAMES:
        return None
    names = split_names(rest.removesuffix(")")) if parenthesis else [tool_names.ALL]
    return [attrs.evolve(tool, value=it) for it in names]


def _names(fields: Mapping[str, Located], key: str) -> list[Located]:
    return fields[key].as_names(key) if key in fields else []


def _model_text(found: Located | None) -> str | None:
    if found is None or found.value is None:
        return None
    text = found.as_text("a model").strip()
    if text in {"", INHERIT}:
        return None
    if text.startswith("claude-"):
        return f"anthropic:{text}"
    if ":" not in text and text not in CLAUDE_MODELS:
        found.refuse(
            f"there is no model {text!r}: a name has its provider before it, such as"
            f" 'openai:{text}'; or one of {', '.join(CLAUDE_MODELS)}, {INHERIT}"
        )
    return CLAUDE_MODELS.get(text, text)


def _require_services(models: Iterable[Located | None], services: Collection[str]) -> None:
    """Refuse a model of a service that is not there."""
    # Imported late: a program that has models of its own needs no registry.
    from orchestrator.agents.models.registry import unknown_model

    for found in models:
        text = _model_text(found)
        if found is None or text is None:
            continue
        for name in map(str.strip, text.split("|")):
            service, _, model = name.partition(":")
            if service not in services or not model:
                found.refuse(unknown_model(name, services))


def _require_settings(name: str, model: str | Model, found: Located | None) -> None:
    """Refuse settings that the model cannot keep, at the line of the first of them."""
    if found is None or found.value is None:
        return
    from orchestrator.agents.models.registry import settings_problem

    problem = settings_problem(model, _model_settings(found))
    if problem is None:
        return
    settings = found.as_mapping("settings", "{temperature: 0}")
    alone = (
        value
        for key, value in settings.items()
        if settings_problem(model, ModelSettings(**{key: value.as_plain()}))
    )
    # Two of them may be a problem only together.
    next(alone, found).refuse(f"agent {name!r}: its settings cannot be kept: {problem}")


def _model_settings(found: Located) -> ModelSettings:
    known = [field.name for field in attrs.fields(ModelSettings)]
    settings = found.as_mapping("settings", "{temperature: 0}")
    for name, value in settings.items():
        if name not in known:
            value.refuse(f"settings have no {name!r}; {did_you_mean(name, known)}")
    try:
        return ModelSettings(**{name: it.as_plain() for name, it in settings.items()})
    except (DefinitionError, TypeError) as exc:
        raise found.error(str(exc)) from exc


def _amounts(found: Located, key: str, kind: type[SettingsT]) -> SettingsT:
    known = [field.name for field in attrs.fields(kind) if field.name != "name"]
    example = f"{{{known[0]}: 1}}"
    amounts: dict[str, Any] = {}
    for name, value in found.as_mapping(key, example).items():
        if name not in known:
            value.refuse(f"{key} has no {name!r}; {did_you_mean(name, known)}")
        amounts[name] = value.as_number(name)
    try:
        return kind(**amounts)
    except DefinitionError as exc:
        raise found.error(str(exc)) from exc


def _on_restart(found: Located) -> str:
    text = found.as_text("on_restart")
    if text not in ON_RESTART:
        first, second, last = map(repr, ON_RESTART)
        found.refuse(f"on_restart is {text!r}; it must be {first}, {second} or {last}")
    return text


def _place(found: Located) -> str:
    text = found.as_text("place")
    try:
        require_place_name(text, "place")
    except DefinitionError as exc:
        raise found.error(str(exc)) from exc
    return text


def _workspace(found: Located) -> Path | str:
    text = found.as_text("workspace")
    return text if text == "worktree" else Path(text)


PARSERS: Final[Mapping[str, Callable[[Located], Any]]] = {
    "description": lambda it: it.as_text("description").strip(),
    "language": lambda it: it.as_text("language"),
    "copies": lambda it: it.as_bool("copies"),
    "models": lambda it: [*filter(None, map(_model_text, it.as_names("models")))],
    "efforts": lambda it: [one.as_text("efforts") for one in it.as_names("efforts")],
    "gives_budgets": lambda it: it.as_bool("gives_budgets"),
    "forks": lambda it: it.as_bool("forks"),
    "summaries": lambda it: it.as_bool("summaries"),
    "scripts": lambda it: it.as_bool("scripts"),
    "asks_parent": lambda it: it.as_bool("asks_parent"),
    "board": lambda it: it.as_bool("board"),
    "schedules": lambda it: it.as_bool("schedules"),
    "handoff": lambda it: it.as_bool("handoff"),
    "on_restart": _on_restart,
    "version": lambda it: it.as_text("version"),
    "place": _place,
    "budget": lambda it: _amounts(it, "budget", Budget),
    "limits": lambda it: _amounts(it, "limits", Limits),
    "patience": lambda it: _amounts(it, "patience", Patience),
    "settings": _model_settings,
    "workspace": _workspace,
    "skills": skills_of,
    "memory": memory_of,
}
"""The keys that are fields of `Agent`, and how each is read."""
NEVER_EMPTY: Final = frozenset({"budget", "limits"})
"""Keys whose lost content, as in a wrong column, would be a limit."""


def _warnings(entries: Iterable[AgentEntry]) -> Iterable[str]:
    places: dict[str, list[Located]] = defaultdict(list)
    for entry in entries:
        claude = {it for it, value in entry.fields.items() if is_for_claude_code(it, value)}
        known = (PARSERS.keys() | LOOKED_UP) - claude
        for key, value in left_out_keys(entry, known).items():
            places[key].append(value)
    for key, values in places.items():
        yield f"the key {key!r} has no meaning here, and is left out: {_shown(values)}"
    # In Claude Code such an agent has all tools: it would be a surprise in both directions.
    without = [
        entry.at
        for entry in entries
        if "tools" not in entry.fields and entry.at.file.suffix.lower() == ".md"
    ]
    if without:
        yield (
            "without the key 'tools' an agent has none: write 'tools: [Read, Grep, Glob]', or"
            f" 'tools: []' if that is meant: {_shown(without)}"
        )


def _skill_warnings(agents: Iterable[Agent[str]]) -> Iterable[str]:
    skills = {it: None for agent in agents for it in agent.skills if not isinstance(it, str)}
    for skill in skills:
        if skill.unknown:
            yield unknown_keys_note(skill)


def _shown(values: list[Located]) -> str:
    places = [f"{it.file}:{it.key_line or it.line}" for it in values]
    more = len(places) - SHOWN_PLACES
    return ", ".join(places[:SHOWN_PLACES]) + (f" and {more} more" if more > 0 else "")
