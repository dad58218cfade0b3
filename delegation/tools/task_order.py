"""The order of the tasks of one call: each after the tasks that it depends on.

Imported late: most calls have no dependencies.
"""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from orchestrator.agents import ToolError
from orchestrator.delegation.tools.delegator_port import Assignment


def require_order(assignments: Sequence[Assignment]) -> None:
    """Raise `ToolError` if tasks depend on each other in a cycle, or on an unknown label."""
    labels = [assignment.label for assignment in assignments]
    for needed in {need for each in assignments for need in each.depends_on}:
        if labels.count(needed) != 1:
            count = "no task" if needed not in labels else "more than one task"
            raise ToolError(
                f"depends_on names {needed!r}, and {count} of this call has that label;"
                " no task was started"
            )
    order = TopologicalSorter(
        {
            index: [labels.index(need) for need in each.depends_on]
            for index, each in enumerate(assignments)
        }
    )
    try:
        order.prepare()
    except CycleError as exc:
        cycle: list[int] = exc.args[1]
        names = " -> ".join(labels[index] for index in reversed(cycle))
        raise ToolError(f"these tasks wait for each other: {names}; no task was started") from exc
