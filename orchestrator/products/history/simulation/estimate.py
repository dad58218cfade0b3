"""Estimates the usage of a run in advance.

The expected usage is simulated, with the prices of the agents' models. The upper bound follows from
limits and budgets alone; without a limit it is unbounded.
"""

import math
from collections.abc import Iterable
from typing import Any, Final

import attrs

from orchestrator.agents import Agent, Budget, Pipeline, Price
from orchestrator.delegation import Rules
from orchestrator.products.history.simulation.settings import SimulationSettings
from orchestrator.products.history.simulation.simulate import simulate
from orchestrator.products.history.simulation.statistics import Quantiles

SEEDS: Final = 20


@attrs.frozen(kw_only=True)
class Bounds:
    """The most that a run may use, by its limits and budgets. None means unbounded.

    A limit of an agent is checked before each call, so its last call may exceed it; a budget is
    never exceeded.
    """

    calls: int | None
    tokens: int | None
    cost: float | None
    """Dollars."""


@attrs.frozen(kw_only=True)
class Estimate:
    """The expected usage of a run, and its upper bound."""

    agent: str
    tasks: Quantiles
    calls: Quantiles
    tokens: Quantiles
    cost: Quantiles | None
    """The dollars for models with a known price; None if no price is known."""
    seconds: Quantiles
    worst: Bounds
    unpriced: tuple[str, ...]
    """The models without a known price, which `cost` leaves out."""

    def to_text(self) -> str:
        """Return the estimate as lines of text."""
        worst = self.worst
        rows = [
            ("", "p50", "p95", "at most"),
            ("calls", *_counts(self.calls), _count(worst.calls)),
            ("tokens", *_counts(self.tokens), _count(worst.tokens)),
            ("cost", *self._costs(), self._money(worst.cost)),
            ("seconds", f"{self.seconds.p50:,.0f}", f"{self.seconds.p95:,.0f}", ""),
        ]
        lines = [f"{name:<8}{p50:>14}{p95:>14}{most:>16}".rstrip() for name, p50, p95, most in rows]
        if self.unpriced:
            lines.append(f"price unknown: {', '.join(self.unpriced)}")
        return "\n".join(lines)

    def _costs(self) -> tuple[str, str]:
        if self.cost is None:
            return "unknown", "unknown"
        return self._money(self.cost.p50), self._money(self.cost.p95)

    def _money(self, dollars: float | None) -> str:
        if dollars is None:
            return "unbounded"
        return f"{'≥ ' if self.unpriced else ''}${dollars:,.4f}"


def estimate(
    agent: Agent[Any], goal: str | None = None, settings: SimulationSettings | None = None
) -> Estimate:
    """Return the expected usage of a run, and its upper bound.

    Args:
        agent: the agent, with all its delegates.
        goal: the goal of the run; by default a sample input for the agent.
        settings: the assumptions about models and providers; by default the usual, with 20 seeds.
    """
    settings = SimulationSettings(seeds=SEEDS) if settings is None else settings
    report = simulate(agent, goal, settings)
    worst = _UpperBound(settings).of(agent, settings.rules.depth)
    return Estimate(
        agent=agent.name,
        tasks=report.tasks,
        calls=report.calls,
        tokens=report.tokens,
        cost=report.cost,
        seconds=report.makespan,
        worst=_bounds(_capped(worst, settings.budget)),
        unpriced=report.unpriced,
    )


@attrs.frozen
class _Amounts:
    """An upper bound of usage; infinite if there is no limit."""

    calls: float
    tokens: float
    cost: float
    """Micro-dollars."""


class _UpperBound:
    """Computes the upper bound for an agent and its delegates."""

    def __init__(self, settings: SimulationSettings) -> None:
        self._rules: Rules = settings.rules
        self._settings = settings

    def of(self, agent: Agent[Any], levels: int) -> _Amounts:
        if isinstance(agent, Pipeline):
            # A program may delegate without limit.
            boundless = _Amounts(math.inf, math.inf, math.inf)
            return _capped(boundless, agent.budget)
        own = self._own(agent)
        below = [self.of(it, levels - 1) for it in agent.delegates if levels > 0]
        if agent.copies and levels > 0:
            # Only the levels limit copies of copies, so the bound would be meaninglessly large.
            below.append(_Amounts(math.inf, math.inf, math.inf))
        if not below:
            return _capped(own, agent.budget)
        tasks = agent.limits.calls * float(self._rules.children_per_call)
        if agent.budget is not None and agent.budget.tasks is not None:
            tasks = min(tasks, agent.budget.tasks)

        def most(of_each: Iterable[float]) -> float:
            # Infinity times zero is NaN.
            return tasks * max(of_each) if tasks else 0

        total = _Amounts(
            own.calls + most(it.calls for it in below),
            own.tokens + most(it.tokens for it in below),
            own.cost + most(it.cost for it in below),
        )
        return _capped(total, agent.budget)

    def _own(self, agent: Agent[Any]) -> _Amounts:
        limits = agent.limits
        tokens = math.inf if limits.tokens is None else limits.tokens
        cost = math.inf if limits.usd is None else limits.usd * 1_000_000
        prices = self._prices(agent)
        if None not in prices:
            dearest = max(max(it.input, it.output) for it in prices if it is not None)
            cost = min(cost, tokens * dearest if dearest else 0)
        return _Amounts(limits.calls, tokens, cost)

    def _prices(self, agent: Agent[Any]) -> list[Price | None]:
        if not isinstance(agent.model, str):
            return [self._settings.price or getattr(agent.model, "price", None)]
        return [self._settings.price_of(it.strip()) for it in agent.model.split("|")]


def _capped(amounts: _Amounts, budget: Budget | None) -> _Amounts:
    if budget is None:
        return amounts
    # Tasks and levels limit the delegates. Seconds limit no amount that is known in advance.
    calls = math.inf if budget.calls is None else budget.calls
    tokens = math.inf if budget.tokens is None else budget.tokens
    cost = math.inf if budget.usd is None else budget.usd * 1_000_000
    return _Amounts(min(amounts.calls, calls), min(amounts.tokens, tokens), min(amounts.cost, cost))


def _bounds(worst: _Amounts) -> Bounds:
    return Bounds(
        calls=None if math.isinf(worst.calls) else int(worst.calls),
        tokens=None if math.isinf(worst.tokens) else int(worst.tokens),
        cost=None if math.isinf(worst.cost) else worst.cost / 1_000_000,
    )


def _counts(found: Quantiles) -> tuple[str, str]:
    return f"{found.p50:,.0f}", f"{found.p95:,.0f}"


def _count(bound: int | None) -> str:
    return "unbounded" if bound is None else f"{bound:,}"
