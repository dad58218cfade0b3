"""The task that a call in a script asks for."""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from orchestrator.agents import Agent, Budget, DefinitionError, require_schema
from orchestrator.agents.script import ScriptTeam
from orchestrator.delegation.choices import Choices
from orchestrator.kernel.pipelines.call_details import CallDetails
from orchestrator.kernel.pipelines.scripts.budget_left import BUDGET_LEFT
from orchestrator.kernel.pipelines.scripts.interpreter import ScriptCall

SHOWN_GOAL: Final = 60
"""How many characters of its goal the label of a call has."""
READ_GOAL: Final = 1_000


class CallError(Exception):
    """A call that no task can be made of."""


class WantedTask(msgspec.Struct, frozen=True):
    """The agent, the goal and the terms of a task."""

    agent: Agent[Any]
    goal: Any
    details: CallDetails
    chosen: Choices | None = None


class _GivenBudget(msgspec.Struct, forbid_unknown_fields=True):
    usd: float | None = None
    tokens: int | None = None
    calls: int | None = None
    seconds: float | None = None


class _Terms(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of `agent` in a script, besides its name."""

    goal: Any = ""
    context: str = ""
    output_schema: dict[str, Any] | None = None
    model: str = ""
    effort: str = ""
    budget: _GivenBudget | None = None


def read_call(call: ScriptCall, team: ScriptTeam) -> WantedTask:
    """Return the task of a call, or raise a `CallError` that names its line."""
    place = f"line {call.line}"
    if call.function == "budget_left":
        return WantedTask(BUDGET_LEFT, "", CallDetails(label=place))
    known = team.agents if call.function == "agent" else team.tools
    name, *rest = call.args or ("",)
    if not isinstance(name, str) or name not in known:
        names = ", ".join(known) or "none"
        raise CallError(
            f"line {call.line}: there is no {call.function} {name!r}; there are: {names}"
        )
    if call.function == "tool":
        return WantedTask(known[name], _json(call, call.keywords), CallDetails(label=place))
    if len(rest) == 1 and not call.keywords:
        return WantedTask(known[name], rest[0], CallDetails(label=_with_goal(place, rest[0])))
    given = {**dict(zip(("goal",), rest, strict=False)), **call.keywords}
    try:
        terms = msgspec.convert(given, _Terms)
        if terms.output_schema is not None:
            require_schema(terms.output_schema)
        chosen = _choices(terms)
    except (msgspec.ValidationError, DefinitionError) as exc:
        raise CallError(f"line {call.line}: agent({name!r}): {exc}") from exc
    details = CallDetails(
        label=_with_goal(place, terms.goal),
        context=terms.context,
        output_schema=terms.output_schema,
    )
    return WantedTask(known[name], terms.goal, details, chosen)


def _with_goal(place: str, goal: Any) -> str:
    """Return the label of a call: its line, and the beginning of a goal that is a text."""
    words = " ".join(goal[:READ_GOAL].split()) if isinstance(goal, str) else ""
    return f"{place}: {words[:SHOWN_GOAL]}" if words else place


def _choices(terms: _Terms) -> Choices | None:
    budget = None
    if (given := terms.budget) is not None:
        budget = Budget(
            usd=given.usd, tokens=given.tokens, calls=given.calls, seconds=given.seconds
        )
    if not (terms.model or terms.effort or budget):
        return None
    return Choices(terms.model, terms.effort, budget)


def _json(call: ScriptCall, value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(value), ensure_ascii=False)
    except (TypeError, ValueError) as exc:
        raise CallError(f"line {call.line}: JSON cannot carry an argument: {exc}") from exc
