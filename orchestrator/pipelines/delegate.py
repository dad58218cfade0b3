"""`delegate` and `detach`: how a function hands work on."""

from typing import TypeVar

from agents import Agent
from orchestrator.pipelines.child import Child
from orchestrator.pipelines.runner import current_pipeline_run

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


async def delegate(agent: Agent[OutputT, InputT], value: InputT, /) -> OutputT:
    """Have an agent do something, and return what it answers, as the type that it promises.

    The task is a child of the agent whose function calls this. Cancelling the call ends the task
    and all below it, and returns when all of them have ended.

    Args:
        agent: who is to do it.
        value: the goal, or whatever else the agent takes.

    Raises:
        TaskFailedError: it did not succeed, or was not allowed.
    """
    return await current_pipeline_run("delegate").delegate(agent, value)


async def detach(agent: Agent[OutputT, InputT], value: InputT, /) -> Child[OutputT]:
    """Have an agent do something, and go on at once.

    The function that calls this owns the task: when it returns, it waits for whatever it has
    detached; when it raises, that is cancelled.

    Args:
        agent: who is to do it.
        value: the goal, or whatever else the agent takes.

    Raises:
        TaskFailedError: it was not allowed.
    """
    return await current_pipeline_run("detach").start_child(agent, value)
