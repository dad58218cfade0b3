"""`delegate_task`: how a model hands work on."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, Protocol

import msgspec

from agents import (
    Agent,
    CallId,
    DefinitionError,
    Tool,
    ToolCall,
    ToolError,
    arguments_schema,
    read_arguments,
)
from delegation.policy import Rules
from delegation.task import Origin, TaskId

NAME: Final = "delegate_task"


class Assignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One piece of work, as a model asks for it."""

    goal: Annotated[
        str,
        msgspec.Meta(
            description="What to achieve. The agent sees nothing of this conversation."
        ),
    ]
    context: Annotated[
        str, msgspec.Meta(description="All it must know to achieve that.")
    ] = ""
    agent: Annotated[str, msgspec.Meta(description="Who shall do it.")] = ""
    label: Annotated[str, msgspec.Meta(description="A short name for people.")] = ""


class DelegateTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `delegate_task`: one task, or a batch."""

    goal: Annotated[
        str, msgspec.Meta(description="One task: what to achieve, in full.")
    ] = ""
    context: Annotated[
        str,
        msgspec.Meta(
            description="All the agent must know; for several tasks, what each must know."
        ),
    ] = ""
    agent: Annotated[
        str,
        msgspec.Meta(
            description="Who shall do it; for several tasks, who shall do each."
        ),
    ] = ""
    label: Annotated[
        str, msgspec.Meta(description="One task: a short name for people.")
    ] = ""
    tasks: Annotated[
        tuple[Assignment, ...],
        msgspec.Meta(description="Several tasks that run at the same time."),
    ] = ()
    background: Annotated[
        bool | None,
        msgspec.Meta(
            description="true: go on at once and be told later; false: wait for the results;"
            " left out: in the background if this session can be told later."
        ),
    ] = None


class Delegator(Protocol):
    """Whoever can really hand work on."""

    async def delegate(
        self,
        assignments: Sequence[Assignment],
        *,
        parent: TaskId,
        origin: Origin,
        call: CallId,
        background: bool | None,
    ) -> str:
        """Hand work on, and return what the model reads."""
        ...


def delegate_tool(
    agent: Agent[Any],
    *,
    parent: TaskId,
    origin: Origin,
    rules: Rules,
    delegator: Delegator,
) -> Tool:
    """Return the tool for one task of one agent. It shows the limits that hold now."""
    if any(tool.name == NAME for tool in agent.tools):
        raise DefinitionError(
            f"agent {agent.name!r} has a tool of its own called {NAME!r}"
        )
    names = [delegate.name for delegate in agent.delegates]

    async def run(call: ToolCall) -> str:
        asked = read_arguments(call, DelegateTask)
        return await delegator.delegate(
            [
                _with_agent(assignment, names)
                for assignment in _assignments(asked, rules)
            ],
            parent=parent,
            origin=origin,
            call=call.id,
            background=asked.background,
        )

    return Tool(
        name=NAME,
        description=_description(agent, rules),
        parameters=_parameters(),
        run=run,
        # A call that a crash interrupted finds the tasks it asked for, and waits for them.
        idempotent=True,
    )


@cache
def _parameters() -> Mapping[str, Any]:
    # The same for every task of every agent, and too slow to make for each.
    return arguments_schema(DelegateTask)


def _description(agent: Agent[Any], rules: Rules) -> str:
    team = "\n".join(
        f"- {delegate.name}: {_about(delegate)}" for delegate in agent.delegates
    )
    return (
        "Hand work on to another agent. Give either one `goal` or a list of `tasks`,"
        f" at most {rules.children_per_call} in one call.\nAgents:\n{team}"
    )


def _about(agent: Agent[Any]) -> str:
    if isinstance(agent.instructions, str) and agent.instructions:
        return agent.instructions
    return "no description"


def _assignments(asked: DelegateTask, rules: Rules) -> Sequence[Assignment]:
    if asked.tasks and asked.goal:
        raise ToolError("give either one goal or a list of tasks, not both")
    # What is said once for a batch holds for each of its tasks that does not say otherwise.
    assignments = [
        msgspec.structs.replace(
            task,
            context=task.context or asked.context,
            agent=task.agent or asked.agent,
            label=task.label or asked.label,
        )
        for task in asked.tasks or (Assignment(asked.goal),)
    ]
    if not all(assignment.goal.strip() for assignment in assignments):
        raise ToolError("say what to achieve: every task needs a goal")
    if len(assignments) > rules.children_per_call:
        raise ToolError(
            f"one call may ask for {rules.children_per_call} tasks at most, and this one asks"
            f" for {len(assignments)}; none was started"
        )
    return assignments


def _with_agent(assignment: Assignment, names: list[str]) -> Assignment:
    if not assignment.agent and len(names) == 1:
        return msgspec.structs.replace(assignment, agent=names[0])
    if assignment.agent not in names:
        asked_for = repr(assignment.agent) if assignment.agent else "left out"
        raise ToolError(f"agent is {asked_for}; it must be one of: {', '.join(names)}")
    return assignment
