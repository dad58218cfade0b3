"""The choices of a parent for one task, in its request."""

import attrs
from msgspec.structs import replace

from orchestrator.agents import Budget
from orchestrator.agents.budget import BudgetKind
from orchestrator.delegation import TaskRequest
from orchestrator.delegation.choices import Choices

NOTHING_CHOSEN = Choices()


def request_with_choices(request: TaskRequest, chosen: Choices) -> TaskRequest:
    """Return a request with the choices of its parent, whose budget can only narrow the agent's."""
    if chosen == NOTHING_CHOSEN:
        return request
    return replace(request, chosen=chosen, budget=_narrower(request.budget, chosen.budget))


def _narrower(own: Budget | None, given: Budget | None) -> Budget | None:
    """Return the budget with the smaller amount of each kind."""
    if own is None or given is None:
        return given if own is None else own
    both = {kind: (getattr(own, kind), getattr(given, kind)) for kind in BudgetKind}
    least = {
        kind: min(it for it in amounts if it is not None)
        for kind, amounts in both.items()
        if amounts != (None, None)
    }
    return attrs.evolve(own, **least)
