"""Repetitions of one task of a recorded run: each is a fork that keeps all other work."""

from collections.abc import Sequence
from typing import Any

import trio

from orchestrator.agents import Agent, DefinitionError, raising_one_error
from orchestrator.ports.sessions import ChangeAgent, Orchestrator, Run


async def repeat_task(
    orchestrator: Orchestrator,
    agent: Agent[Any],
    run: str,
    task: str,
    *,
    times: int,
    stop: bool = False,
    change: ChangeAgent | None = None,
    deps: object = None,
) -> Sequence[Run[Any]]:
    """Run a task of a run again several times at once, each in a fork, and return the forks.

    Args:
        orchestrator: an open orchestrator with the journal of the run.
        agent: the agent of the run, in its present definition.
        run: the id of a run that has ended, or whose process died.
        task: the id of a task, or its path such as `/editor/researcher[3]`.
        times: the number of forks.
        stop: end each fork with the result of the task.
        change: returns the agent to run in place of an agent of the task and its descendants.
        deps: the values that the tools and instructions of the forks need from the program.
    """
    if times < 1:
        raise DefinitionError(f"times is {times}; it must be at least 1")
    forks: dict[int, Run[Any]] = {}

    async def fork(number: int) -> None:
        forks[number] = await orchestrator.fork(
            agent, run, only=task, stop=stop, change=change, deps=deps
        )

    with raising_one_error():
        # Owns the forks.
        async with trio.open_nursery() as nursery:
            for number in range(times):
                nursery.start_soon(fork, number)
    return [forks[number] for number in range(times)]
