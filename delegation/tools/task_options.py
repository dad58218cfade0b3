"""The arguments of `delegate_task` that only some agents have: `model`, `effort`, `budget` and
`conversation`.

Imported late: without them, the schema of the tool and its cost stay the same.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec

from orchestrator.agents import Agent, Budget, DefinitionError, ToolError
from orchestrator.agents.task_choices import model_names, with_choices
from orchestrator.delegation.choices import Choices
from orchestrator.delegation.tools.delegator_port import Assignment


class GivenBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A budget, as a model gives it to a task."""

    tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    usd: Annotated[float, msgspec.Meta(gt=0)] | None = None
    calls: Annotated[int, msgspec.Meta(ge=1)] | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None

    @property
    def budget(self) -> Budget:
        return Budget(tokens=self.tokens, usd=self.usd, calls=self.calls, seconds=self.seconds)


_FIELDS: Final[dict[str, tuple[Any, Any]]] = {
    "model": (
        Annotated[
            str,
            msgspec.Meta(description="One of the models of its agent; left out: the agent's own."),
        ],
        "",
    ),
    "effort": (
        Annotated[
            str, msgspec.Meta(description="How much to think: one of the efforts of its agent.")
        ],
        "",
    ),
    "budget": (
        Annotated[
            GivenBudget | None,
            msgspec.Meta(
                description="The most that the task and all tasks below it may use; for several"
                " tasks, the most that each may use."
            ),
        ],
        None,
    ),
    "conversation": (str, "none"),
}
_CONVERSATIONS: Final = {
    "none": "The part of this conversation that the agent has read. none: nothing.",
    "summary": " summary: a summary of it, which you need not write.",
    "fork": " fork: all of it, and a fork of yourself does the task with your tools: leave out"
    " agent.",
}
SUMMARY: Final = "A summary of the conversation that your task comes from:\n{summary}\n\n{context}"
"""The context of a task with a summary."""


def arguments_type(base: Any, agent: Agent[Any]) -> type[Any]:
    """Return the type of the arguments of `delegate_task` with the options of an agent."""
    allowed = {"none": True, "summary": agent.summaries, "fork": agent.forks}
    kinds = tuple(kind for kind in _CONVERSATIONS if allowed[kind])
    return _arguments_type(base, agent.plan.task_options, kinds)


@cache
def _arguments_type(
    base: type[Any], options: Sequence[str], conversations: Sequence[str]
) -> type[Any]:
    fields = [(name, *_FIELDS[name]) for name in options]
    if "conversation" in options:
        described = msgspec.Meta(description="".join(_CONVERSATIONS[it] for it in conversations))
        fields[-1] = ("conversation", Annotated[Literal[conversations], described], "none")
    task = msgspec.defstruct(
        "Task", fields, bases=(Assignment,), frozen=True, forbid_unknown_fields=True
    )
    described = msgspec.Meta(description="Several tasks that run at the same time.")
    tasks: Any = Annotated[tuple[task, ...], described]  # type: ignore[valid-type]
    return msgspec.defstruct(
        "Arguments",
        [*fields, ("tasks", tasks, ())],
        bases=(base,),
        frozen=True,
        forbid_unknown_fields=True,
    )


def read_choices(
    arguments: object,
    assignments: Sequence[Assignment],
    agent_of: Callable[[str], Agent[Any]] | None,
) -> list[Choices]:
    """Return the choices for each task of a call.

    Raise `ToolError` if the agent of a task, which `agent_of` returns by name, does not allow them.
    Without `agent_of` they are not checked.
    """
    choices: list[Choices] = []
    for assignment in assignments:
        model, effort, budget, conversation = [
            _given(name, default, assignment, arguments) for name, (_, default) in _FIELDS.items()
        ]
        if agent_of is not None and (model or effort):
            try:
                with_choices(agent_of(assignment.agent), model, effort)
            except DefinitionError as exc:
                raise ToolError(f"{exc}; no task was started") from exc
        given = None if budget is None else budget.budget
        choices.append(
            Choices(model, effort, given, "" if conversation == "none" else conversation)
        )
    return choices


def _given(name: str, default: Any, assignment: object, arguments: object) -> Any:
    """Return an option of a task, or of all tasks of the call."""
    own = getattr(assignment, name, default)
    return getattr(arguments, name, default) if own == default else own


def for_forks(
    assignments: Sequence[Assignment], choices: Sequence[Choices], default: str
) -> list[Assignment]:
    """Return the assignments with a fork of the parent as the agent of each fork."""
    ready: list[Assignment] = []
    for assignment, chosen in zip(assignments, choices, strict=True):
        is_fork = chosen.conversation == "fork"
        if is_fork and assignment.agent not in {"", default}:
            raise ToolError(
                f"a fork is a copy of yourself, not {assignment.agent!r}: leave out agent; no task"
                " was started"
            )
        ready.append(msgspec.structs.replace(assignment, agent="") if is_fork else assignment)
    return ready


def with_summary(
    assignments: Sequence[Assignment], choices: Sequence[Choices], summary: str
) -> list[Assignment]:
    """Return the assignments with the summary in the context of each that was given one."""
    return [
        msgspec.structs.replace(
            it, context=SUMMARY.format(summary=summary, context=it.context).rstrip()
        )
        if chosen.conversation == "summary"
        else it
        for it, chosen in zip(assignments, choices, strict=True)
    ]


def choices_of(agent: Agent[Any]) -> str:
    """Return the choices that an agent leaves to its parent, as the parent reads them."""
    words = [
        f"models: {', '.join(model_names(agent))}" if agent.models else "",
        f"efforts: {', '.join(agent.efforts)}" if agent.efforts else "",
    ]
    return f" ({'; '.join(filter(None, words))})"
