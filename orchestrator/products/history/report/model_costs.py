"""What a run has cost, by agent and model."""

import attrs

from orchestrator.agents import Usage
from orchestrator.delegation import TaskId
from orchestrator.products.history.report.run_history import RunHistory


@attrs.define
class ModelCost:
    """What the tasks of one agent have used with one model."""

    agent: str
    model: str
    """The model that answered last in these tasks; empty if none did."""
    tasks: int = 0
    usage: Usage = attrs.field(factory=Usage)


def model_costs(history: RunHistory) -> list[ModelCost]:
    """Add up what the tasks themselves have used, the costliest first."""
    costs: dict[tuple[str, str], ModelCost] = {}
    for task in map(TaskId, history.tree.graph):
        node = history.tree[task]
        if not node["usage"].calls:
            continue
        key = node["agent"], history.models.get(task, "")
        cost = costs.setdefault(key, ModelCost(*key))
        cost.tasks += 1
        cost.usage += node["usage"]
    return sorted(costs.values(), key=lambda it: (-it.usage.cost, -it.usage.tokens, it.agent))
