"""The dependencies of a task that a pipeline delegates: the children that must succeed first."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from orchestrator.agents import DefinitionError, Pipeline, read_output
from orchestrator.delegation import TaskId, TaskRecord, TaskRequest
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.pipelines.child import Child

After: TypeAlias = Child[Any] | Sequence[Child[Any]]
"""The argument `after` of `delegate` and `detach`."""
NO_VALUE: Final[Any] = msgspec.UNSET
"""The value of a task whose input is made of the outputs of its dependencies."""


class Dependencies(msgspec.Struct, frozen=True):
    """The children that must succeed before a task starts."""

    ids: tuple[TaskId, ...] = ()
    calls: tuple[str, ...] = ()
    """The keys of their requests, which are the same after a crash."""
    input: Literal["output", "outputs"] | msgspec.UnsetType = msgspec.UNSET
    """The input of a task without a goal: the output of its dependency, or a list of outputs."""
    are_input: bool = False
    """The task has no goal."""


NO_DEPENDENCIES: Final = Dependencies()


def find_dependencies(
    agent: str,
    value: Any,
    after: After | None,
    parent: TaskRecord,
    tasks: Mapping[TaskId, TaskRecord],
) -> Dependencies:
    """Return the dependencies that the program of a pipeline names.

    Raises:
        DefinitionError: the pipeline has not delegated all of them itself, or they are a cycle.
    """
    children: Sequence[object] = [after] if isinstance(after, Child) else after or ()
    if value is NO_VALUE and not children:
        raise DefinitionError(
            f"{agent!r} has no input: give it a value, or a dependency with after=..."
        )
    records = [_sibling(agent, it, parent, tasks) for it in children]
    taken: Literal["output", "outputs"] = "output" if isinstance(after, Child) else "outputs"
    return Dependencies(
        ids=tuple([it.id for it in records]),
        calls=tuple([it.request.call for it in records if it.request is not None]),
        input=taken if value is NO_VALUE else msgspec.UNSET,
        are_input=value is NO_VALUE,
    )


def _sibling(
    agent: str, child: object, parent: TaskRecord, tasks: Mapping[TaskId, TaskRecord]
) -> TaskRecord:
    """Return the record of a dependency, which has the same parent as the new task."""
    new = f"{parent.path}/{agent}"
    if not isinstance(child, Child):
        raise DefinitionError(
            f"{new} cannot start after {child!r}: it is no task; `await detach(agent, value)`"
            " returns one"
        )
    record = tasks.get(child.id)
    if record is not None and record.parent is parent:
        return record
    cycle = [child.path, new]
    above: TaskRecord | None = parent
    while above is not None and above is not record:
        cycle.insert(1, above.path)
        above = above.parent
    if above is not None:
        # The dependency itself waits for the new task.
        raise DefinitionError(
            f"{new} would never start: its dependencies are the cycle"
            f" {' → '.join([*cycle, child.path])}"
        )
    raise DefinitionError(
        f"{new} cannot start after {child.path}, which {parent.path} has not delegated: wait for"
        " that task in its own function, and pass its answer on"
    )


def goal_of_outputs(
    pipeline: Pipeline[Any, Any],
    request: TaskRequest,
    tasks: Mapping[TaskId, TaskRecord],
    registry: AgentRegistry,
) -> str:
    """Return the goal of a pipeline that takes the outputs of its dependencies."""
    values: list[Any] = []
    for id_ in request.needs:
        task = tasks[id_]
        assert task.outcome is not None, "a dependency has succeeded"
        values.append(read_output(registry.agent_of(task).output, task.outcome.output))
    return pipeline.as_goal(values[0] if request.input == "output" else values)
