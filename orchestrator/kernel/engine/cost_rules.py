"""Approval rules about costs: a person decides on tasks whose estimate is above a threshold."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import attrs
import msgspec
import trio

from orchestrator.agents import Agent, DefinitionError, ToolCall
from orchestrator.agents.approval import ApprovalRule
from orchestrator.agents.feature_checks import RUN_SCRIPT
from orchestrator.agents.task_choices import with_choices
from orchestrator.agents.turn_plan import SCRIPT


class TaskCost(msgspec.Struct, frozen=True):
    """The estimated cost of one task, with all below it."""

    usual: float
    """Dollars: half of the simulated runs cost less."""
    high: float
    """Dollars: 95 of 100 simulated runs cost less."""


EstimateCost: TypeAlias = Callable[[Agent[Any], str], Awaitable[TaskCost | None]]
"""Returns the estimated cost of a task of an agent with a goal; None if it is unknown."""
Policies: TypeAlias = Sequence[Sequence[ApprovalRule]]


class _Asked(msgspec.Struct, frozen=True):
    """A task of a call, as far as its cost depends on it."""

    agent: str = ""
    model: str = ""


class _Task(msgspec.Struct, frozen=True):
    """The arguments of a task."""

    goal: str = ""
    agent: str = ""
    model: str = ""


class _Batch(_Task, frozen=True):
    """The arguments of `delegate_task`."""

    tasks: tuple[_Task, ...] = ()


async def applied_cost_rules(
    policies: Policies, call: ToolCall, agent: Agent[Any], estimate: EstimateCost | None
) -> Policies:
    """Return the rules that decide about a call, without those whose threshold it does not reach.

    A rule that stays has the figures in its reason. Without `estimate`, all rules stay: the call
    was asked about before a crash, or cannot be estimated here.
    """
    await trio.lowlevel.checkpoint()
    high, figures = float("inf"), "its cost cannot be estimated here"
    if estimate is not None:
        high, figures = await _estimated(call, agent, estimate)
    applied: list[list[ApprovalRule]] = []
    for rules in policies:
        kept: list[ApprovalRule] = []
        for rule in rules:
            if rule.above_usd is None:
                kept.append(rule)
            elif high > rule.above_usd:
                why = f"{figures}; the rule asks above ${rule.above_usd:,.2f}"
                kept.append(attrs.evolve(rule, reason=why))
        applied.append(kept)
    return applied


async def _estimated(
    call: ToolCall, agent: Agent[Any], estimate: EstimateCost
) -> tuple[float, str]:
    """Return the highest expected cost of the tasks of a call, and a sentence with the figures."""
    await trio.lowlevel.checkpoint()
    if call.name == RUN_SCRIPT:
        return await _estimated_script(call, agent, estimate)
    try:
        batch = msgspec.convert(call.arguments, _Batch)
    except msgspec.ValidationError:
        return 0.0, ""  # the tool refuses the arguments
    tasks = batch.tasks or (_Task(batch.goal, batch.agent, batch.model),)
    goals: dict[_Asked, str] = {}
    counts: Counter[_Asked] = Counter()
    for task in tasks:
        asked = _Asked(task.agent or batch.agent, task.model or batch.model)
        goals.setdefault(asked, task.goal)
        counts[asked] += 1
    usual = high = 0.0
    parts: list[str] = []
    for asked, count in counts.items():
        chosen = agent.plan.delegates.get(asked.agent, agent)
        if asked.model:
            try:
                chosen = with_choices(chosen, asked.model, "")
            except DefinitionError:
                return 0.0, ""  # the tool refuses the model
        cost = await estimate(chosen, goals[asked])
        if cost is None:
            return float("inf"), f"the price of {chosen.name} is unknown"
        usual, high = usual + count * cost.usual, high + count * cost.high
        parts.append(f"{count} × {chosen.name} ${cost.usual:,.4f}")
    return high, (
        f"{len(tasks)} task{'s' * (len(tasks) != 1)} would cost about ${usual:,.4f}, and at most"
        f" ${high:,.4f} in 95 of 100 simulations ({', '.join(parts)})"
    )


async def _estimated_script(
    call: ToolCall, agent: Agent[Any], estimate: EstimateCost
) -> tuple[float, str]:
    await trio.lowlevel.checkpoint()
    script = agent.plan.tool_agents.get(SCRIPT)
    if script is None or not isinstance(code := call.arguments.get("code"), str):
        return 0.0, ""  # the tool refuses the call
    if call.arguments.get("dry_run") is True:
        return 0.0, ""  # no model is called
    cost = await estimate(script, script.as_goal({"code": code}))
    if cost is None:
        return float("inf"), "the script has no known price, or its cost depends on the answers"
    return cost.high, (
        f"the script would cost about ${cost.usual:,.4f}, and at most ${cost.high:,.4f} in 95 of"
        " 100 simulations"
    )
