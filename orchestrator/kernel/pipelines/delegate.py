"""The functions `delegate` and `detach`, by which the function of a pipeline delegates."""

from typing import Any, TypeVar, overload

from orchestrator.agents import Agent
from orchestrator.kernel.pipelines.child import Child
from orchestrator.kernel.pipelines.current_run import current_pipeline_run
from orchestrator.kernel.pipelines.dependencies import NO_VALUE, After

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


@overload
async def delegate(
    agent: Agent[OutputT, InputT], value: InputT, /, *, after: After | None = None
) -> OutputT: ...
@overload
async def delegate(agent: Agent[OutputT, A], /, *, after: Child[A]) -> OutputT: ...
@overload
async def delegate(
    agent: Agent[OutputT, tuple[A, B]], /, *, after: tuple[Child[A], Child[B]]
) -> OutputT: ...
@overload
async def delegate(
    agent: Agent[OutputT, tuple[A, B, C]], /, *, after: tuple[Child[A], Child[B], Child[C]]
) -> OutputT: ...
@overload
async def delegate(
    agent: Agent[OutputT, tuple[A, B, C, D]],
    /,
    *,
    after: tuple[Child[A], Child[B], Child[C], Child[D]],
) -> OutputT: ...
@overload
async def delegate(agent: Agent[OutputT, list[A]], /, *, after: list[Child[A]]) -> OutputT: ...
async def delegate(
    agent: Agent[Any, Any], value: Any = NO_VALUE, /, *, after: After | None = None
) -> Any:
    """Delegate to an agent, and return its answer as the agent's output type.

    The task is a child of the pipeline whose function calls this. Cancelling the call cancels the
    task and its descendants, and returns when all of them have ended.

    Args:
        agent: does the task.
        value: the goal, or another input that the agent takes. Without one, the input is the output
            of `after`: one output, or a tuple or list of several.
        after: the tasks that must succeed first. A model reads their outputs after the goal.

    Raises:
        TaskFailedError: it did not succeed, or was not allowed, or a dependency did not succeed.
    """
    run = current_pipeline_run("delegate")
    return await run.wait_result(await run.start_child(agent, value, after=after))


@overload
async def detach(
    agent: Agent[OutputT, InputT], value: InputT, /, *, after: After | None = None
) -> Child[OutputT]: ...
@overload
async def detach(agent: Agent[OutputT, A], /, *, after: Child[A]) -> Child[OutputT]: ...
@overload
async def detach(
    agent: Agent[OutputT, tuple[A, B]], /, *, after: tuple[Child[A], Child[B]]
) -> Child[OutputT]: ...
@overload
async def detach(
    agent: Agent[OutputT, tuple[A, B, C]], /, *, after: tuple[Child[A], Child[B], Child[C]]
) -> Child[OutputT]: ...
@overload
async def detach(
    agent: Agent[OutputT, tuple[A, B, C, D]],
    /,
    *,
    after: tuple[Child[A], Child[B], Child[C], Child[D]],
) -> Child[OutputT]: ...
@overload
async def detach(agent: Agent[OutputT, list[A]], /, *, after: list[Child[A]]) -> Child[OutputT]: ...
async def detach(
    agent: Agent[Any, Any], value: Any = NO_VALUE, /, *, after: After | None = None
) -> Child[Any]:
    """Delegate to an agent, and continue at once.

    The pipeline whose function calls this owns the task: when the function returns, it waits for
    all detached tasks; when it raises, they are cancelled.

    Args:
        agent: does the task.
        value: the goal, or another input that the agent takes. Without one, the input is the output
            of `after`: one output, or a tuple or list of several.
        after: the tasks that must succeed first. A model reads their outputs after the goal.

    Raises:
        TaskFailedError: it was not allowed.
    """
    return await current_pipeline_run("detach").start_child(agent, value, after=after)
