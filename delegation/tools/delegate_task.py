"""`delegate_task`: a model delegates tasks to other agents."""

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final

import msgspec

from orchestrator.agents import (
    Agent,
    CallId,
    DefinitionError,
    Tool,
    ToolCall,
    ToolError,
    arguments_schema,
    read_arguments,
)
from orchestrator.delegation.choices import Choices
from orchestrator.delegation.ledger.task_record import TaskRecord
from orchestrator.delegation.rules import Rules
from orchestrator.delegation.task import Origin
from orchestrator.delegation.tools.delegator_port import Assignment, Delegator, Schema

NAME: Final = "delegate_task"


class DelegateTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `delegate_task`: one task, or a batch."""

    goal: Annotated[str, msgspec.Meta(description="One task: what to achieve, in full.")] = ""
    context: Annotated[
        str,
        msgspec.Meta(
            description="All the agent must know; for several tasks, what each must know."
        ),
    ] = ""
    agent: Annotated[
        str, msgspec.Meta(description="Who shall do it; for several tasks, who shall do each.")
    ] = ""
    output_schema: Schema = None
    label: Annotated[str, msgspec.Meta(description="One task: a short name for people.")] = ""
    tasks: Annotated[
        tuple[Assignment, ...], msgspec.Meta(description="Several tasks that run at the same time.")
    ] = ()
    background: Annotated[
        bool | None,
        msgspec.Meta(
            description="true: go on at once and be told later; false: wait for the results;"
            " left out: in the background if this session can be told later."
        ),
    ] = None


def delegate_tool(  # noqa: C901 (a feature that the agent does not use costs one `if`)
    agent: Agent[Any],
    *,
    parent: TaskRecord,
    origin: Origin,
    rules: Rules,
    delegator: Delegator,
    summarize: "Callable[[CallId], Awaitable[str]]",
) -> Tool:
    """Return the tool for one task of one agent. Its description has the limits of now.

    `summarize` returns a summary of the conversation before a call.
    """
    names = agent.plan.delegates
    depth = parent.depth
    if parent.request is not None and parent.request.fork is not msgspec.UNSET:
        # A fork sends the very request of its original, which a provider may have cached.
        from orchestrator.delegation.originals import original

        depth = original(parent).depth
    # With a single delegate, the name of the agent may be left out.
    default = agent.delegates[0].name if len(names) == 1 and not agent.copies else ""
    kind = DelegateTask
    gives_answer: Callable[[ToolCall], bool] | None = None
    if agent.handoff:
        # Imported late: most agents hand nothing off.
        from orchestrator.delegation.handoffs import is_handoff
        from orchestrator.delegation.tools.handoff_arguments import DelegateOrHandOff

        kind, gives_answer = DelegateOrHandOff, is_handoff
    if agent.plan.task_options:
        # Imported late: most agents leave no choice to their parents.
        from orchestrator.delegation.tools.task_options import arguments_type

        kind = arguments_type(kind, agent)

    # Quoted: the annotation would be evaluated for each task.
    def agent_of(name: str) -> "Agent[Any]":
        return names.get(name, agent)

    async def run(call: ToolCall) -> str:
        arguments = read_arguments(call, kind)
        # A call from before a crash was within the limits of then.
        is_repeated = call_key(call.id, 0) in parent.children.by_call
        most = math.inf if is_repeated else rules.children_per_call
        assignments = _assignments(arguments, most, default)
        is_ordered = False
        for assignment in assignments:
            if assignment.agent not in names or assignment.output_schema is not None:
                _require_known(assignment, names)
            is_ordered = is_ordered or bool(assignment.depends_on)
        if is_ordered:
            # Imported late: most calls have no dependencies.
            from orchestrator.delegation.tools.task_order import require_order

            require_order(assignments)
        choices: Sequence[Choices] = ()
        if agent.plan.task_options:
            from orchestrator.delegation.tools.task_options import for_forks, read_choices

            allowed_by = None if is_repeated else agent_of
            choices = read_choices(arguments, assignments, allowed_by)
            assignments = for_forks(assignments, choices, default)
        hands_off: bool = agent.handoff and getattr(arguments, "handoff", False)
        if hands_off:
            from orchestrator.delegation.handoffs import require_handoff

            require_handoff(arguments, assignments[0].agent, agent, parent.transcript)
        if agent.summaries and any(it.conversation == "summary" for it in choices):
            from orchestrator.delegation.tools.task_options import with_summary

            assignments = with_summary(assignments, choices, await summarize(call.id))
        return await delegator.delegate(
            assignments,
            parent=parent.id,
            origin=origin,
            call=call.id,
            background=arguments.background,
            handoff=hands_off,
            choices=choices,
        )

    return Tool(
        name=NAME,
        description=_description(agent, rules, levels=rules.depth - depth),
        parameters=_parameters(kind),
        run=run,
        # A call that a crash interrupted finds the tasks that it requested, and waits for them.
        idempotent=True,
        # It posts facts, and the work that they start waits until they are durable.
        acts_outside=False,
        gives_answer=gives_answer,
    )


def call_key(call: CallId, index: int) -> str:
    """Return the key of one task that a call requests."""
    return f"{call}#{index}"


@cache
def _parameters(kind: type[DelegateTask]) -> Mapping[str, Any]:
    # The same for every task, and slow to make.
    return arguments_schema(kind)


def _description(agent: Agent[Any], rules: Rules, levels: int) -> str:
    """Return the description, which is the same for all tasks of an agent on one level."""
    made_for, made = agent.plan.descriptions.get(levels, (None, ""))
    if made_for is not rules:
        made = _make_description(agent, rules, levels)
        agent.plan.descriptions[levels] = rules, made
    return made


def _make_description(agent: Agent[Any], rules: Rules, levels: int) -> str:
    lines = [
        "Delegate work to other agents. Give either one `goal` or a list of `tasks`,"
        f" at most {rules.children_per_call} in one call. {_limits(rules, levels)}",
        "Agents:",
        *(f"- {it.name}: {_about(it)}{_choices(it)}" for it in agent.delegates),
    ]
    if len(agent.delegates) != 1 or agent.copies:
        copy = "- left out: a copy of yourself, with the tools that you have"
        lines.append(f"{copy}{_choices(agent)}")
    return "\n".join(lines)


def _limits(rules: Rules, levels: int) -> str:
    limits = [f"Below this task there may be {levels} more level{'s' * (levels != 1)}"]
    if rules.live_children is not None:
        limits.append(f"{rules.live_children} of its tasks run at once")
    if rules.live_tasks is not None:
        limits.append(f"{rules.live_tasks} of the whole tree work at once")
    if rules.detached is not None:
        limits.append(f"{rules.detached} of the session in the background")
    more = "others wait for their turn" if rules.queue else "more are refused"
    return f"{', '.join(limits)}; {more}."


def _about(agent: Agent[Any]) -> str:
    if agent.description:
        return agent.description
    if isinstance(agent.instructions, str) and agent.instructions:
        return agent.instructions
    return "no description"


def _choices(agent: Agent[Any]) -> str:
    if not (agent.models or agent.efforts):
        return ""
    # Imported late: most agents leave no choice to their parents.
    from orchestrator.delegation.tools.task_options import choices_of

    return choices_of(agent)


def _assignments(arguments: DelegateTask, most: float, default: str) -> Sequence[Assignment]:
    if arguments.tasks and arguments.goal:
        raise ToolError("give either one goal or a list of tasks, not both")
    assignments: list[Assignment] = []
    for task in arguments.tasks or (Assignment(arguments.goal, label=arguments.label),):
        if not task.goal.strip():
            raise ToolError("say what to achieve: every task needs a goal")
        # The arguments beside `tasks` are the defaults of each task.
        assignments.append(
            msgspec.structs.replace(
                task,
                context=task.context or arguments.context,
                agent=task.agent or arguments.agent or default,
                output_schema=arguments.output_schema
                if task.output_schema is None
                else task.output_schema,
            )
        )
    if len(assignments) > most:
        raise ToolError(
            f"one call may ask for {most} tasks at most, and this one asks"
            f" for {len(assignments)}; no task was started"
        )
    return assignments


def _require_known(assignment: Assignment, names: Collection[str]) -> None:
    if assignment.agent and assignment.agent not in names:
        known = ", ".join(names) or "copies of yourself only: leave it out"
        raise ToolError(f"agent is {assignment.agent!r}; it must be one of: {known}")
    if assignment.output_schema is not None:
        # Imported late: most goals ask for no schema.
        from orchestrator.agents import require_schema

        try:
            require_schema(assignment.output_schema)
        except DefinitionError as exc:
            raise ToolError(f"output_schema: {exc}; no task was started") from exc
