"""The functions `delegate` and `detach`: the function of a pipeline delegates with them."""

from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from orchestrator.agents import Agent, Budget
from orchestrator.agents.models.settings import ReasoningEffort
from orchestrator.delegation.choices import Choices
from orchestrator.kernel.pipelines.child import Child
from orchestrator.kernel.pipelines.current_run import current_pipeline_run
from orchestrator.kernel.pipelines.dependencies import NO_VALUE, After

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


class TaskChoices(TypedDict, total=False):
    """The choices for one task, where its agent leaves them to its parent."""

    model: str
    """The name of one of `Agent(models=...)`; left out, the agent's own model answers."""
    effort: ReasoningEffort
    """One of `Agent(efforts=...)`."""
    budget: Budget
    """The most that the task uses with all its descendants, besides the agent's budget."""
    conversation: Literal["", "fork"]
    """`"fork"` puts the conversation of the pipeline before the goal: its messages so far."""


@overload
async def delegate(
    agent: Agent[OutputT, InputT],
    value: InputT,
    /,
    *,
    after: After | None = None,
    **chosen: Unpack[TaskChoices],
) -> OutputT: ...
@overload
async def delegate(
    agent: Agent[OutputT, A], /, *, after: Child[A], **chosen: Unpack[TaskChoices]
) -> OutputT: ...
@overload
async def delegate(
    agent: Agent[OutputT, tuple[A, B]],
    /,
    *,
    after: tuple[Child[A], Child[B]],
    **chosen: Unpack[TaskChoices],
) -> OutputT: ...
@overload
async def delegate(
    agent: Agent[OutputT, tuple[A, B, C]],
    /,
    *,
    after: tuple[Child[A], Child[B], Child[C]],
    **chosen: Unpack[TaskChoices],
) -> OutputT: ...
@overload
async def delegate(
    agent: Agent[OutputT, tuple[A, B, C, D]],
    /,
    *,
    after: tuple[Child[A], Child[B], Child[C], Child[D]],
    **chosen: Unpack[TaskChoices],
) -> OutputT: ...
@overload
async def delegate(
    agent: Agent[OutputT, list[A]], /, *, after: list[Child[A]], **chosen: Unpack[TaskChoices]
) -> OutputT: ...
async def delegate(
    agent: Agent[Any, Any],
    value: Any = NO_VALUE,
    /,
    *,
    after: After | None = None,
    **chosen: Unpack[TaskChoices],
) -> Any:
    """Delegate to an agent, and return its answer as the agent's output type.

    The task is a child of the pipeline whose function calls this. Cancelling the call cancels the
    task and its descendants, and returns when all of them have ended.

    Args:
        agent: does the task.
        value: the goal, or another input that the agent takes. Without one, the input is the output
            of `after`: one output, or a tuple or list of several.
        after: the tasks that must succeed first. A model reads their outputs after the goal.
        chosen: `model`, `effort` and `budget` of this task alone.

    Raises:
        TaskFailedError: it did not succeed, or was not allowed, or a dependency did not succeed.
        DefinitionError: the agent does not allow this model or effort.
    """
    run = current_pipeline_run("delegate")
    child = await run.start_child(agent, value, after=after, chosen=_choices(chosen))
    return await run.wait_result(child)


@overload
async def detach(
    agent: Agent[OutputT, InputT],
    value: InputT,
    /,
    *,
    after: After | None = None,
    **chosen: Unpack[TaskChoices],
) -> Child[OutputT]: ...
@overload
async def detach(
    agent: Agent[OutputT, A], /, *, after: Child[A], **chosen: Unpack[TaskChoices]
) -> Child[OutputT]: ...
@overload
async def detach(
    agent: Agent[OutputT, tuple[A, B]],
    /,
    *,
    after: tuple[Child[A], Child[B]],
    **chosen: Unpack[TaskChoices],
) -> Child[OutputT]: ...
@overload
async def detach(
    agent: Agent[OutputT, tuple[A, B, C]],
    /,
    *,
    after: tuple[Child[A], Child[B], Child[C]],
    **chosen: Unpack[TaskChoices],
) -> Child[OutputT]: ...
@overload
async def detach(
    agent: Agent[OutputT, tuple[A, B, C, D]],
    /,
    *,
    after: tuple[Child[A], Child[B], Child[C], Child[D]],
    **chosen: Unpack[TaskChoices],
) -> Child[OutputT]: ...
@overload
async def detach(
    agent: Agent[OutputT, list[A]], /, *, after: list[Child[A]], **chosen: Unpack[TaskChoices]
) -> Child[OutputT]: ...
async def detach(
    agent: Agent[Any, Any],
    value: Any = NO_VALUE,
    /,
    *,
    after: After | None = None,
    **chosen: Unpack[TaskChoices],
) -> Child[Any]:
    """Delegate to an agent, and continue at once.

    The pipeline whose function calls this owns the task: when the function returns, it waits for
    all detached tasks; when it raises, they are cancelled.

    Args:
        agent: does the task.
        value: the goal, or another input that the agent takes. Without one, the input is the output
            of `after`: one output, or a tuple or list of several.
        after: the tasks that must succeed first. A model reads their outputs after the goal.
        chosen: `model`, `effort` and `budget` of this task alone.

    Raises:
        TaskFailedError: it was not allowed.
        DefinitionError: the agent does not allow this model or effort.
    """
    run = current_pipeline_run("detach")
    return await run.start_child(agent, value, after=after, chosen=_choices(chosen), beside=True)


def _choices(chosen: TaskChoices) -> Choices | None:
    if not chosen:
        return None
    return Choices(
        chosen.get("model", ""),
        chosen.get("effort", ""),
        chosen.get("budget"),
        chosen.get("conversation", ""),
    )
